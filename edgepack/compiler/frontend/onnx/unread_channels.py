"""Leaves out of a network of integers the channels that no layer reads.

Networks trained with ReLU and weight decay have channels that died: all weights that a convolution multiplies
one with are 0, or all weights that compute it are, so that it is 0 everywhere. Of MLPerf Tiny's person
detector 1016 of 1640 channels between pointwise layers are such. A product of integers with 0 is 0 whatever
the other factor is, so that nothing changes but the work, and the params.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point import of_fixed_point
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.shapes import infer_shapes, static_shape
from edgepack.compiler.frontend.onnx.unread import drop_unread_constants

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["drop_unread_channels"]

#: A layer keeps a multiple of so many channels: bytes of a word.
MULTIPLE = 4

#: Operators of which each element of the result is one of the first operand's with constants.
ELEMENTWISE = {"Add", "Cast", "Clip", "Identity", "Max", "Min", "Mul", "Relu", "Sub"}

#: Operators that go over other dimensions than the channels.
REDUCTIONS, POOLINGS = {"ReduceMax", "ReduceMean", "ReduceSum"}, {"AveragePool", "MaxPool"}


@dataclass(frozen=True)
class _Value:
    """A value on the way from one product to the next.

    Attributes:
        name: of the value, and ``axis`` the dimension of it that its channels are.
        node: computes it.
    """

    name: str
    axis: int
    node: onnx.NodeProto


def drop_unread_channels(model: onnx.ModelProto) -> None:
    """Removes channels that are multiplied by 0 only, in place.

    Args:
        model: constants folded.
    """
    _Channels(model).run()


class _Channels:
    def __init__(self, model: onnx.ModelProto) -> None:
        self.model, graph = model, model.graph
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        inferred = infer_shapes(_with_stand_ins(model)).graph
        self.values = {value.name: value for value in (*inferred.value_info, *inferred.output, *graph.input)}
        self.declared = {value.name: value for value in graph.value_info}
        self.makers = {name: node for node in graph.node for name in node.output}
        self.readers = Counter(name for node in graph.node for name in node.input)
        self.readers.update(value.name for value in graph.output)

    def run(self) -> None:
        """Layer by layer from the last one on: a channel that is removed may have been the one reader of
        others."""
        for node in reversed(self.model.graph.node):
            if self._weights(node) is None:
                continue
            way = self._way(node)
            if way is None:
                continue
            unread = self._unread(node) | self._always_zero(way)
            kept = _kept(unread)
            if len(kept) < len(unread):
                self._select(node, _INPUT[node.op_type], kept)
                for value in way:
                    self._narrow(value, kept)
        drop_unread_constants(self.model)

    # Products --------------------------------------------------------------------------------------------

    def _weights(self, node: onnx.NodeProto) -> NDArray[Any] | None:
        """The constant weights of a product of all channels of integers; None of any other node."""
        if node.op_type not in _INPUT or node.domain not in ("", "ai.onnx"):
            return None
        weights = self._constant(node.input[1])
        if weights is None or weights.dtype.kind not in "iu" or int(attributes(node).get("group", 1)) != 1:
            return None
        return weights if node.op_type == "Conv" or weights.ndim == 2 else None

    def _unread(self, node: onnx.NodeProto) -> NDArray[Any]:
        """Of each channel that a product reads whether all of its weights are 0."""
        import numpy as np

        weights = self._weights(node)
        assert weights is not None
        axis = _INPUT[node.op_type]
        return np.logical_not(weights.any(axis=tuple(a for a in range(weights.ndim) if a != axis)))

    def _always_zero(self, way: Sequence[_Value]) -> NDArray[Any]:
        """Of each channel that is handed to a product whether it is 0 whatever the input is, as far as the
        product before it and what is elementwise behind that say."""
        import numpy as np

        from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate

        first, last = way[-1], way[0]
        weights = self._weights(first.node)
        assert weights is not None
        axis = _OUTPUT[first.node.op_type]
        nothing = np.logical_not(weights.any(axis=tuple(a for a in range(weights.ndim) if a != axis)))
        biased = len(first.node.input) > 2 or any(value.node.op_type == "Conv" for value in way[:-1])
        if not nothing.any() or biased:
            return np.zeros(len(nothing), bool)
        shape, dtype = static_shape(self.values[first.name]), _dtype(self.values[first.name])
        part = self._part(way)
        (result,) = evaluate(part, {first.name: np.zeros(shape or (), dtype)})
        others = tuple(a for a in range(result.ndim) if a != last.axis)
        return np.logical_and(nothing, np.logical_not(result.any(axis=others)))

    def _part(self, way: Sequence[_Value]) -> onnx.ModelProto:
        """What is computed behind the first product, as a model of its own."""
        import onnx

        nodes = [value.node for value in reversed(way[:-1])]
        constants = {name for node in nodes for name in node.input if name in self.constants}
        inside = [self.values[value.name] for value in way[1:-1]]
        graph = onnx.helper.make_graph(
            nodes,
            "part",
            [self.values[way[-1].name]],
            [self.values[way[0].name]],
            [self.constants[name] for name in sorted(constants)],
            value_info=inside,
        )
        return onnx.helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=self.model.ir_version
        )

    # The way from one product to the next ------------------------------------------------------------------

    def _way(self, node: onnx.NodeProto) -> list[_Value] | None:
        """The values between a product and the one before it, the last one first; None where something else
        reads one of them, or where channels are not computed one by one."""
        name = node.input[0]
        axis = 1 if node.op_type == "Conv" else len(self._shape(name)) - 1
        found: list[_Value] = []
        while True:
            maker = self.makers.get(name)
            if maker is None or self.readers[name] != 1 or len(maker.output) != 1 or not self._shape(name):
                return None
            found.append(_Value(name, axis, maker))
            if self._weights(maker) is not None:
                own = 1 if maker.op_type == "Conv" else len(self._shape(name)) - 1
                return found if axis == own and len(found) > 1 else None
            before = self._before(maker, axis)
            if before is None:
                return None
            name, axis = before

    def _before(self, node: onnx.NodeProto, axis: int) -> tuple[str, int] | None:
        """What a node computes each channel of, and the dimension of its channels; None where a channel
        depends on several."""
        data, *others = node.input
        shape, result = self._shape(data), self._shape(node.output[0])
        if not shape or data in self.constants or any(n and n not in self.constants for n in others):
            return None
        if of_fixed_point(node):
            return (data, axis) if shape == result else None
        if node.domain not in ("", "ai.onnx"):
            return None
        known = attributes(node)
        match node.op_type:
            case kind if kind in ELEMENTWISE:
                return (data, axis) if shape == result else None
            case "Transpose":
                return data, list(known.get("perm", range(len(shape))[::-1]))[axis]
            case kind if kind in POOLINGS:
                return (data, axis) if axis == 1 else None
            case "Conv":
                alone = int(known.get("group", 1)) == shape[1] == result[1]
                return (data, axis) if alone and axis == 1 else None
            case kind if kind in REDUCTIONS:
                over = self._axes(node, known, len(shape))
                return (data, axis) if known.get("keepdims", 1) and axis not in over else None
            case "Reshape":
                return _reshaped(data, shape, result, axis)
        return None

    def _axes(self, node: onnx.NodeProto, known: dict[str, Any], rank: int) -> list[int]:
        """The dimensions that a reduction goes over; all where it does not say."""
        given = self._constant(node.input[1]) if len(node.input) > 1 else known.get("axes")
        return [int(axis) % rank for axis in (range(rank) if given is None else given)]

    # Removal ---------------------------------------------------------------------------------------------

    def _narrow(self, value: _Value, kept: Sequence[int]) -> None:
        """Has a value some channels only, by narrower constants of the node that computes it."""
        node, shape = value.node, self._shape(value.name)
        if self._weights(node) is not None:
            self._select(node, _OUTPUT[node.op_type], kept)
        elif node.op_type == "Conv":
            self._select(node, 0, kept)
            for attribute in node.attribute:
                if attribute.name == "group":
                    attribute.i = len(kept)
        elif node.op_type == "Reshape":
            extents = [len(kept) if axis == value.axis else n for axis, n in enumerate(shape)]
            self._replace(node, 1, _int64(extents))
        elif node.op_type in ELEMENTWISE or of_fixed_point(node):
            for place in range(1, len(node.input)):
                self._select_operand(node, place, value.axis - len(shape), kept)
        for known in (self.values, self.declared):
            if value.name in known:
                known[value.name].type.tensor_type.shape.dim[value.axis].dim_value = len(kept)

    def _select(self, node: onnx.NodeProto, axis: int, kept: Sequence[int]) -> None:
        """Some rows or columns of a product's weights, and of its biases those of its rows."""
        weights = self._constant(node.input[1])
        assert weights is not None
        self._replace(node, 1, weights.take(kept, axis=axis))
        if len(node.input) > 2 and axis == 0:
            self._select_operand(node, 2, -1, kept)

    def _select_operand(self, node: onnx.NodeProto, place: int, axis: int, kept: Sequence[int]) -> None:
        """Some elements of a constant that is broadcast, ``axis`` counted from its end."""
        array = self._constant(node.input[place]) if node.input[place] else None
        if array is not None and array.ndim >= -axis and array.shape[axis] > 1:
            self._replace(node, place, array.take(kept, axis=axis))

    def _replace(self, node: onnx.NodeProto, place: int, array: NDArray[Any]) -> None:
        """Another constant, under a name of its own: others may read the old one."""
        from onnx import numpy_helper

        name = f"{node.input[place]}:{node.output[0]}:read"
        while name in self.constants:
            name += "_"
        tensor = numpy_helper.from_array(array, name)
        self.model.graph.initializer.append(tensor)
        self.constants[name] = tensor
        node.input[place] = name

    # Reading ---------------------------------------------------------------------------------------------

    def _constant(self, name: str) -> NDArray[Any] | None:
        from onnx import numpy_helper

        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def _shape(self, name: str) -> tuple[int, ...]:
        """A value's extents; none where they are not known."""
        return static_shape(self.values.get(name)) or ()


#: Operators that are products of all channels, and the dimension of their weights that they read and write.
_INPUT, _OUTPUT = {"Conv": 1, "MatMul": 0}, {"Conv": 0, "MatMul": 1}


def _kept(unread: NDArray[Any]) -> list[int]:
    """The channels that stay: those that are read, and others up to a multiple, in their order."""
    import numpy as np

    read, others = np.flatnonzero(~unread), np.flatnonzero(unread)
    count = max(MULTIPLE, -(-len(read) // MULTIPLE) * MULTIPLE)
    return sorted(int(i) for i in (*read, *others[: count - len(read)]))


def _reshaped(
    data: str, shape: tuple[int, ...], result: tuple[int, ...], axis: int
) -> tuple[str, int] | None:
    """Where channels lie before they are laid out alone in a tensor."""
    channels = result[axis]
    single = [extents.count(1) == len(extents) - 1 for extents in (shape, result)]
    return (data, shape.index(channels)) if all(single) and channels > 1 and channels in shape else None


def _with_stand_ins(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with standard operators of the same shapes and types in the place of those of fixed-point
    numbers, which ONNX does not know."""
    import onnx

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for node in copy.graph.node:
        if of_fixed_point(node):
            del node.input[2:], node.attribute[:]
            node.domain, node.op_type = "", "Add"
    return copy


def _dtype(value: onnx.ValueInfoProto) -> Any:
    import onnx

    return onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)


def _int64(numbers: Sequence[int]) -> NDArray[Any]:
    import numpy as np

    return np.asarray(numbers, np.int64)

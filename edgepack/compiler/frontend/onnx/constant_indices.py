"""Constant indices and sizes that are out of range are refused when a model is prepared, in all its graphs.

ONNX Runtime would refuse them when it runs the node, which it need not: the node may be in a branch that the
recorded run does not take, in a loop of no trip, or recorded outputs are the user's own. At run time a kernel
would read the nearest element, which is no error of a caller's but the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import attributes, known_form
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes, inner_graphs, static_shape
from edgepack.compiler.frontend.onnx.support import node_name
from edgepack.errors import ModelError

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["check_constant_indices"]

#: A node's attributes, and the shape of what its indices are positions in, to the sizes that they are
#: positions along: one, or one for each element of their last dimension.
Extents = Callable[[Mapping[str, Any], Sequence[int]], Sequence[int]]


@dataclass(frozen=True)
class _Indices:
    """Where a node has indices.

    Attributes:
        operand: number of the input that has them.
        data: number of the input that they are positions in.
        extents: the sizes that they are positions along.
        points: whether the last dimension of the indices has a position along each of the extents.
        from_end: whether negative ones count from the end.
        counts: whether they are numbers of elements, which may be all.
        column: the only column that has them, of a matrix.
    """

    operand: int
    data: int
    extents: Extents
    points: bool = False
    from_end: bool = True
    counts: bool = False
    column: int | None = None

    def first_wrong(self, values: NDArray[Any], extents: Sequence[int]) -> tuple[int | float, int] | None:
        """An index that is out of range, and the size that it is out of."""
        import numpy as np

        values = values if self.column is None else values[:, self.column]
        ends = np.asarray(extents[: values.shape[-1]] if self.points else extents[0], np.int64)
        low, high = (-ends if self.from_end else np.zeros_like(ends)), ends if self.counts else ends - 1
        wrong = ~((values >= low) & (values <= high))  # so NaN, among regions, is one
        if not wrong.any():
            return None
        place = int(np.flatnonzero(wrong)[0])
        return values.reshape(-1)[place].item(), int(np.broadcast_to(ends, values.shape).reshape(-1)[place])


def _along(attribute: str, default: int) -> Extents:
    return lambda values, shape: [shape[values.get(attribute, default)]]


def _rows(values: Mapping[str, Any], shape: Sequence[int]) -> Sequence[int]:
    return shape[:1]


def _gathered_points(values: Mapping[str, Any], shape: Sequence[int]) -> Sequence[int]:
    return shape[values.get("batch_dims", 0) :]


def _unpooled(values: Mapping[str, Any], shape: Sequence[int]) -> Sequence[int]:
    """The elements of what a MaxPool has read."""
    rank = len(shape) - 2
    kernel, strides = values["kernel_shape"], values.get("strides", [1] * rank)
    pads = values.get("pads", [0] * 2 * rank)
    sizes = ((shape[i + 2] - 1) * strides[i] + kernel[i] - pads[i] - pads[i + rank] for i in range(rank))
    return [prod([*shape[:2], *sizes])]


def _steps(values: Mapping[str, Any], shape: Sequence[int]) -> Sequence[int]:
    return [shape[1 if values.get("layout", 0) else 0]]


_ELEMENTS = _Indices(1, 0, _along("axis", 0))
_LENGTHS = _Indices(4, 0, _steps, from_end=False, counts=True)
_WORDS = (
    _Indices(0, 2, _rows, from_end=False),
    _Indices(1, 4, _rows, from_end=False),
)

#: The indices of each operator, by domain and name.
INDICES: Mapping[tuple[str, str], Sequence[_Indices]] = {
    **{("", name): (_ELEMENTS,) for name in ("Gather", "GatherElements", "Scatter", "ScatterElements")},
    ("", "GatherND"): (_Indices(1, 0, _gathered_points, points=True),),
    ("", "ScatterND"): (_Indices(1, 0, lambda _, shape: shape, points=True),),
    ("", "MaxUnpool"): (_Indices(1, 0, _unpooled, from_end=False),),
    ("", "ReverseSequence"): (_Indices(1, 0, _along("time_axis", 0), from_end=False, counts=True),),
    **{("", name): (_LENGTHS,) for name in ("RNN", "GRU", "LSTM")},
    ("", "RoiAlign"): (_Indices(2, 0, _rows, from_end=False),),
    ("", "MaxRoiPool"): (_Indices(1, 0, _rows, from_end=False, column=0),),
    ("ai.onnx.ml", "ArrayFeatureExtractor"): (_Indices(1, 0, lambda _, shape: shape[-1:], from_end=False),),
    ("com.microsoft", "DynamicQuantizeLSTM"): (_LENGTHS,),
    ("com.microsoft", "EmbedLayerNormalization"): (*_WORDS, _Indices(8, 3, _rows, from_end=False)),
    ("com.microsoft", "QEmbedLayerNormalization"): _WORDS,
    ("com.microsoft", "RotaryEmbedding"): (_Indices(1, 2, _rows, from_end=False),),
}

#: The largest extent of a tensor, and the least number that is greater than 0.
_MOST, _POSITIVE = 2**31 - 1, 5e-324

#: Operands of the standard's operators that are sizes or their like: the least and the greatest value.
NUMBERS: Mapping[str, Mapping[int, tuple[float, float]]] = {
    "Col2Im": {1: (1, _MOST), 2: (1, _MOST)},
    "ConstantOfShape": {0: (0, _MOST)},
    "Expand": {1: (0, _MOST)},
    "OneHot": {1: (0, _MOST)},
    "Pad": {1: (-_MOST, _MOST)},
    "Reshape": {1: (-1, _MOST)},
    "Resize": {2: (_POSITIVE, _MOST), 3: (0, _MOST)},
    "Split": {1: (0, _MOST)},
    "Tile": {1: (0, _MOST)},
    "TopK": {1: (0, _MOST)},
    "Upsample": {1: (_POSITIVE, _MOST)},
}


@dataclass(frozen=True)
class _Scope:
    """What the nodes of a graph can read.

    Attributes:
        constants: tensors by name.
        shapes: static ones, by name.
    """

    constants: Mapping[str, onnx.TensorProto]
    shapes: Mapping[str, tuple[int, ...]]

    def inside(self, graph: onnx.GraphProto, inferred: onnx.GraphProto) -> _Scope:
        """That of a graph; of it the types of values are inferred."""

        constants = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and len(node.attribute) == 1 and node.attribute[0].HasField("t"):
                constants[node.output[0]] = node.attribute[0].t
        shapes = {name: tuple(tensor.dims) for name, tensor in constants.items()}
        for value in (*inferred.input, *inferred.value_info, *inferred.output):
            shape = static_shape(value)
            if shape is not None:
                shapes.setdefault(value.name, shape)
        own = {value.name for value in graph.input} - constants.keys()
        own |= {name for node in graph.node for name in node.output} - constants.keys()
        outer = replace(
            self,
            constants={n: tensor for n, tensor in self.constants.items() if n not in own},
            shapes={n: shape for n, shape in self.shapes.items() if n not in own},
        )
        return _Scope({**outer.constants, **constants}, {**outer.shapes, **shapes})


def check_constant_indices(model: onnx.ModelProto) -> None:
    """Raises ModelError for a constant index, or a size, that is out of range.

    Args:
        model: without functions, its constants folded, input shapes static.
    """
    if any(_key(node) in INDICES or node.op_type in NUMBERS for node in all_nodes(model.graph)):
        _check(model.graph, infer_shapes(model).graph, _Scope({}, {}))


def _key(node: onnx.NodeProto) -> tuple[str, str]:
    return "" if node.domain == "ai.onnx" else node.domain, node.op_type


def _check(graph: onnx.GraphProto, inferred: onnx.GraphProto, around: _Scope) -> None:
    scope = around.inside(graph, inferred)
    for index, (node, typed) in enumerate(zip(graph.node, inferred.node, strict=True)):
        with known_form(node, index):
            for one in INDICES.get(_key(node), ()):
                _check_node(node, index, one, scope)
            if _key(node)[0] == "":
                _check_numbers(node, index, scope)
        for own, other in zip(inner_graphs(node), inner_graphs(typed), strict=True):
            _check(own, other, scope)


def _check_node(node: onnx.NodeProto, index: int, indices: _Indices, scope: _Scope) -> None:
    from onnx import numpy_helper

    if max(indices.operand, indices.data) >= len(node.input):
        return
    tensor = scope.constants.get(node.input[indices.operand])
    shape = scope.shapes.get(node.input[indices.data])
    if tensor is None or shape is None or 0 in tensor.dims:
        return
    values, extents = numpy_helper.to_array(tensor), indices.extents(attributes(node), shape)
    found = indices.first_wrong(values, extents)
    if found is None:
        return
    wrong, extent = found
    kind, least = ("length", 0) if indices.counts else ("index", -extent if indices.from_end else 0)
    most = extent if indices.counts else extent - 1
    raise ModelError(
        f"The {node.op_type} node {node_name(node, index)} has the {kind} {wrong} along an axis of {extent}.",
        hint=f"It is a constant, and may be from {least} to {most}: export the model with the right one.",
    )


def _check_numbers(node: onnx.NodeProto, index: int, scope: _Scope) -> None:
    import numpy as np
    from onnx import numpy_helper

    for operand, (low, high) in NUMBERS.get(node.op_type, {}).items():
        tensor = scope.constants.get(node.input[operand]) if operand < len(node.input) else None
        if tensor is None or 0 in tensor.dims:
            continue
        values = numpy_helper.to_array(tensor)
        values = values.astype(np.float64) if values.dtype.kind == "f" else values
        wrong = values[~((values >= low) & (values <= high))]  # so NaN is one
        if wrong.size:
            raise ModelError(
                f"The {node.op_type} node {node_name(node, index)} has {wrong.reshape(-1)[0]} as its operand "
                f"{operand}, which must be from {0 if low == _POSITIVE else low} to {high}.",
                hint="Export or download the model again.",
            )

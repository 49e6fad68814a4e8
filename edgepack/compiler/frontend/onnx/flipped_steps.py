"""Moves what a quantised model rounds by as much as float32 sums are off, to see what that changes.

A value next to the middle of two steps is rounded to one of them by its last bits, which depend on the order
in which a sum was added up. So two right programs differ by one step in a few elements, and from there on by
what these steps change: which no bound on a single operator says, and a run does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.external_data import copy_fields
from edgepack.compiler.frontend.onnx.rewrites import REWRITES
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor
from edgepack.compiler.frontend.onnx.shapes import infer_shapes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["draws", "flip_steps", "rounds_to_steps"]

#: How far a value may be off by rounding errors of float32, as a part of the largest one of its tensor: what
#: is measured behind one Winograd layer (``TOLERANCES["float32"]``).
FLOAT_ERROR = 1.3e-5

#: Of each tensor the element nearest to the middle of two steps is rounded to the other one if it is as near
#: as this, in steps. What lies on the steps themselves (masks, what was rounded before) is 1/2 away.
NEAR = 0.25

#: Factors whose products with a value have fractions that are as good as random; as many runs are made.
FACTORS = (74567.13, 91234.71, 120345.37, 65432.93)

#: The added input that chooses one of them: int64, rank 0.
DRAW = "edgepack/draw"

#: Operators that round floats to steps, as ONNX and ONNX Runtime have them.
_ROUNDING = ("QuantizeLinear", "DynamicQuantizeLinear")

#: Operators that round inside: rewritten, so that they are dequantise, compute, quantise.
_INTEGER = {
    key: rewrite
    for key, rewrite in REWRITES.items()
    if key[1].startswith("QLinear") or key[1] in ("QGemm", "DynamicQuantizeLSTM", "DynamicQuantizeMatMul")
}


def rounds_to_steps(op_type: str) -> bool:
    """Whether an operator rounds floats to the steps of a quantised type."""
    return op_type in _ROUNDING or any(op == op_type for _, op in _INTEGER)


def flip_steps(model: onnx.ModelProto) -> onnx.ModelProto | None:
    """A model that computes the same, but moves values before they are rounded to steps: each by up to
    ``FLOAT_ERROR`` of its tensor's largest one, and the one nearest to the middle of two steps to the other.

    How is another for each value of the added input (:func:`draws`), and the same on any machine. Constants
    that are rounded stay, for they are folded before anything is compiled.

    Args:
        model: as it is run for reference; not changed.

    Returns:
        None for a model that rounds nothing of float32, or resizes integers, which rounds in another way.
    """
    import numpy as np
    import onnx
    from onnx import numpy_helper

    if not any(rounds_to_steps(node.op_type) for node in model.graph.node):
        return None
    if any((node.domain, node.op_type) in _INTEGER for node in model.graph.node):
        copy = onnx.ModelProto()
        copy.CopyFrom(model)
        model = Editor(copy).run(_INTEGER)
    writer = _Writer(model)
    nodes = [each for node in model.graph.node for each in writer.written(node)]
    if not writer.moved or writer.resized:
        return None
    result = onnx.ModelProto()
    copy_fields(model, result, "graph")
    copy_fields(model.graph, result.graph, "node", "value_info")
    result.graph.value_info.extend(writer.inferred)  # without, ONNX Runtime takes 20 times as long to start
    factors = numpy_helper.from_array(np.asarray(FACTORS, np.float32), "edgepack/factors")
    chosen = onnx.helper.make_node("Gather", [factors.name, DRAW], [writer.factor], axis=0)
    result.graph.node.extend([chosen, *nodes])
    result.graph.initializer.extend([factors, *writer.constants.values()])
    result.graph.input.append(onnx.helper.make_tensor_value_info(DRAW, onnx.TensorProto.INT64, ()))
    return result


def draws(arrays: Mapping[str, NDArray[Any]]) -> Iterator[dict[str, NDArray[Any]]]:
    """The inputs of each run of such a model, where ``arrays`` are those of the model that it was made of."""
    import numpy as np

    for number in range(len(FACTORS)):
        yield {**arrays, DRAW: np.asarray(number, np.int64)}


class _Writer:
    """Writes what moves values before they are rounded.

    Attributes:
        factor: name of the factor of this run.
        constants: numbers that are written with, by value.
        inferred: types and shapes of the values of the model.
        moved: how many tensors are moved.
        resized: whether integers are resized.
    """

    factor = "edgepack/factor"

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = infer_shapes(model).graph
        self.inferred = list(graph.value_info)
        values = (*graph.input, *self.inferred, *graph.output)
        self._types = {value.name: value.type.tensor_type for value in values}
        self._sizes = {tensor.name: prod(tensor.dims) for tensor in model.graph.initializer}
        #: Values that depend on constants alone.
        self._known = {"", *self._sizes}
        self._nodes: list[onnx.NodeProto] = []
        self._count = 0
        self.constants: dict[float, onnx.TensorProto] = {}
        self.moved = 0
        self.resized = False

    def written(self, node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
        """What is written for a node: itself, or a copy that reads moved values, behind what moves them."""
        import onnx

        known = all(name in self._known for name in node.input)
        if known:
            self._known.update(node.output)
        elif node.op_type == "Resize":
            self.resized |= self._element(node) != onnx.TensorProto.FLOAT
        if known or node.op_type not in _ROUNDING or self._element(node) != onnx.TensorProto.FLOAT:
            yield node
            return
        self._nodes = []
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        copy.input[0] = self._moved(node)
        self.moved += 1
        yield from self._nodes
        yield copy

    def _element(self, node: onnx.NodeProto) -> int:
        """The type of what is rounded; that of most models where it cannot be inferred."""
        import onnx

        kind = self._types.get(node.input[0])
        return (int(kind.elem_type) if kind is not None else 0) or onnx.TensorProto.FLOAT

    def _moved(self, node: onnx.NodeProto) -> str:
        """The node's operand, moved."""
        x = node.input[0]
        largest = self._op("Max", self._op("ReduceMax", self._op("Abs", x), keepdims=0), self._const(1e-30))
        scrambled = self._op("Mul", self._op("Div", x, largest), self.factor)
        fraction = self._op("Sub", scrambled, self._op("Floor", scrambled))
        error = self._op("Mul", largest, self._const(2 * FLOAT_ERROR))
        noise = self._op("Mul", self._op("Sub", fraction, self._const(0.5)), error)
        moved = self._op("Add", x, noise)
        single = node.op_type == "DynamicQuantizeLinear" or self._sizes.get(node.input[1], 1) == 1
        return self._op("Add", moved, self._flip(node)) if single else moved

    def _flip(self, node: onnx.NodeProto) -> str:
        """What moves the element nearest to the middle of two steps to the other one; 0 for all others."""
        import onnx

        x = node.input[0]
        if node.op_type == "QuantizeLinear":
            kept = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
            integers = self._ops("QuantizeLinear", *node.input, outputs=1, domain=node.domain, **kept)
            quantised = [*integers, *node.input[1:]]
        else:
            quantised = self._ops("DynamicQuantizeLinear", x, outputs=3)
        back = self._op("DequantizeLinear", *quantised, domain=node.domain)
        scale = quantised[1]
        error = self._op("Div", self._op("Sub", x, back), scale)  # in steps; above 1/2 where it saturates
        distance = self._op("Sub", self._const(0.5), self._op("Abs", error))
        saturated = self._op("Less", distance, self._const(0.0))
        distance = self._op("Where", saturated, self._const(0.5), distance)
        least = self._op("Min", self._op("ReduceMin", distance, keepdims=0), self._const(NEAR))
        farther = self._op("Greater", distance, least)
        beyond = self._op("Add", self._op("Add", distance, distance), self._const(1e-3))
        steps = self._op("Mul", self._op("Sign", error), beyond)
        chosen = self._op("Where", farther, self._const(0.0), steps)
        return self._op("Mul", chosen, scale)

    def _const(self, value: float) -> str:
        import numpy as np
        from onnx import numpy_helper

        if value not in self.constants:
            name = f"edgepack/number_{len(self.constants)}"
            self.constants[value] = numpy_helper.from_array(np.asarray(value, np.float32), name)
        return str(self.constants[value].name)

    def _op(self, op_type: str, *inputs: str, **attributes: Any) -> str:
        return self._ops(op_type, *inputs, outputs=1, **attributes)[0]

    def _ops(self, op_type: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        import onnx

        self._count += outputs
        names = [f"edgepack/moved_{self._count - number}" for number in range(outputs)]
        self._nodes.append(onnx.helper.make_node(op_type, inputs, names, **attributes))
        return names

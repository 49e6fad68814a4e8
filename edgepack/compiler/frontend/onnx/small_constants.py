"""The numbers that small constants of a model hold, also where nodes make them of others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["SmallConstants"]

#: Elements of the largest constant that is looked at.
_LARGEST = 1 << 16

#: Nodes that hand the numbers of their first input on, each of them at least once.
_SAME = {"Cast", "CastLike", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Tile", "Transpose"} | {
    "Unsqueeze"
}

#: Nodes behind each other that are followed.
_DEPTH = 16


class SmallConstants:
    """Those of a graph.

    Args:
        graph: the model's own; what it captures is known too.
        shapes: of its values, as far as they are known.
    """

    def __init__(self, graph: onnx.GraphProto, shapes: Mapping[str, Sequence[int]]) -> None:
        self._shapes = shapes
        self._tensors = {t.name: t for t in graph.initializer if prod(t.dims) <= _LARGEST}
        self._makers = {name: node for node in graph.node for name in node.output}
        self._found: dict[str, NDArray[Any] | None] = {}

    def numbers(self, name: str, depth: int = _DEPTH) -> NDArray[Any] | None:
        """The different numbers of a value, sorted; None if it is no constant, or too large."""
        import numpy as np

        if name not in self._found:
            array = self._array(name, depth)
            known = array is not None and array.dtype.kind in "iuf"
            self._found[name] = np.unique(array) if known and array is not None else None
        return self._found[name]

    def _array(self, name: str, depth: int) -> NDArray[Any] | None:
        import numpy as np
        import onnx
        from onnx import numpy_helper

        if name in self._tensors:
            return np.asarray(numpy_helper.to_array(self._tensors[name]))
        node = self._makers.get(name)
        if node is None or not depth:
            return None
        given = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        if node.op_type == "Constant" and len(given) == 1:
            value = next(iter(given.values()))
            if isinstance(value, onnx.TensorProto):
                return np.asarray(numpy_helper.to_array(value)) if prod(value.dims) <= _LARGEST else None
            return np.asarray(value)
        if node.op_type in _SAME:
            return self.numbers(node.input[0], depth - 1)
        if node.op_type == "Range":
            return self._range(node, depth - 1)
        if node.op_type in ("Add", "Sub", "Mul") and len(node.input) == 2:
            left, right = (self.numbers(operand, depth - 1) for operand in node.input)
            if left is not None and right is not None and min(left.size, right.size) == 1:
                compute = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}[node.op_type]
                return np.asarray(compute(left, right))
        return None

    def _range(self, node: onnx.NodeProto, depth: int) -> NDArray[Any] | None:
        """The numbers of a Range, of which the first and the step are constants, and the size is known."""
        import numpy as np

        first, last, step = (self.numbers(operand, depth) for operand in node.input)
        if first is None or step is None or first.size != 1 or step.size != 1:
            return None
        shape = self._shapes.get(node.output[0], [])
        if last is not None and last.size == 1 and step.flat[0]:
            size = int(np.ceil((last.flat[0] - first.flat[0]) / step.flat[0]))
        else:
            size = shape[0] if shape else 0
        if not 0 < size <= _LARGEST:
            return None
        return np.asarray(first.flat[0] + step.flat[0] * np.arange(size))

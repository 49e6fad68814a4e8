"""Where the tensors of a float model are in the quantised one that was made of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["DEQUANTISED", "INPUT", "Ends", "QuantisedTensors", "constant_steps"]

#: Ends of a tensor's range, and half a step: what is no further out is rounded inwards.
Ends = tuple[float, float, float]

#: What ONNX Runtime's quantiser puts behind names.
DEQUANTISED, INPUT = "_DequantizeLinear_Output", "_QuantizeLinear_Input"


class QuantisedTensors:
    """Where the tensors of a float model are in the quantised one.

    Attributes:
        ranges: what the quantised values of a tensor can stand for, by the float model's name.
        weights: constants as the quantised model has them, by the float model's name.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx import numpy_helper

        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        self._made = {name for node in model.graph.node for name in node.output}
        self._made |= {value.name for value in model.graph.input}
        self._read: dict[str, str] = {}
        self.ranges: dict[str, Ends] = {}
        self.weights: dict[str, NDArray[Any]] = {}
        quantised = {node.output[0]: node for node in model.graph.node if node.op_type == "QuantizeLinear"}
        for node in model.graph.node:
            if node.op_type != "DequantizeLinear" or (steps := constant_steps(node, constants)) is None:
                continue
            scale, zero = steps
            if node.input[0] in constants:
                values = numpy_helper.to_array(constants[node.input[0]])
                axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
                name = node.output[0].removesuffix(DEQUANTISED)
                if (found := _dequantised(values, scale, zero, axis)) is not None:
                    self.weights[name] = found
            elif (maker := quantised.get(node.input[0])) is not None:
                name = maker.input[0].removesuffix(INPUT)
                self._read[name] = node.output[0]
                if scale.size == 1 and zero.dtype.kind in "iu":
                    self.ranges[name] = _ends(scale, zero)

    def float_name(self, made: str) -> str:
        """The float model's name of a tensor that is computed here, but by no QuantizeLinear."""
        name = made.removesuffix(INPUT)
        return name if name in self._read else made

    def value_of(self, name: str) -> str:
        """The tensor that stands for the float model's one: rounded, if it is; "" for none."""
        return self._read.get(name) or (name if name in self._made else "")


def constant_steps(
    node: onnx.NodeProto, constants: Mapping[str, onnx.TensorProto]
) -> tuple[NDArray[Any], NDArray[Any]] | None:
    """Scale and zero point of a QuantizeLinear or DequantizeLinear; None where they are no constants."""
    import numpy as np
    from onnx import numpy_helper

    arrays = [numpy_helper.to_array(constants[name]) for name in node.input[1:3] if name in constants]
    if len(arrays) < len([name for name in node.input[1:3] if name]) or not arrays:
        return None
    return arrays[0], arrays[1] if len(arrays) == 2 else np.zeros(arrays[0].shape, np.uint8)


def _ends(scale: NDArray[Any], zero: NDArray[Any]) -> Ends:
    import numpy as np

    limits = np.iinfo(zero.dtype)
    low, high = (float(scale) * (end - int(zero)) for end in (limits.min, limits.max))
    return low, high, float(scale) / 2


def _dequantised(
    values: NDArray[Any], scale: NDArray[Any], zero: NDArray[Any], axis: int
) -> NDArray[Any] | None:
    """The float values of a constant; None where its scales are for blocks."""
    import numpy as np

    if scale.ndim > 1:
        return None
    shape = [-1 if index == axis % values.ndim else 1 for index in range(values.ndim)]
    scale, zero = (array.reshape(shape) if array.ndim else array for array in (scale, zero))
    return np.asarray((values.astype(np.float64) - zero.astype(np.float64)) * scale)

"""Between floats and integers, and between integers of two scales."""

from __future__ import annotations

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import centred, integer_range, requantised
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import Converter, UnsupportedFormError, is_quantised

__all__ = ["CONVERTERS"]


def _quantize(emitter: Emitter, operator: Operator) -> None:
    """round(x / scale) + zero point, halves away from zero; of integers by a fixed-point factor."""
    import numpy as np

    tensor, result = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    if result.quantisation is None or not result.quantisation.single or not is_quantised(result):
        raise UnsupportedFormError(f"quantisation to {result.dtype} by several scales")
    scale, zero = np.float32(result.quantisation.scale[0]), int(result.quantisation.zero[0])
    if is_quantised(tensor) and tensor.quantisation is not None:
        factor = float(tensor.quantisation.scale[0]) / float(scale)
        made = requantised(
            emitter, centred(emitter, operator.inputs[0]), [factor], result, 0, (1 << 16) + 255
        )
        emitter.result(operator.outputs[0], made)
        return
    x = emitter.value(operator.inputs[0])
    exact = emitter.op("Div", x, emitter.scalar(float(scale), x))
    low, high = integer_range(result.dtype)
    near = emitter.op(
        "Clip",
        exact,
        emitter.scalar(low - zero - 1, x),
        emitter.scalar(high - zero + 1, x),
        shape=emitter.shape(x),
    )
    half = emitter.op(
        "Where",
        emitter.op("Less", near, emitter.scalar(0, x), dtype=bool),
        emitter.scalar(-0.5, x),
        emitter.scalar(0.5, x),
        shape=emitter.shape(x),
        dtype=np.float32,
    )
    whole = emitter.cast(emitter.op("Add", near, half), np.int32)
    moved = emitter.op("Add", whole, emitter.scalar(zero, whole)) if zero else whole
    clipped = emitter.op(
        "Clip", moved, emitter.scalar(low, moved), emitter.scalar(high, moved), shape=emitter.shape(x)
    )
    emitter.result(operator.outputs[0], emitter.cast(clipped, result.dtype))


def _dequantize(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    tensor = emitter.tensors[operator.inputs[0]]
    x = emitter.value(operator.inputs[0])
    if tensor.dtype in {"float16", "bfloat16"}:
        known = emitter.known(x)
        made = emitter.const(known.astype(np.float32)) if known is not None else emitter.cast(x, np.float32)
        emitter.result(operator.outputs[0], made)
        return
    if tensor.quantisation is None:
        raise UnsupportedFormError(f"{tensor.dtype} that is not quantised")
    along = [-1 if axis == tensor.quantisation.axis else 1 for axis in range(len(tensor.shape))]
    scale, zero = tensor.quantisation.scale, tensor.quantisation.zero.astype(np.int32)
    shape = () if scale.size == 1 else tuple(along)
    whole = emitter.cast(x, np.int32)
    if zero.any():
        whole = emitter.op("Sub", whole, emitter.const(zero.reshape(shape)))
    floats = emitter.cast(whole, np.float32)
    emitter.result(operator.outputs[0], emitter.op("Mul", floats, emitter.const(scale.reshape(shape))))


def _cast(emitter: Emitter, operator: Operator) -> None:
    """The numbers themselves, whatever they mean; of floats, towards 0, and within the integers' range."""
    import numpy as np

    x, result = emitter.value(operator.inputs[0]), emitter.tensors[operator.outputs[0]]
    if emitter.dtype(x).kind == "f" and result.dtype != "bool" and np.dtype(result.dtype).kind in "iu":
        low, high = integer_range(result.dtype)
        if np.dtype(result.dtype).itemsize < 4:
            bounds = emitter.scalar(low, x), emitter.scalar(high, x)
            x = emitter.op("Clip", x, *bounds, shape=emitter.shape(x))
    emitter.result(operator.outputs[0], emitter.cast(x, result.dtype))


CONVERTERS: dict[str, Converter] = {"CAST": _cast, "DEQUANTIZE": _dequantize, "QUANTIZE": _quantize}

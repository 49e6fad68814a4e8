"""Between floats and integers, and between integers of two scales."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    bounded,
    centred,
    integer_range,
    requantised,
    zero_of,
)
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import Converter, UnsupportedFormError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONVERTERS"]


#: Integers that may mean floats before and behind the operator, each to each.
_SCALED = ("int8", "uint8", "int16", "int32")

#: What LiteRT's kernel makes of each; of others TensorFlow Lite Micro's alone, or none.
_LITERTS = {
    "int8": ("int8", "uint8", "int16"),
    "uint8": ("int8", "uint8", "int16"),
    "int16": ("int8", "int16", "int32"),
    "int32": ("int8", "int16"),
}

#: The largest float below a half: with it floats up to 2**22 are rounded right, which a half makes 1 of
#: this number itself.
_HALF = 0.49999997


def _quantize(emitter: Emitter, operator: Operator) -> None:
    """round(x / scale) + zero point, halves away from zero; of integers by a fixed-point factor."""
    tensor, result = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    if result.quantisation is None or result.dtype not in _SCALED:
        raise UnsupportedFormError(f"a result of {result.dtype} that has no scale")
    if tensor.dtype in _SCALED:
        emitter.result(operator.outputs[0], _requantised(emitter, operator, tensor, result))
    elif tensor.dtype == "float32" and result.dtype != "int32":
        emitter.result(operator.outputs[0], _rounded(emitter, emitter.value(operator.inputs[0]), result))
    else:
        raise UnsupportedFormError(f"{tensor.dtype} as {result.dtype}")


def _requantised(emitter: Emitter, operator: Operator, tensor: Tensor, result: Tensor) -> str:
    """``reference_ops::Requantize``."""
    for one in (tensor, result):
        if one.quantisation is None or not one.quantisation.single:
            raise UnsupportedFormError(f"{one.name!r} of {one.dtype} that has not one scale")
    assert tensor.quantisation is not None and result.quantisation is not None
    words = tensor.dtype == result.dtype == "int16"
    if result.dtype not in _LITERTS[tensor.dtype] or (words and (zero_of(tensor) or zero_of(result))):
        emitter.foreign.add(operator.kind)
    factor = float(tensor.quantisation.scale[0]) / float(result.quantisation.scale[0])
    largest = 1 << 31 if tensor.dtype == "int32" else (1 << 16) + 255
    return requantised(emitter, centred(emitter, operator.inputs[0]), [factor], result, 0, largest)


def _rounded(emitter: Emitter, x: str, result: Tensor) -> str:
    """Floats as integers, by one scale or by one for each place of an axis."""
    import numpy as np

    scale, zero = _along_axis(result)
    low, high = integer_range(result.dtype)
    exact = emitter.op("Div", x, emitter.const(scale))
    least, most = (emitter.const(bound - zero.astype(np.float32)) for bound in (low - 1, high + 1))
    if zero.ndim:
        near = emitter.op("Min", emitter.op("Max", exact, least), most)
    else:
        near = emitter.op("Clip", exact, least, most, shape=emitter.shape(x))
    half = emitter.op(
        "Where",
        emitter.op("Less", near, emitter.scalar(0, x), dtype=bool),
        emitter.scalar(-_HALF, x),
        emitter.scalar(_HALF, x),
        shape=emitter.shape(x),
        dtype=np.float32,
    )
    whole = emitter.cast(emitter.op("Add", near, half), np.int32)
    moved = emitter.op("Add", whole, emitter.const(zero)) if zero.any() else whole
    return bounded(emitter, moved, low, high, result.dtype)


def _along_axis(tensor: Tensor) -> tuple[NDArray[Any], NDArray[Any]]:
    """Scales, float32, and zero points, int32, which broadcast with the tensor; of rank 0 for one."""
    import numpy as np

    assert tensor.quantisation is not None
    scale, zero = tensor.quantisation.scale, tensor.quantisation.zero.astype(np.int32)
    along = [-1 if axis == tensor.quantisation.axis else 1 for axis in range(len(tensor.shape))]
    shape = () if scale.size == 1 else tuple(along)
    return scale.reshape(shape), zero.reshape(shape)


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
    scale, zero = _along_axis(tensor)
    bytes_too = tensor.dtype in {"int8", "uint8", "int4"}
    if not bytes_too and (tensor.dtype != "int16" or zero.any() or not tensor.quantisation.single):
        emitter.foreign.add(operator.kind)
    whole = emitter.cast(x, np.int32)
    if zero.any():
        whole = emitter.op("Sub", whole, emitter.const(zero))
    floats = emitter.cast(whole, np.float32)
    emitter.result(operator.outputs[0], emitter.op("Mul", floats, emitter.const(scale)))


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

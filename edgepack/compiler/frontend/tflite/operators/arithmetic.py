"""Sums, differences and products of tensors, of floats and of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, ROUNDING_SHIFT
from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    activation_range,
    bounded,
    centred,
    integer_range,
    multiplied,
    quantize_multiplier,
    requantised,
    zero_of,
)
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    check_scaled,
    is_quantised,
    option,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated
from edgepack.compiler.frontend.tflite.scaled_sums import SHIFT, Affine, ScaledSum, SumOperand

__all__ = ["CONVERTERS"]


def _binary(kind: str, quantised: Callable[[Emitter, Operator], str] | None) -> Converter:
    def convert(emitter: Emitter, operator: Operator) -> None:
        tensors = [emitter.tensors[i] for i in operator.inputs]
        if quantised is not None and is_quantised(tensors[0]):
            emitter.result(operator.outputs[0], quantised(emitter, operator))
            return
        if any(is_quantised(tensor) for tensor in tensors):
            raise UnsupportedFormError(f"operands of {tensors[0].dtype}")
        check_scaled(*tensors, words=kind == "Sub")
        x, y = (emitter.value(i) for i in operator.inputs)
        made = emitter.op(kind, x, y)
        emitter.result(
            operator.outputs[0], activated(emitter, made, option(operator, "fusedActivationFunction"))
        )

    return convert


def _sum(kind: str) -> Callable[[Emitter, Operator], str]:
    def convert(emitter: Emitter, operator: Operator) -> str:
        tensors = [emitter.tensors[i] for i in operator.inputs]
        result = emitter.tensors[operator.outputs[0]]
        if tensors[0].dtype == "int16":
            return _sum_of_words(emitter, operator, kind)
        operands = [_operand(tensor, sign) for tensor, sign in zip(tensors, _SIGNS[kind], strict=True)]
        form = ScaledSum(operands[0], operands[1], float(_scale(result)))
        activation = option(operator, "fusedActivationFunction")
        assert result.quantisation is not None
        limits, zero = activation_range(activation, result.dtype, result.quantisation), zero_of(result)
        if (found := form.affine((limits[0] - zero, limits[1] - zero))) is not None:
            return _affine(emitter, operator, found, zero, limits)
        return _by_the_kernel(emitter, operator, form, kind)

    return convert


def _sum_of_words(emitter: Emitter, operator: Operator, kind: str) -> str:
    """Of int16, by factors of 31 bits of operands that are shifted left by 15."""
    import math

    tensors = [emitter.tensors[i] for i in operator.inputs]
    result = emitter.tensors[operator.outputs[0]]
    scales = [float(_scale(tensor)) for tensor in (*tensors, result)]
    if operator.options.get("potScaleInt16", True) and all(math.frexp(scale)[0] == 0.5 for scale in scales):
        raise UnsupportedFormError("sums of int16 whose scales are powers of two")
    twice, bits, terms = 2 * max(scales[:2]), 15, []
    for index, scale in zip(operator.inputs, scales[:2], strict=True):
        x = centred(emitter, index)
        shifted = emitter.op("Mul", x, emitter.scalar(1 << bits, x))
        terms.append(multiplied(emitter, shifted, *quantize_multiplier(scale / twice), 1 << 30))
    factor = twice / float((1 << bits) * _scale(result))
    activation = option(operator, "fusedActivationFunction")
    return requantised(emitter, emitter.op(kind, *terms), [factor], result, activation, (1 << 31) - 1)


#: Operands of ADD_N: as many as operators of ONNX may have.
_MOST_ADDED = 1024

#: Of the second operand of each operator.
_SIGNS = {"Add": (1, 1), "Sub": (1, -1)}


def _operand(tensor: Tensor, sign: int) -> SumOperand:
    low, high = integer_range(tensor.dtype)
    zero = zero_of(tensor)
    return SumOperand(float(_scale(tensor)), low - zero, high - zero, sign)


def _affine(emitter: Emitter, operator: Operator, form: Affine, zero: int, limits: tuple[int, int]) -> str:
    """round((a x + b y + c) / 2**shift), which is the same for all bytes.

    Zero points are part of c. Factors times the largest centred bytes, 128 at least, make at most 2**30, so
    that sums of bytes as they are, 255 at most, stay below 2**31.
    """
    import numpy as np

    terms, added = [], form.added
    for index, factor in zip(operator.inputs, form.factors, strict=True):
        x = emitter.cast(emitter.value(index), np.int32)
        terms.append(emitter.op("Mul", x, emitter.scalar(factor, x)))
        added -= factor * zero_of(emitter.tensors[index])
    total = emitter.op("Add", *terms)
    if added:
        total = emitter.op("Add", total, emitter.scalar(added, total))
    exponent = emitter.const(np.asarray(form.shift, np.int32))
    made = emitter.op(
        ROUNDING_SHIFT, total, exponent, shape=emitter.shape(total), domain=DOMAIN, largest=form.largest
    )
    moved = emitter.op("Add", made, emitter.scalar(zero, made)) if zero else made
    return bounded(emitter, moved, *limits, emitter.tensors[operator.outputs[0]].dtype)


def _by_the_kernel(emitter: Emitter, operator: Operator, form: ScaledSum, kind: str) -> str:
    """Each operand, shifted left, times a fixed-point factor; then their sum."""
    result = emitter.tensors[operator.outputs[0]]
    terms = []
    for index, operand, factor in zip(operator.inputs, form.operands, form.factors, strict=True):
        x = centred(emitter, index)
        shifted = emitter.op("Mul", x, emitter.scalar(1 << SHIFT, x))
        largest = max(abs(operand.low), abs(operand.high)) << SHIFT
        terms.append(multiplied(emitter, shifted, *quantize_multiplier(factor), largest))
    total = emitter.op(kind, *terms)
    activation = option(operator, "fusedActivationFunction")
    return requantised(emitter, total, [form.last], result, activation, 2**30)


def _product(emitter: Emitter, operator: Operator) -> str:
    tensors = [emitter.tensors[i] for i in operator.inputs]
    result = emitter.tensors[operator.outputs[0]]
    made = emitter.op("Mul", *(centred(emitter, i) for i in operator.inputs))
    factor = float(_scale(tensors[0]) * _scale(tensors[1]) / _scale(result))  # in float32, as the kernel
    return requantised(emitter, made, [factor], result, option(operator, "fusedActivationFunction"), 1 << 31)


def _scale(tensor: Tensor) -> Any:
    """The scale, float32."""
    import numpy as np

    if tensor.quantisation is None or not tensor.quantisation.single:
        raise UnsupportedFormError(f"{tensor.name!r} that is not quantised as a whole")
    return np.float32(tensor.quantisation.scale[0])


def _squared_difference(emitter: Emitter, operator: Operator) -> None:
    x, y = (emitter.tensors[i] for i in operator.inputs)
    if is_quantised(x) and is_quantised(y):
        emitter.result(operator.outputs[0], _squared_integers(emitter, operator))
        return
    check_scaled(x, y)
    difference = emitter.op("Sub", *(emitter.value(i) for i in operator.inputs))
    emitter.result(operator.outputs[0], emitter.op("Mul", difference, difference))


def _squared_integers(emitter: Emitter, operator: Operator) -> str:
    """Both operands at twice the larger scale, with 7 bits behind the point."""
    bits = 7
    tensors = [emitter.tensors[i] for i in operator.inputs]
    result = emitter.tensors[operator.outputs[0]]
    if any(tensor.dtype != "int8" for tensor in (*tensors, result)):
        raise UnsupportedFormError(f"operands of {tensors[0].dtype}")
    scales = [_scale(tensor) for tensor in tensors]
    twice = float(2 * max(scales))
    terms = []
    for index, scale in zip(operator.inputs, scales, strict=True):
        x = centred(emitter, index)
        shifted = emitter.op("Mul", x, emitter.scalar(1 << bits, x))
        terms.append(multiplied(emitter, shifted, *quantize_multiplier(float(scale) / twice), 255 << bits))
    difference = emitter.op("Sub", *terms)
    squares = emitter.op("Mul", difference, difference)
    factor = twice * twice / float((1 << 2 * bits) * _scale(result))
    return requantised(emitter, squares, [factor], result, 0, 255 * 255 << 2 * bits)


def _added(emitter: Emitter, operator: Operator) -> None:
    """One after the other."""
    values = [emitter.value(i) for i in operator.inputs]
    if len(values) > _MOST_ADDED:
        raise UnsupportedFormError(f"{len(values)} operands, and {_MOST_ADDED} are compiled at most")
    total = values[0]
    for value in values[1:]:
        total = emitter.op("Add", total, value)
    emitter.result(operator.outputs[0], total)


def _power(emitter: Emitter, operator: Operator) -> None:
    _check_plain(emitter, operator)
    emitter.result(operator.outputs[0], emitter.op("Pow", *(emitter.value(i) for i in operator.inputs)))


def _check_plain(emitter: Emitter, operator: Operator) -> None:
    tensor = emitter.tensors[operator.inputs[0]]
    if is_quantised(tensor):
        raise UnsupportedFormError(f"operands of {tensor.dtype}")


def _floor_mod(emitter: Emitter, operator: Operator) -> None:
    """What is left of a division, with the divisor's sign."""
    _check_plain(emitter, operator)
    x, y = (emitter.value(i) for i in operator.inputs)
    if emitter.dtype(x).kind != "f":
        emitter.result(operator.outputs[0], emitter.op("Mod", x, y))
        return
    rest = emitter.op("Mod", x, y, fmod=1)
    zero = emitter.scalar(0, rest)
    signs = emitter.op("Mul", rest, emitter.op("Sign", y))
    other = emitter.op("Less", signs, zero, dtype=bool)
    moved_by = emitter.op("Add", rest, y)
    emitter.result(operator.outputs[0], emitter.op("Where", other, moved_by, rest, dtype=emitter.dtype(x)))


def _floor_div(emitter: Emitter, operator: Operator) -> None:
    """Divided, and rounded down."""
    _check_plain(emitter, operator)
    x, y = (emitter.value(i) for i in operator.inputs)
    if emitter.dtype(x).kind == "f":
        emitter.result(operator.outputs[0], emitter.op("Floor", emitter.op("Div", x, y)))
        return
    # Not x less its rest, divided: that has no room in narrow integers.
    quotient = emitter.op("Div", x, y)
    rest = emitter.op("Sub", x, emitter.op("Mul", quotient, y))
    zero = emitter.scalar(0, x)
    negative = [emitter.op("Less", one, zero, dtype=bool) for one in (rest, y)]
    inexact = emitter.op("Not", emitter.op("Equal", rest, zero, dtype=bool))
    below = emitter.op("And", inexact, emitter.op("Xor", *negative))
    made = emitter.op("Sub", quotient, emitter.cast(below, emitter.dtype(x)))
    emitter.result(operator.outputs[0], made)


def _prelu(emitter: Emitter, operator: Operator) -> None:
    """x, or x times alpha where it is negative."""
    tensors = [emitter.tensors[i] for i in operator.inputs]
    if not is_quantised(tensors[0]):
        x, alpha = (emitter.value(i) for i in operator.inputs)
        emitter.result(operator.outputs[0], emitter.op("PRelu", x, alpha, shape=emitter.shape(x)))
        return
    result = emitter.tensors[operator.outputs[0]]
    if result.quantisation is None or tensors[0].dtype not in {"int8", "uint8"}:
        raise UnsupportedFormError(f"operands of {tensors[0].dtype}")
    x, alpha = (centred(emitter, i) for i in operator.inputs)
    scale, by, made = (_scale(tensor) for tensor in (*tensors, result))
    kept = requantised(emitter, x, [float(scale / made)], result, 0, 256)
    scaled = requantised(emitter, emitter.op("Mul", x, alpha), [float(scale * by / made)], result, 0, 1 << 16)
    positive = emitter.op("GreaterOrEqual", x, emitter.scalar(0, x), dtype=bool)
    emitter.result(
        operator.outputs[0], emitter.op("Where", positive, kept, scaled, dtype=emitter.dtype(kept))
    )


CONVERTERS: dict[str, Converter] = {
    "ADD": _binary("Add", _sum("Add")),
    "ADD_N": _added,
    "FLOOR_DIV": _floor_div,
    "FLOOR_MOD": _floor_mod,
    "POW": _power,
    "PRELU": _prelu,
    "SQUARED_DIFFERENCE": _squared_difference,
    "SUB": _binary("Sub", _sum("Sub")),
    "MUL": _binary("Mul", _product),
    "DIV": _binary("Div", None),
}

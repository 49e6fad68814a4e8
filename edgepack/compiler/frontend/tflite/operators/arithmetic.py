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
        x, y = (emitter.value(i) for i in operator.inputs)
        made = emitter.op(kind, x, y)
        emitter.result(
            operator.outputs[0], activated(emitter, made, option(operator, "fusedActivationFunction"))
        )

    return convert


def _sum(kind: str) -> Callable[[Emitter, Operator], str]:
    def convert(emitter: Emitter, operator: Operator) -> str:
        tensors = [emitter.tensors[i] for i in operator.inputs]
        if tensors[0].dtype == "int16":
            raise UnsupportedFormError("sums of int16")
        result = emitter.tensors[operator.outputs[0]]
        operands = [_operand(tensor, sign) for tensor, sign in zip(tensors, _SIGNS[kind], strict=True)]
        form = ScaledSum(operands[0], operands[1], float(_scale(result)))
        activation = option(operator, "fusedActivationFunction")
        assert result.quantisation is not None
        limits, zero = activation_range(activation, result.dtype, result.quantisation), zero_of(result)
        if (found := form.affine((limits[0] - zero, limits[1] - zero))) is not None:
            return _affine(emitter, operator, found, zero, limits)
        return _by_the_kernel(emitter, operator, form, kind)

    return convert


#: Of the second operand of each operator.
_SIGNS = {"Add": (1, 1), "Sub": (1, -1)}


def _operand(tensor: Tensor, sign: int) -> SumOperand:
    low, high = integer_range(tensor.dtype)
    zero = zero_of(tensor)
    return SumOperand(float(_scale(tensor)), low - zero, high - zero, sign)


def _affine(emitter: Emitter, operator: Operator, form: Affine, zero: int, limits: tuple[int, int]) -> str:
    """round((a x + b y + c) / 2**shift), which is the same for all bytes."""
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


CONVERTERS: dict[str, Converter] = {
    "ADD": _binary("Add", _sum("Add")),
    "SUB": _binary("Sub", _sum("Sub")),
    "MUL": _binary("Mul", _product),
    "DIV": _binary("Div", None),
}

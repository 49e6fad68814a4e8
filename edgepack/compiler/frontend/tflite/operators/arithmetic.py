"""Sums, differences and products of tensors, of floats and of integers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    centred,
    integer_range,
    multiplied,
    quantize_multiplier,
    requantised,
)
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated

__all__ = ["CONVERTERS"]

#: By how much operands of bytes are shifted left before they are scaled.
_SHIFT = 20


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
        import numpy as np

        tensors = [emitter.tensors[i] for i in operator.inputs]
        result = emitter.tensors[operator.outputs[0]]
        scales = [_scale(tensor) for tensor in tensors]
        if tensors[0].dtype == "int16":
            raise UnsupportedFormError("sums of int16")
        twice = 2 * max(scales)
        terms = []
        for index, tensor, scale in zip(operator.inputs, tensors, scales, strict=True):
            x, factor = centred(emitter, index), float(scale) / float(twice)
            if factor == 0.5:  # exact: nothing is rounded
                terms.append(emitter.op("Mul", x, emitter.scalar(1 << (_SHIFT - 1), x)))
                continue
            largest = max(map(abs, integer_range(tensor.dtype))) * 2 << _SHIFT
            shifted = emitter.op("Mul", x, emitter.scalar(1 << _SHIFT, x))
            terms.append(multiplied(emitter, shifted, *quantize_multiplier(factor), largest))
        total = emitter.op(kind, *terms)
        factor = float(twice) / float(np.float32(1 << _SHIFT) * _scale(result))
        return requantised(
            emitter, total, [factor], result, option(operator, "fusedActivationFunction"), 2**30
        )

    return convert


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

"""Softmax and its like."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, HIGH_MUL, ROUNDING_SHIFT
from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import bounded, integer_range, quantize_multiplier
from edgepack.compiler.frontend.tflite.gemmlowp import (
    exp_on_negative_values,
    high_mul,
    one_over_one_plus_x,
    rounding_shift,
)
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    check_scaled,
    is_quantised,
)

__all__ = ["CONVERTERS"]

#: Bits before the point of scaled differences, and of sums of exponentials.
_DIFFERENCE_BITS, _SUM_BITS = 5, 12

#: Equal terms of a row from which on the interpreter's kernel ends its process: it would shift by 32 bits.
_LIKE = 1 << 9


def _softmax(emitter: Emitter, operator: Operator) -> None:
    data, result = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    beta = float(operator.options.get("beta") or 0.0)
    x = emitter.value(operator.inputs[0])
    if not is_quantised(data):
        import numpy as np

        check_scaled(data, words=True)
        scaled = emitter.op("Mul", x, emitter.scalar(beta, x)) if beta != 1 else x
        made = emitter.op("Softmax", emitter.cast(scaled, np.float32), axis=-1)
        emitter.result(operator.outputs[0], made)
        return
    if data.dtype == "int16":
        raise UnsupportedFormError("softmax of int16")
    emitter.result(operator.outputs[0], _of_bytes(emitter, x, data, result, beta))


def _of_bytes(emitter: Emitter, x: str, data: Tensor, result: Tensor, beta: float) -> str:
    """``reference_ops::Softmax``: exponentials are looked up by the difference from the row's largest."""
    import numpy as np

    if result.dtype not in {"int8", "uint8", "int16"}:
        raise UnsupportedFormError(f"softmax with a result of {result.dtype}")
    table = np.asarray(_exponentials(data, beta), np.int64)
    parts = np.asarray([rounding_shift(int(value), _SUM_BITS) for value in table], np.int32)
    wide, rank = emitter.cast(x, np.int32), len(emitter.shape(x))
    rows = (*emitter.shape(x)[:-1], 1)
    axes = emitter.const(np.asarray([rank - 1], np.int64))
    largest = emitter.op("ReduceMax", wide, axes, shape=rows, keepdims=1)
    place = emitter.op("Add", emitter.op("Sub", wide, largest), emitter.scalar(255, wide))
    shape = emitter.shape(place)
    exponentials = emitter.op(
        "Gather", emitter.const(table.astype(np.int32)), place, shape=shape, dtype=np.int32, axis=0
    )
    terms = emitter.op("Gather", emitter.const(parts), place, shape=shape, dtype=np.int32, axis=0)
    total = _total(emitter, terms, axes, rows)
    scale, above = _reciprocal(emitter, total, emitter.shape(x)[-1])
    product = emitter.op(HIGH_MUL, scale, exponentials, domain=DOMAIN)
    bits = np.iinfo(result.dtype).bits
    exponent = emitter.op("Add", above, emitter.scalar(31 - bits, above))
    if emitter.shape(x)[-1] >= _LIKE:
        exponent = emitter.op("Min", exponent, emitter.scalar(31, above))
    made = emitter.op(ROUNDING_SHIFT, product, exponent, domain=DOMAIN)
    low, high = integer_range(result.dtype)
    if low:
        made = emitter.op("Add", made, emitter.scalar(low, made))
    return bounded(emitter, made, low, high, result.dtype)


def _total(emitter: Emitter, terms: str, axes: str, rows: Sequence[int]) -> str:
    """The sums of rows, of which the largest is one of int32 where there are so many terms."""
    import numpy as np

    if emitter.shape(terms)[-1] < 1 << _SUM_BITS:
        return emitter.op("ReduceSum", terms, axes, shape=rows, keepdims=1)
    total = emitter.op("ReduceSum", emitter.cast(terms, np.int64), axes, shape=rows, keepdims=1)
    return emitter.cast(emitter.op("Min", total, emitter.scalar(2**31 - 1, total)), np.int32)


def _exponentials(data: Tensor, beta: float) -> list[int]:
    """exp(beta * scale * d) for d from -255 to 0, of numbers without bits before the point; 0 where it is so
    small that the kernel leaves it out (``PreprocessSoftmaxScaling``, ``CalculateInputRadius``)."""
    assert data.quantisation is not None
    scale = float(data.quantisation.scale[0])
    real = min(beta * scale * (1 << (31 - _DIFFERENCE_BITS)), (1 << 31) - 1.0)
    if real <= 1:
        raise UnsupportedFormError(f"a scale of {scale} before a softmax")
    multiplier, shift = quantize_multiplier(real)
    radius = ((1 << _DIFFERENCE_BITS) - 1) * (1 << (31 - _DIFFERENCE_BITS)) // (1 << shift)
    return [
        exp_on_negative_values(high_mul(difference << shift, multiplier)) if difference >= -radius else 0
        for difference in range(-255, 1)
    ]


def _reciprocal(emitter: Emitter, total: str, count: int) -> tuple[str, str]:
    """1 / the sum of ``count`` exponentials of which one is 1, without bits before the point, and how many
    bits the sum has more than 1 has (``GetReciprocal``)."""
    import numpy as np

    one = 31 - _SUM_BITS
    bits = [one + k for k in range(1, min((count - 1).bit_length() + 1, _SUM_BITS))]
    above = emitter.const(np.zeros((), np.int32))
    for bit in bits:
        more = emitter.op("GreaterOrEqual", total, emitter.scalar(1 << bit, total), dtype=bool)
        above = emitter.op("Add", emitter.cast(more, np.int32), above)
    steps = range(len(bits) + 1)
    shape = emitter.shape(above)
    powers, factors = (
        emitter.op("Gather", emitter.const(np.asarray(table, np.int32)), above, shape=shape, axis=0)
        for table in ([1 << (one + k) for k in steps], [1 << (_SUM_BITS - k) for k in steps])
    )
    part = emitter.op("Mul", emitter.op("Sub", total, powers), factors)
    return one_over_one_plus_x(emitter, part), above


CONVERTERS: dict[str, Converter] = {"SOFTMAX": _softmax}

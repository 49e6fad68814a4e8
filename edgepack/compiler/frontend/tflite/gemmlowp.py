"""Fixed-point functions of gemmlowp (``fixedpoint/fixedpoint.h``), which TFLite's reference kernels of
softmax and the like compute with: of numbers that are known in Python, of others as nodes."""

from __future__ import annotations

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, HIGH_MUL
from edgepack.compiler.frontend.tflite.emitter import Emitter

__all__ = ["exp_on_negative_values", "high_mul", "one_over_one_plus_x", "rounding_shift"]

_MOST, _LEAST = 2**31 - 1, -(2**31)


def high_mul(a: int, b: int) -> int:
    """round(a * b / 2**31), halves towards infinity (``SaturatingRoundingDoublingHighMul``)."""
    return _MOST if a == b == _LEAST else (a * b + (1 << 30)) >> 31


def rounding_shift(x: int, exponent: int) -> int:
    """round(x / 2**exponent), halves away from zero (``RoundingDivideByPOT``)."""
    mask = (1 << exponent) - 1
    return (x >> exponent) + int((x & mask) > (mask >> 1) + int(x < 0))


def _shifted_left(x: int, exponent: int) -> int:
    return max(_LEAST, min(_MOST, x << exponent))


def exp_on_negative_values(x: int, integer_bits: int = 5) -> int:
    """exp of a number <= 0 with ``integer_bits`` bits before the point, as one with none."""
    if x == 0:
        return _MOST
    fraction = 31 - integer_bits
    quarter = 1 << (fraction - 2)
    part = (x & (quarter - 1)) - quarter
    result = _exp_of_quarter(_shifted_left(part, integer_bits))
    rest = part - x
    factors = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)
    for exponent, factor in enumerate(factors, -2):  # exp(-2**exponent)
        if integer_bits > exponent and rest & (1 << (fraction + exponent)):
            result = high_mul(result, factor)
    return result


def _exp_of_quarter(a: int) -> int:
    """exp of a number in [-1/4, 0), by its series around -1/8."""
    at_eighth, third = 1895147668, 715827883
    x = a + (1 << 28)
    x2 = high_mul(x, x)
    x3, x4 = high_mul(x2, x), high_mul(x2, x2)
    higher = high_mul(rounding_shift(x4, 2) + x3, third) + x2
    return at_eighth + high_mul(at_eighth, x + rounding_shift(higher, 1))


def one_over_one_plus_x(emitter: Emitter, a: str) -> str:
    """1 / (1 + a) of numbers in [0, 1) without bits before the point, int32, by three steps of Newton's
    method (``one_over_one_plus_x_for_x_in_0_1``)."""
    import numpy as np

    def number(value: int) -> str:
        return emitter.const(np.asarray(value, np.int32))

    def times(x: str, y: str) -> str:
        return emitter.op(HIGH_MUL, x, y, domain=DOMAIN)

    half = emitter.op("Add", emitter.op("Div", a, number(2)), number(1 << 30))
    x = emitter.op("Add", times(half, number(-1010580540)), number(1515870810))
    for _ in range(3):
        error = emitter.op("Sub", number(1 << 29), times(half, x))
        x = emitter.op("Add", x, emitter.op("Mul", times(x, error), number(4)))
    doubled = emitter.op("Mul", emitter.cast(x, np.int64), emitter.const(np.asarray(2, np.int64)))
    return emitter.cast(emitter.op("Min", doubled, emitter.const(np.asarray(_MOST, np.int64))), np.int32)

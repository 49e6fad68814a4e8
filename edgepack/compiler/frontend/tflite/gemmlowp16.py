"""Logistic function and hyperbolic tangent of fixed-point numbers of 16 bits, as gemmlowp computes them
(``fixedpoint/fixedpoint.h``): tables of all 65536 numbers, which integer recurrent layers look up in."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.gemmlowp import rounding_shift

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["logistic", "tanh"]

_MOST, _LEAST = 2**15 - 1, -(2**15)

#: exp(-2**k) from k = -2 on, without bits before the point, of 32 bits.
_POWERS = (1672461947, 1302514674, 790015084, 290630308, 39332535, 720401, 242)


@cache
def logistic(bits: int) -> NDArray[Any]:
    """1 / (1 + exp(-x)) without bits before the point, int16, of numbers with ``bits`` such: of 0 to 32767,
    then of -32768 to -1."""
    import numpy as np

    x = _all()
    positive = _newton(_exp(-np.abs(x), bits))
    found = _times_power(positive, 1)
    return np.asarray(np.where(x == 0, 1 << 14, np.where(x > 0, found, _MOST - found)), np.int16)


@cache
def tanh(bits: int) -> NDArray[Any]:
    """The hyperbolic tangent, as :func:`logistic`."""
    import numpy as np

    x = _all()
    found = _times_power(_newton(_exp(-np.abs(x), bits + 1)) - (1 << 13), 2)
    return np.asarray(np.where(x == 0, 0, np.where(x < 0, -found, found)), np.int16)


def _all() -> NDArray[Any]:
    import numpy as np

    return np.concatenate([np.arange(_MOST + 1), np.arange(_LEAST, 0)]).astype(np.int64)


def _number(value: int) -> int:
    """The higher half of a number of 32 bits, rounded."""
    return rounding_shift(value, 16)


def _saturated(x: NDArray[Any]) -> NDArray[Any]:
    import numpy as np

    return np.asarray(np.clip(x, _LEAST, _MOST))


def _product(a: Any, b: Any) -> Any:
    """``SaturatingRoundingDoublingHighMul``."""
    return _saturated((a * b + (1 << 14)) >> 15)


def _times_power(x: NDArray[Any], exponent: int) -> NDArray[Any]:
    """x * 2**exponent (``SaturatingRoundingMultiplyByPOT``)."""
    import numpy as np

    if exponent >= 0:
        return _saturated(x << exponent)
    half = 1 << (-exponent - 1)
    return np.where(x < 0, -((-x + half) >> -exponent), (x + half) >> -exponent)


def _exp(x: NDArray[Any], bits: int) -> NDArray[Any]:
    """exp of numbers <= 0 with ``bits`` bits before the point (``exp_on_negative_values``)."""
    import numpy as np

    x = np.maximum(x, _LEAST)
    fraction = 15 - bits
    quarter = 1 << (fraction - 2) if fraction >= 2 else 0
    part = (x & (quarter - 1)) - quarter
    result = _exp_of_quarter(_times_power(part, bits))
    rest = part - x
    for exponent, factor in enumerate(_POWERS, -2):
        if bits > exponent:
            has = (rest & (1 << (fraction + exponent))) != 0
            result = np.where(has, _product(result, _number(factor)), result)
    if bits > 5:
        result = np.where(x < -(1 << (fraction + 5)), 0, result)
    return np.where(x == 0, _MOST, result)


def _exp_of_quarter(a: NDArray[Any]) -> NDArray[Any]:
    """exp of numbers in [-1/4, 0), by its series around -1/8."""
    at_eighth, third = _number(1895147668), _number(715827883)
    x = a + (1 << 12)
    x2 = _product(x, x)
    x3, x4 = _product(x2, x), _product(x2, x2)
    higher = _times_power(_product(_times_power(x4, -2) + x3, third) + x2, -1)
    return _saturated(at_eighth + _product(at_eighth, x + higher))


def _newton(a: NDArray[Any]) -> Any:
    """1 / (1 + a) of numbers in [0, 1], with two bits before the point, by three steps of Newton's method."""
    half = (a + _MOST + 1) // 2  # of what is positive
    x: Any = _number(1515870810) + _product(half, _number(-1010580540))
    for _ in range(3):
        x = x + _times_power(_product(x, (1 << 13) - _product(half, x)), 2)
    return x

"""Intervals of numbers, for what can be proved of an expression."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan

import numpy as np

__all__ = ["Interval", "added", "divided", "integer_limits", "multiplied", "of_dtype", "rounded", "united"]


@dataclass(frozen=True)
class Interval:
    """What a number lies in.

    Attributes:
        least, most: both included; integers as ints, infinities as floats.
        nan: whether it may be NaN instead.
        apart: how far from 0 it is at least.
    """

    least: float
    most: float
    nan: bool = False
    apart: float = 0.0

    def within(self, least: float, most: float) -> bool:
        """Whether the number is one, and between two."""
        return not self.nan and least <= self.least and self.most <= most

    def has(self, value: float) -> bool:
        """Whether it may be this number."""
        return self.least <= value <= self.most and abs(value) >= self.apart

    @property
    def distance(self) -> float:
        """How far from 0 it is at least, by its ends too."""
        return max(self.apart, self.least, -self.most)

    @property
    def magnitude(self) -> float:
        """What it is at most, without its sign."""
        return max(abs(self.least), abs(self.most))


def integer_limits(dtype: str) -> tuple[int, int]:
    """The least and the largest integer of an element type (``uint8``, ``int128``, ``bool``)."""
    if dtype == "bool":
        return 0, 1
    signed, bits = dtype.startswith("int"), int(dtype.lstrip("uint"))
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)


def of_dtype(dtype: str) -> Interval:
    """All numbers of an element type."""
    if dtype == "bool" or dtype.startswith(("int", "uint")):
        return Interval(*integer_limits(dtype))
    return Interval(-inf, inf, nan=True)


def united(a: Interval, b: Interval) -> Interval:
    """What one of two numbers is."""
    return Interval(min(a.least, b.least), max(a.most, b.most), a.nan or b.nan, min(a.distance, b.distance))


def added(a: Interval, b: Interval) -> Interval:
    return _of(a, b, (a.least + b.least, a.most + b.most))


def multiplied(a: Interval, b: Interval) -> Interval:
    return _of(a, b, tuple(x * y for x in (a.least, a.most) for y in (b.least, b.most)))


def divided(a: Interval, b: Interval) -> Interval:
    """A quotient of floating point numbers."""
    if b.has(0):
        return Interval(-inf, inf, nan=True)
    ends = [b.least, b.most] if b.least > 0 or b.most < 0 else [-b.apart, b.apart]
    return _of(a, b, tuple(x / y for x in (a.least, a.most) for y in ends))


def _of(a: Interval, b: Interval, ends: tuple[float, ...]) -> Interval:
    """What lies between results at the ends; one of infinities may be NaN."""
    if any(isnan(x) for x in ends):
        return Interval(-inf, inf, nan=True)
    infinite = inf in (a.magnitude, b.magnitude)
    return Interval(min(ends), max(ends), a.nan or b.nan or infinite)


def rounded(x: Interval, dtype: str) -> Interval:
    """A number as one of a floating point type, which rounds its ends."""
    made = np.float64 if dtype == "float64" else np.float32  # those of 16 bits: no tighter than of 32
    with np.errstate(over="ignore"):
        return Interval(float(made(x.least)), float(made(x.most)), x.nan, x.apart)

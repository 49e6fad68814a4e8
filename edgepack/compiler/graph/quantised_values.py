"""What is known of values in a quantised model: which integers they are, and what scales these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import Array, dtype_of, shape_of

__all__ = ["INT16", "Integers", "Scaled", "aligned", "integer_bounds", "same_scale"]

#: The least and the largest value of what is multiplied by products of int16.
INT16 = (-(2**15), 2**15 - 1)


@dataclass(frozen=True)
class Integers:
    """A quantised tensor, less its zero point.

    Attributes:
        expr: the integers less ``zero``, of int16 (so that what a window reads outside of an image is 0).
        scale: float32, what the model multiplies them by.
        zero: the zero point.
        dtype: of the model's tensor, in which ``expr`` + ``zero`` fits.
        limits: the least and the largest value of ``expr``.
    """

    expr: relax.Expr
    scale: Array
    zero: int
    dtype: str
    limits: tuple[int, int]


@dataclass(frozen=True)
class Scaled:
    """A float32 tensor that is integers times a scale: min(max(expr * scale, low), high).

    Attributes:
        expr: integers, of int16 where they are a quantised tensor, of int32 where they are sums of products.
        scale: float32, a scalar or one number for each position of ``axis``.
        axis: of ``scale``; 0 for a scalar.
        limits: the least and the largest value of ``expr``.
        low, high: bounds of the float32 values.
    """

    expr: relax.Expr
    scale: Array
    axis: int
    limits: tuple[int, int]
    low: float = -inf
    high: float = inf

    @property
    def single(self) -> bool:
        """Whether there is one scale for all."""
        return self.scale.size == 1

    @property
    def bounded(self) -> bool:
        """Whether the values have bounds that come from the model."""
        return self.low > -inf or self.high < inf

    def by(self, factor: Array) -> Scaled:
        """The same integers by a scale that is ``factor`` times as large; no bounds."""
        return replace(self, scale=(self.scale / factor).astype(np.float32), low=-inf, high=inf)

    def scales(self) -> Array:
        """The scale in a shape that multiplies the integers."""
        return aligned(self.scale, self.axis, len(shape_of(self.expr)))


def aligned(values: Array, axis: int, rank: int) -> Array:
    """A scalar, or numbers along ``axis`` of a tensor of ``rank`` dimensions, for broadcasting."""
    if values.size == 1:
        return values.reshape(())
    shape: Sequence[int] = [-1 if i == axis % rank else 1 for i in range(rank)]
    return values.reshape(shape)


def same_scale(value: Scaled, step: Array, limits: tuple[int, int]) -> bool:
    """Whether a value's integers are what quantising it by a scale gives."""
    fits = limits[0] <= value.limits[0] and value.limits[1] <= limits[1] and not value.bounded
    narrow = dtype_of(value.expr) == "int16" and value.single
    return fits and narrow and bool(value.scale.reshape(()) == step)


def integer_bounds(value: Scaled, step: Array, limits: tuple[int, int]) -> tuple[int, int]:
    """The least and the largest integer that a value becomes which has bounds of its own."""

    def rounded(bound: float) -> int:
        whole = np.rint(np.clip(np.float32(bound) / step, limits[0], limits[1]))
        return int(whole)

    return rounded(value.low), rounded(value.high)

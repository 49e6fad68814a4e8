"""What is known of values in a quantised model: which integers they are, and what scales these."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import Array, dtype_of, is_constant, op_name, shape_of

__all__ = [
    "ByteProducts",
    "Integers",
    "Scaled",
    "aligned",
    "evaluated",
    "integer_bounds",
    "same_scale",
]


@dataclass(frozen=True)
class ByteProducts:
    """How a CPU multiplies quads of bytes, the second of which are int8.

    Attributes:
        left: element type of the first ones, "uint8" or "int8".
        saturates: whether it adds the products of two neighbours in 16 bits, where they may saturate.
        least: the smallest weight; -127 where any two products of a sum may be added in 16 bits.
        rate: multiply-adds in the time of one of float32.
        whole: whether kernels read quads as they lie in memory, so that a reduction must have whole ones;
            otherwise they widen what a window reads to a patch of their own, of dense products alone.
    """

    left: str
    saturates: bool = False
    least: int = -128
    rate: float = 4.0
    whole: bool = True

    def padding(self, elements: int) -> int:
        """Zeros behind so many neighbouring elements of a reduction."""
        return -elements % 4 if self.whole else 0

    def takes(self, inner: int, groups: int, rank: int) -> bool:
        """Whether it computes convolutions of images of ``rank`` dimensions, with ``inner`` input channels of
        each of so many groups."""
        if not self.whole:
            return groups == 1 and rank <= 2
        return inner >= 2 and (groups == 1 or inner % 4 == 0)

    def fits(self, weights: Array) -> bool:
        """Whether products with these weights are exact.

        Args:
            weights: integers, (reduction, columns), the reduction as it is taken in quads.
        """
        if weights.min(initial=0) < self.least or weights.max(initial=0) > 127:
            return False
        if not self.saturates:
            return True
        rows = len(weights) - len(weights) % 2
        pairs = weights[:rows].reshape(-1, 2, weights.shape[1]).astype(np.int64)
        largest, smallest = pairs.clip(min=0).sum(1).max(initial=0), pairs.clip(max=0).sum(1).min(initial=0)
        return bool(255 * largest < 2**15 and 255 * smallest >= -(2**15))


@dataclass(frozen=True)
class Integers:
    """A quantised tensor.

    Attributes:
        expr: what stands for it: its integers less ``zero`` plus ``offset``; of int16 (and ``offset`` 0, so
        that
            what a window reads outside of an image is 0) or of the type of bytes that is multiplied.
        scale: float32, what the model multiplies the integers by.
        zero: the zero point.
        dtype: of the model's tensor.
        limits: the least and the largest value of an integer less ``zero``.
        offset: what stands for the zero point.
    """

    expr: relax.Expr
    scale: Array
    zero: int
    dtype: str
    limits: tuple[int, int]
    offset: int = 0


@dataclass(frozen=True)
class Scaled:
    """A float32 tensor that is integers times a scale: min(max((expr - offset + addend) * scale, low), high).

    Attributes:
        expr: integers, of int16 or bytes where they are a quantised tensor, of int32, or of float32 that
        holds
            each of them, where they are sums of products.
        scale: float32, a scalar or one number for each position of ``axis``.
        axis: of ``scale``; 0 for a scalar.
        limits: the least and the largest value of an integer.
        low, high: bounds of the float32 values.
        offset: what stands for 0 in a quantised tensor.
        addend: int32, of a shape that is added to sums of products; None for nothing.
    """

    expr: relax.Expr
    scale: Array
    axis: int
    limits: tuple[int, int]
    low: float = -inf
    high: float = inf
    offset: int = 0
    addend: Array | None = None

    @property
    def sums(self) -> bool:
        """Whether the integers are sums of products; otherwise they are a quantised tensor."""
        return dtype_of(self.expr) in {"int32", "float32"}

    @property
    def of_bytes(self) -> bool:
        """Whether the integers are a quantised tensor that is computed, kept as bytes, by one scale."""
        kept = dtype_of(self.expr) in {"int8", "uint8"} and not is_constant(self.expr)
        return kept and self.single and not self.bounded

    @property
    def single(self) -> bool:
        """Whether there is one scale for all."""
        return self.scale.size == 1

    @property
    def kept_as(self) -> tuple[float, int, str]:
        """By what scale, number that stands for 0, and type a quantised tensor of one scale is kept."""
        return float(self.scale.reshape(())), self.offset, dtype_of(self.expr)

    @property
    def bounded(self) -> bool:
        """Whether the values have bounds that come from the model."""
        return self.low > -inf or self.high < inf

    def by(self, factor: Array) -> Scaled:
        """The same integers by a scale that is ``factor`` times as large; no bounds."""
        return replace(self, scale=(self.scale / factor).astype(np.float32), low=-inf, high=inf)

    def of(self, expr: relax.Expr, addend: Array | None = None) -> Scaled:
        """Other integers with the same scale."""
        return replace(self, expr=expr, addend=addend)

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
    narrow = not value.sums and value.single
    return fits and narrow and bool(value.scale.reshape(()) == step)


def integer_bounds(value: Scaled, step: Array, limits: tuple[int, int]) -> tuple[int, int]:
    """The least and the largest integer that a value becomes which has bounds of its own."""

    def rounded(bound: float) -> int:
        whole = np.rint(np.clip(np.float32(bound) / step, limits[0], limits[1]))
        return int(whole)

    return rounded(value.low), rounded(value.high)


def evaluated(call: relax.Call, values: Array) -> Array | None:
    """A constant behind a change of its shape; None for another operator."""
    name = op_name(call)
    if name == "relax.permute_dims":
        axes = call.attrs.axes
        return values.transpose(None if axes is None else [int(a) for a in axes])
    views = {"relax.reshape", "relax.squeeze", "relax.expand_dims", "relax.flatten"}
    return values.reshape(shape_of(call)) if name in views else None

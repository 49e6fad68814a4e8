"""Convolutions and matrix products of integers, for those of dequantised tensors."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from edgepack.compiler.graph.filtered_integers import ExactTiles, bounds_of
from edgepack.compiler.graph.quantised_rounding import shifted
from edgepack.compiler.graph.quantised_values import ByteProducts, Scaled
from edgepack.compiler.graph.rewrite import (
    Array,
    Rewriter,
    constant,
    dtype_of,
    is_constant,
    numpy_of,
    op_name,
    shape_of,
)

__all__ = ["QuantisedProducts"]

#: Sums of products are less than this; up to the second, float32 has each of them.
LIMIT, WHOLE = 2**31, 2**24

#: Channels from which on a convolution is faster in Winograd's form.
FILTERED_CHANNELS = 16

#: How many times as fast as directly convolutions of float32 are in Winograd's forms, as networks reach it:
#: 3x3 of stride 1 by squares, other windows by lines, first layers of stride 2 over phases
#: (notes/2026-11-21-winograd.md).
SQUARES, LINES, PHASES = 2.7, 1.7, 1.8


class QuantisedProducts:
    """Emits products of quads of bytes where the target multiplies these and the weights fit, of int16
    elsewhere.

    Args:
        rewriter: emits.
        quads: how the target multiplies bytes, if it does.
        tiles: by which convolutions of integers have Winograd's form; None where they may not have it.

    Attributes:
        wide: products by constants that are of int16 though the target multiplies bytes.
        work: multiply-adds of all products that were made, by whether they are of quads.
        floats: how long they take in float32, whose convolutions have Winograd's forms, in multiply-adds.
        exact: those that have Winograd's form of integers, by whether they are of quads and the side of the
            largest tile.
    """

    def __init__(
        self, rewriter: Rewriter, quads: ByteProducts | None, tiles: ExactTiles | None = None
    ) -> None:
        self.rewriter, self.quads, self.tiles = rewriter, quads, tiles
        self.wide, self.floats = 0, 0.0
        self.work: dict[bool, int] = {}
        self.exact: dict[tuple[bool, int], int] = {}

    def convolution(self, call: relax.Call, left: Scaled, right: Scaled) -> Scaled | None:
        """A convolution, channels first; None where its scales are not such that it is one of integers, or
        sums may exceed int32."""
        if (str(call.attrs.data_layout)[:2], str(call.attrs.kernel_layout)[:2]) != ("NC", "OI"):
            return None
        if not _multiplied(left) or not _multiplied(right) or not left.single or not is_constant(right.expr):
            return None
        if not right.single and right.axis != 0:
            return None
        weights = numpy_of(right.expr)
        sums = np.abs(weights.astype(np.int64)).reshape(len(weights), -1).sum(1)
        most = int(sums.max(initial=0)) * max(map(abs, left.limits))
        if most >= LIMIT:
            return None
        found = Scaled(
            left.expr,
            (left.scale * right.scale).astype(np.float32),
            0 if right.single else 1,
            (-most, most),
        )
        made = self._quads_of_convolution(call, left, weights)
        self._count(call, left, weights, quads=made is not None)
        if made is None:
            return found.of(self._convolved(call, self._centred(left), constant(weights), call.attrs.padding))
        added = _correction(left, weights, 0)
        channels = (1, -1, *[1] * (weights.ndim - 2))
        return found.of(made, None if added is None else added.reshape(channels))

    def _count(self, call: relax.Call, left: Scaled, weights: Array, *, quads: bool) -> None:
        """Takes note of a convolution's multiply-adds."""
        count = prod(shape_of(call)) * prod(weights.shape[1:])
        faster = _times_as_fast(call, weights)
        self.work[quads] = self.work.get(quads, 0) + count
        self.floats += count / faster
        if faster == SQUARES and self.tiles is not None:
            limits = min(0, left.limits[0]), max(0, left.limits[1])
            if sides := self.tiles(bounds_of(limits, np.moveaxis(weights, 0, -1))):
                form = quads, max(sides)
                self.exact[form] = self.exact.get(form, 0) + count

    def _quads_of_convolution(self, call: relax.Call, left: Scaled, weights: Array) -> relax.Expr | None:
        """The sums of products of what stands for the integers; None where products of int16 are made."""
        groups, inner = int(call.attrs.groups), weights.shape[1]
        if self.quads is None or dtype_of(left.expr) != self.quads.left:
            return None
        if inner < 2 and self.quads.whole:
            return None
        extra = self.quads.padding(inner)
        padded = np.pad(weights, [(0, 0), (0, extra), *[(0, 0)] * (weights.ndim - 2)])
        reduction = np.moveaxis(padded, 1, -1).reshape(len(weights), -1).T
        if not self.quads.takes(inner, groups, weights.ndim - 2) or not self.quads.fits(reduction):
            self.wide += 1
            return None
        data, emit = left.expr, self.rewriter.emit
        rank = weights.ndim - 2
        if extra:
            data = emit(relax.op.nn.pad(data, [0, 0, 0, extra, *[0] * 2 * rank]))
        pads = [int(n) for n in call.attrs.padding]
        if any(pads) and left.offset:
            widths = [n for i in range(rank) for n in (pads[i], pads[i + rank])]
            data = emit(relax.op.nn.pad(data, [0, 0, 0, 0, *widths], pad_value=float(left.offset)))
            pads = [0] * len(pads)
        return self._convolved(call, data, constant(padded.astype(np.int8)), pads)

    def _convolved(
        self, call: relax.Call, data: relax.Expr, weights: relax.Expr, padding: list[int]
    ) -> relax.Expr:
        a = call.attrs
        operator = getattr(relax.op.nn, op_name(call).removeprefix("relax.nn."))
        return self.rewriter.emit(
            operator(
                data,
                weights,
                strides=list(a.strides),
                padding=list(padding),
                dilation=list(a.dilation),
                groups=int(a.groups),
                data_layout=str(a.data_layout),
                kernel_layout=str(a.kernel_layout),
                out_dtype="int32",
            )
        )

    def matmul(self, left: Scaled, right: Scaled) -> Scaled | None:
        """A matrix product; None as for a convolution."""
        shapes = [shape_of(side.expr) for side in (left, right)]
        if not _multiplied(left) or not _multiplied(right) or not left.single or min(map(len, shapes)) < 2:
            return None
        if not right.single and right.axis != len(shapes[1]) - 1:
            return None
        if is_constant(right.expr):
            sums = int(np.abs(numpy_of(right.expr).astype(np.int64)).sum(-2).max(initial=0))
        else:
            sums = max(map(abs, right.limits)) * shapes[0][-1]
        most = sums * max(map(abs, left.limits))
        if most >= LIMIT:
            return None
        rank = max(map(len, shapes))
        scale = (left.scale * right.scale).astype(np.float32)
        found = Scaled(left.expr, scale, 0 if right.single else rank - 1, (-most, most))
        made = self._quads_of_matmul(left, right)
        quads, count = made is not None, prod(shapes[0]) * shapes[1][-1]
        self.work[quads] = self.work.get(quads, 0) + count
        self.floats += count
        if made is not None:
            return found.of(made, _correction(left, numpy_of(right.expr), 1))
        as_floats = most <= WHOLE and not is_constant(right.expr) and not is_constant(left.expr)
        dtype = "float32" if as_floats else "int32"
        return found.of(
            self.rewriter.emit(relax.op.matmul(*(self._wide(self._centred(s), dtype) for s in (left, right))))
        )

    def _quads_of_matmul(self, left: Scaled, right: Scaled) -> relax.Expr | None:
        """As of a convolution, for a constant matrix."""
        if self.quads is None or dtype_of(left.expr) != self.quads.left or not is_constant(right.expr):
            return None
        weights, rank = numpy_of(right.expr), len(shape_of(left.expr))
        if weights.ndim != 2:
            return None
        extra = self.quads.padding(len(weights))
        padded = np.pad(weights, [(0, extra), (0, 0)])
        if not self.quads.fits(padded):
            self.wide += 1
            return None
        data = left.expr
        if extra:
            data = self.rewriter.emit(relax.op.nn.pad(data, [*[0] * (2 * rank - 1), extra]))
        matrix = constant(padded.astype(np.int8))
        return self.rewriter.emit(relax.op.matmul(data, matrix, out_dtype="int32"))

    def _centred(self, value: Scaled) -> relax.Expr:
        """The integers less what stands for 0, of int16."""
        if is_constant(value.expr):
            return value.expr
        return shifted(self.rewriter, value.expr, -value.offset, "int16")

    def _wide(self, expr: relax.Expr, dtype: str) -> relax.Expr:
        """Integers as a wider type. Of int32 ``int16_operands`` finds that they are narrower; there is no
        micro-kernel of pairs of two activations, whose sums float32 has as fast as any."""
        if is_constant(expr):
            return constant(numpy_of(expr).astype(dtype))
        return self.rewriter.emit(relax.op.astype(expr, dtype))


def _times_as_fast(call: relax.Call, weights: Array) -> float:
    """How many times as fast as directly a convolution is in Winograd's form in float32; 1 without.

    Args:
        weights: (O, I, ...).
    """
    a, window = call.attrs, weights.shape[2:]
    strides, dilation = tuple(map(int, a.strides)), {*map(int, a.dilation)}
    if int(a.groups) > 1 or weights.shape[0] < FILTERED_CHANNELS or len(window) > 2:
        return 1.0
    if strides == (2, 2) and dilation == {1} and window[0] == window[1] in (7, 8):
        return PHASES
    if weights.shape[1] < FILTERED_CHANNELS:
        return 1.0
    if window == (3, 3) and {*strides} == dilation == {1}:
        return SQUARES
    filtered = any(taps > 2 and stride == 1 for taps, stride in zip(window, strides, strict=True))
    return LINES if filtered else 1.0


def _multiplied(value: Scaled) -> bool:
    """Whether the integers are such as are multiplied, and all of the value."""
    return not value.sums and not value.bounded


def _correction(left: Scaled, weights: Array, columns: int) -> Array | None:
    """What is added to sums of products of what stands for the integers, for each of the weights' columns."""
    if not left.offset:
        return None
    sums = np.moveaxis(weights.astype(np.int64), columns, 0).reshape(weights.shape[columns], -1).sum(1)
    correction: Array = (-left.offset * sums).astype(np.int32)
    return correction

"""Transposed convolution as a plain one with more output channels (sub-pixel convolution).

With stride s, an output pixel at q = o + pad has phase r = q mod s and sees only the taps r, r + s, r + 2
s, ... of the kernel, at the input pixels q div s, q div s - 1, ... So the transposed convolution is a plain
one of T = ceil(k / s) taps with s (in two dimensions s * s) times the output channels, whose result is spread
over the image (Shi et al., Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
Convolutional Neural Network, 2016). Of a signal nothing has to be spread: phases lie behind each other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import (
    Array,
    OptionalExpr,
    Rewriter,
    constant,
    is_constant,
    numpy_of,
    shape_of,
)
from edgepack.compiler.graph.windows import DATA_LAYOUTS, WEIGHT_LAYOUTS

__all__ = ["DEPTHWISE_PHASES", "Transpose", "Weights", "convolution_of_transpose", "spread"]

#: Phases up to which each is a depthwise convolution of its own.
DEPTHWISE_PHASES = 16

#: Part of the products from which on phases of fewer taps are convolutions of their own, and how many.
LEAST_WASTE, MOST_PARTS = 0.2, 8


class Weights:
    """Weights that are constant, or computed by the model: the same operations on either."""

    def __init__(self, rewriter: Rewriter, value: Array | relax.Expr) -> None:
        self._rewriter, self._value = rewriter, value

    @property
    def shape(self) -> tuple[int, ...]:
        return self._value.shape if isinstance(self._value, np.ndarray) else shape_of(self._value)

    @property
    def expr(self) -> relax.Expr:
        return constant(np.ascontiguousarray(self._value)) if self._constant else self._value

    @property
    def _constant(self) -> bool:
        return isinstance(self._value, np.ndarray)

    def _new(self, value: Array | relax.Expr) -> Weights:
        return Weights(self._rewriter, value if self._constant else self._rewriter.emit(value))

    def reshape(self, shape: Sequence[int]) -> Weights:
        return self._new(
            self._value.reshape(shape) if self._constant else relax.op.reshape(self._value, shape)
        )

    def transpose(self, axes: Sequence[int]) -> Weights:
        return self._new(
            self._value.transpose(axes) if self._constant else relax.op.permute_dims(self._value, axes)
        )

    def flip(self, axis: int) -> Weights:
        """The elements along ``axis`` in reverse order."""
        if self.shape[axis] == 1:
            return self
        return self._new(np.flip(self._value, axis) if self._constant else relax.op.flip(self._value, axis))

    def padded(self, behind: Mapping[int, int]) -> Weights:
        """With so many zeros behind the last element of each axis."""
        widths = [(0, behind.get(axis, 0)) for axis in range(len(self.shape))]
        if not any(after for _, after in widths):
            return self
        if self._constant:
            return self._new(np.pad(self._value, widths))
        return self._new(relax.op.nn.pad(self._value, [n for pair in widths for n in pair]))

    def cut(self, axis: int, begin: int, end: int, step: int = 1) -> Weights:
        """The elements ``begin``, ``begin + step``, ... before ``end`` along ``axis``."""
        if (begin, step) == (0, 1) and end >= self.shape[axis]:
            return self
        if self._constant:
            return self._new(self._value[(slice(None),) * axis + (slice(begin, end, step),)])
        end = min(end, self.shape[axis])
        return self._new(relax.op.strided_slice(self._value, [axis], [begin], [end], [step]))

    def apart(self, axis: int, distance: int) -> Weights:
        """With ``distance`` - 1 zeros between neighbours along ``axis``."""
        shape, count = self.shape, self.shape[axis]
        wide = self.reshape([*shape[: axis + 1], 1, *shape[axis + 1 :]]).padded({axis + 1: distance - 1})
        wide = wide.reshape([*shape[:axis], count * distance, *shape[axis + 1 :]])
        return wide.cut(axis, 0, (count - 1) * distance + 1)


@dataclass(frozen=True)
class Transpose:
    """A transposed convolution; numbers for each spatial dimension.

    Attributes:
        weights: (IC, OC / groups, ...).
        first: the first position q div s that is computed.
        pads: pixels that are computed before the first one of the output.
        out: extents of the output.
    """

    weights: Weights
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    first: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    out: tuple[int, ...]

    @classmethod
    def of(cls, call: relax.Call, weights: Weights) -> Transpose:
        """What ``call`` computes, with zeros between taps whose phases differ."""
        a, rank = call.attrs, len(weights.shape) - 2
        strides, dilation = tuple(map(int, a.strides)), list(map(int, a.dilation))
        for i in range(rank):
            if strides[i] > 1 and dilation[i] > 1:
                weights, dilation[i] = weights.apart(i + 2, dilation[i]), 1
        first, pads = [], []
        for k, s, d, pad in zip(weights.shape[2:], strides, dilation, a.padding[:rank], strict=True):
            first.append(min(int(pad) // s, (-(-k // s) - 1) * d))
            pads.append(int(pad) - first[-1] * s)
        slides = (strides, tuple(dilation), tuple(first), tuple(pads))
        return cls(weights, *slides, int(a.groups), shape_of(call)[2:])

    @property
    def taps(self) -> tuple[int, ...]:
        """Taps that a phase has along each dimension, at most."""
        return tuple(-(-k // s) for k, s in zip(self.weights.shape[2:], self.strides, strict=True))

    @property
    def extents(self) -> tuple[int, ...]:
        """Positions q div s from the first to that of the last output pixel."""
        numbers = zip(self.pads, self.out, self.strides, strict=True)
        return tuple((pad + n - 1) // s + 1 for pad, n, s in numbers)

    def read(self, extents: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """What is read of an input with these extents: so much of its beginning, and so much padding behind
        that."""
        needed = [first + n for first, n in zip(self.first, self.extents, strict=True)]
        kept = tuple(min(n, extent) for n, extent in zip(extents, needed, strict=True))
        return kept, tuple(n - k for n, k in zip(needed, kept, strict=True))

    def before(self, taps: Sequence[int]) -> list[int]:
        """Padding before the first pixel of the plain convolution of so many taps; negative: pixels that it
        does not read."""
        return [(n - 1) * d - first for n, d, first in zip(taps, self.dilation, self.first, strict=True)]

    @property
    def phases(self) -> int:
        """Output pixels that are made at one position."""
        return prod(self.strides)

    @property
    def whole(self) -> tuple[tuple[int, int], ...]:
        """All phases, as :meth:`plain_weights` takes them."""
        return tuple((0, s) for s in self.strides)

    def plain_weights(self, phases: Sequence[tuple[int, int]]) -> Weights:
        """(taps ..., IC / groups, groups * phases * OC / groups) of the plain convolution that makes some
        phases, as many taps as these have.

        Args:
            phases: for each dimension the first one and the end.
        """
        channels, out = self.weights.shape[:2]
        rank, kept, split = len(self.strides), self.weights, []
        missing = {}
        for axis, (t, s, k) in enumerate(zip(self.taps, self.strides, self.weights.shape[2:], strict=True)):
            missing[axis + 2] = t * s - k
            split += [t, s]
        kept = kept.padded(missing).reshape([self.groups, channels // self.groups, out, *split])
        for axis, (begin, end) in enumerate(phases):
            kept = kept.cut(4 + 2 * axis, begin, end).cut(3 + 2 * axis, 0, self.taps_of(axis, begin))
            kept = kept.flip(3 + 2 * axis)
        taps, inner = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
        shape = [*(kept.shape[axis] for axis in taps), channels // self.groups]
        size = self.groups * prod(end - begin for begin, end in phases) * out
        return kept.transpose([*taps, 1, 0, *inner, 2]).reshape([*shape, size])

    def taps_of(self, axis: int, phase: int) -> int:
        """How many taps a phase of one dimension has; the others are zeros that complete the last one."""
        return max(1, -(-(self.weights.shape[axis + 2] - phase) // self.strides[axis]))

    @property
    def channels(self) -> tuple[int, int]:
        """Groups of what is computed at one position, and channels of each phase of a group: the order of
        the channels of :meth:`parts`, laid end to end. Of a depthwise one a phase has all channels."""
        return (1, self.groups) if self._phases_are_depthwise else (self.groups, self.weights.shape[1])

    @property
    def _phases_are_depthwise(self) -> bool:
        channels, out = self.weights.shape[:2]
        return channels == self.groups > 1 == out and 1 < self.phases <= DEPTHWISE_PHASES

    def parts(self) -> list[tuple[tuple[int, int], ...]]:
        """Phases that are better computed apart, in the order of their channels; one part where it is one.

        Phases with a tap less than others waste it. In the last dimension that has such phases they are two
        parts; before that one each phase is one, so that the parts' channels lie behind each other. Each
        phase of a depthwise one is a depthwise convolution.
        """
        if self._phases_are_depthwise:
            return list(product(*([(r, r + 1) for r in range(s)] for s in self.strides)))
        numbers = list(zip(self.weights.shape[2:], self.strides, strict=True))
        uneven = [axis for axis, (k, s) in enumerate(numbers) if k % s]
        needed = prod(self.weights.shape[2:]) / prod(
            t * s for t, (_, s) in zip(self.taps, numbers, strict=True)
        )
        if self.groups > 1 or not uneven or needed > 1 - LEAST_WASTE:
            return [self.whole]
        cuts = []
        for axis, (k, s) in enumerate(numbers):
            if axis < uneven[-1]:
                cuts.append([(r, r + 1) for r in range(s)])
            else:
                cuts.append([(0, k % s), (k % s, s)] if axis == uneven[-1] else [(0, s)])
        parts = list(product(*cuts))
        return parts if len(parts) <= MOST_PARTS else [self.whole]


def convolution_of_transpose(rewriter: Rewriter, data: relax.Expr, call: relax.Call) -> OptionalExpr:
    """The transposed convolution ``call`` of ``data``, channels last.

    Args:
        data: the input, channels last.
        call: ``relax.nn.conv1d_transpose``, ``conv2d_transpose`` or ``conv3d_transpose``, channels first.
    """
    rank = len(shape_of(call)) - 2
    if call.attrs.data_layout != DATA_LAYOUTS[rank][0]:
        return None
    weights = call.args[1]
    value = numpy_of(weights) if is_constant(weights) else rewriter.use(weights)
    t = Transpose.of(call, Weights(rewriter, value))
    kept, behind = t.read(shape_of(data)[1:-1])
    if kept != shape_of(data)[1:-1]:
        data = rewriter.emit(relax.op.strided_slice(data, [*range(1, rank + 1)], [0] * rank, list(kept)))
    parts = [_plain(rewriter, data, t, phases, behind) for phases in t.parts()]
    wide = parts[0] if len(parts) == 1 else rewriter.emit(relax.op.concat(parts, axis=-1))
    return spread(rewriter, wide, t)


def _plain(
    rewriter: Rewriter,
    data: relax.Expr,
    t: Transpose,
    phases: Sequence[tuple[int, int]],
    behind: Sequence[int],
) -> relax.Expr:
    """A plain convolution that computes some phases of all positions, the input padded by ``behind`` at its
    end."""
    rank, weights = len(t.strides), t.plain_weights(phases)
    before = t.before(weights.shape[:rank])
    if min(before) < 0:
        axes, extents = [*range(1, rank + 1)], list(shape_of(data)[1:-1])
        begins, before = [max(0, -n) for n in before], [max(0, n) for n in before]
        data = rewriter.emit(relax.op.strided_slice(data, axes, begins, extents))
    return rewriter.emit(
        getattr(relax.op.nn, f"conv{rank}d")(
            data,
            weights.expr,
            padding=[*before, *behind],
            dilation=list(t.dilation),
            groups=t.groups,
            data_layout=DATA_LAYOUTS[rank][1],
            kernel_layout=WEIGHT_LAYOUTS[rank][1],
        )
    )


def spread(rewriter: Rewriter, wide: relax.Expr, t: Transpose) -> relax.Expr:
    """(N, positions ..., groups * phases * channels of a group) to the output, channels last."""
    batch, rank = shape_of(wide)[0], len(t.strides)
    groups, out = t.channels
    image = wide
    if t.phases > 1:
        parts = rewriter.emit(relax.op.reshape(wide, (batch, *t.extents, groups, *t.strides, out)))
        pairs = [axis for i in range(rank) for axis in (1 + i, 2 + rank + i)]
        order = [0, *pairs, 1 + rank, 2 + 2 * rank]
        moved = [axis for axis in order if shape_of(parts)[axis] != 1]
        if moved != sorted(moved):
            parts = rewriter.emit(relax.op.permute_dims(parts, order))
        whole = [n * s for n, s in zip(t.extents, t.strides, strict=True)]
        image = rewriter.emit(relax.op.reshape(parts, (batch, *whole, groups * out)))
    begins, ends = list(t.pads), [pad + n for pad, n in zip(t.pads, t.out, strict=True)]
    if not any(begins) and tuple(ends) == shape_of(image)[1:-1]:
        return image
    return rewriter.emit(relax.op.strided_slice(image, [*range(1, rank + 1)], begins, ends))

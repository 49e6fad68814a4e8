"""Transposed convolution as a plain one with more output channels (sub-pixel convolution).

With stride s, an output pixel at q = o + pad has phase r = q mod s and sees only the taps r, r + s, r + 2
s, ... of the kernel, at the input pixels q div s, q div s - 1, ... So the transposed convolution is a plain
one of T = ceil(k / s) taps with s (in two dimensions s * s) times the output channels, whose result is spread
over the image (Shi et al., Real-Time Single Image and Video Super-Resolution Using an Efficient Sub-Pixel
Convolutional Neural Network, 2016). Of a signal nothing has to be spread: phases lie behind each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
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

__all__ = ["convolution_of_transpose"]

#: Phases up to which each is a depthwise convolution of its own.
DEPTHWISE_PHASES = 16


@dataclass(frozen=True)
class _Transpose:
    """A transposed convolution; numbers for each spatial dimension.

    Attributes:
        weights: (IC, OC / groups, ...).
        first: the first position q div s that is computed.
        pads: pixels that are computed before the first one of the output.
        out: extents of the output.
    """

    weights: Array
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    first: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int
    out: tuple[int, ...]

    @classmethod
    def of(cls, call: relax.Call) -> _Transpose:
        """What ``call`` computes, with zeros between taps whose phases differ."""
        a, weights = call.attrs, numpy_of(call.args[1])
        rank = weights.ndim - 2
        strides, dilation = tuple(map(int, a.strides)), list(map(int, a.dilation))
        for i in range(rank):
            if strides[i] > 1 and dilation[i] > 1:
                shape = list(weights.shape)
                shape[i + 2] = (shape[i + 2] - 1) * dilation[i] + 1
                wide = np.zeros(shape, weights.dtype)
                wide[(slice(None),) * (i + 2) + (slice(None, None, dilation[i]),)] = weights
                weights, dilation[i] = wide, 1
        first, pads = [], []
        for k, s, d, pad in zip(weights.shape[2:], strides, dilation, a.padding[:rank], strict=True):
            first.append(min(int(pad) // s, (-(-k // s) - 1) * d))
            pads.append(int(pad) - first[-1] * s)
        slides = (strides, tuple(dilation), tuple(first), tuple(pads))
        return cls(weights, *slides, int(a.groups), shape_of(call)[2:])

    @property
    def taps(self) -> tuple[int, ...]:
        """Of each phase."""
        return tuple(-(-k // s) for k, s in zip(self.weights.shape[2:], self.strides, strict=True))

    @property
    def extents(self) -> tuple[int, ...]:
        """Positions q div s from the first to that of the last output pixel."""
        numbers = zip(self.pads, self.out, self.strides, strict=True)
        return tuple((pad + n - 1) // s + 1 for pad, n, s in numbers)

    @property
    def phases(self) -> int:
        """Output pixels that are made at one position."""
        return prod(self.strides)

    def plain_weights(self) -> Array:
        """(taps ..., IC / groups, groups * phases * OC / groups) of the plain convolution."""
        channels, out = self.weights.shape[:2]
        rank = len(self.strides)
        behind = [
            (0, t * s - k) for t, s, k in zip(self.taps, self.strides, self.weights.shape[2:], strict=True)
        ]
        split = [n for pair in zip(self.taps, self.strides, strict=True) for n in pair]
        padded = np.pad(self.weights, [(0, 0), (0, 0), *behind])
        padded = padded.reshape(self.groups, channels // self.groups, out, *split)
        flipped = padded[(slice(None),) * 3 + (slice(None, None, -1), slice(None)) * rank]
        taps, phases = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
        ordered = flipped.transpose(*taps, 1, 0, *phases, 2)
        return np.ascontiguousarray(ordered.reshape(*self.taps, channels // self.groups, -1))

    def one_phase(self, phase: Sequence[int]) -> _Transpose:
        """The same with the taps of one phase only; its positions are those of all."""
        steps = tuple(slice(r, None, s) for r, s in zip(phase, self.strides, strict=True))
        kept = self.weights[(slice(None), slice(None), *steps)]
        missing = [(0, t - n) for t, n in zip(self.taps, kept.shape[2:], strict=True)]
        ones = (1,) * len(self.strides)
        return replace(self, weights=np.pad(kept, [(0, 0), (0, 0), *missing]), strides=ones)


def convolution_of_transpose(rewriter: Rewriter, data: relax.Expr, call: relax.Call) -> OptionalExpr:
    """The transposed convolution ``call`` of ``data``, channels last; None where weights are not constant.

    Args:
        data: the input, channels last.
        call: ``relax.nn.conv1d_transpose``, ``conv2d_transpose`` or ``conv3d_transpose``, channels first.
    """
    rank = len(shape_of(call)) - 2
    if call.attrs.data_layout != DATA_LAYOUTS[rank][0] or not is_constant(call.args[1]):
        return None
    t = _Transpose.of(call)
    extents = shape_of(data)[1:-1]
    needed = [first + n for first, n in zip(t.first, t.extents, strict=True)]
    kept = [min(n, extent) for n, extent in zip(extents, needed, strict=True)]
    if kept != list(extents):
        data = rewriter.emit(relax.op.strided_slice(data, [*range(1, rank + 1)], [0] * rank, kept))
    behind = [n - k for n, k in zip(needed, kept, strict=True)]
    channels, out = t.groups, t.weights.shape[1]
    if t.weights.shape[0] == channels > 1 and out == 1 and 1 < t.phases <= DEPTHWISE_PHASES:
        parts = [
            _plain(rewriter, data, t.one_phase(phase).plain_weights(), t, behind)
            for phase in product(*map(range, t.strides))
        ]
        wide, groups, out = rewriter.emit(relax.op.concat(parts, axis=-1)), 1, channels
    else:
        wide, groups = _plain(rewriter, data, t.plain_weights(), t, behind), t.groups
    return _spread(rewriter, wide, t, (groups, out))


def _plain(
    rewriter: Rewriter, data: relax.Expr, weights: Array, t: _Transpose, behind: Sequence[int]
) -> relax.Expr:
    """A plain convolution that computes all positions, the input padded by ``behind`` at its end."""
    rank = len(t.strides)
    taps = zip(weights.shape[:rank], t.dilation, t.first, strict=True)
    before = [(n - 1) * d - first for n, d, first in taps]
    return rewriter.emit(
        getattr(relax.op.nn, f"conv{rank}d")(
            data,
            constant(weights),
            padding=[*before, *behind],
            dilation=list(t.dilation),
            groups=t.groups,
            data_layout=DATA_LAYOUTS[rank][1],
            kernel_layout=WEIGHT_LAYOUTS[rank][1],
        )
    )


def _spread(rewriter: Rewriter, wide: relax.Expr, t: _Transpose, channels: tuple[int, int]) -> relax.Expr:
    """(N, positions ..., groups * phases * channels of a group) to the output."""
    batch, rank = shape_of(wide)[0], len(t.strides)
    groups, out = channels
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

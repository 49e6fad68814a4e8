"""Convolutions without the taps that read nothing but padding.

A window that is larger than its image reads mostly padding: of the atrous convolutions of DeepLab, 3x3 taps
24 pixels apart over 14x14 pixels are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgepack.compiler.graph.rewrite import Array

__all__ = ["Axis", "trimmed"]


@dataclass(frozen=True)
class Axis:
    """A convolution along one dimension.

    Attributes:
        size: of the input, and ``outputs`` of the output.
        taps: of the kernel.
        stride, dilation: of the taps.
        before, after: padding.
    """

    size: int
    outputs: int
    taps: int
    stride: int
    dilation: int
    before: int
    after: int

    def inside(self, output: int) -> range:
        """The taps that read the image, not padding."""
        first = output * self.stride - self.before
        low = max(0, -(first // self.dilation))
        high = min(self.taps, (self.size - 1 - first) // self.dilation + 1)
        return range(low, max(low, high))

    def trimmed(self) -> tuple[Axis, int]:
        """Without taps at either end that read nothing but padding; and how many are gone before the first.
        As it is, where an output reads padding only."""
        reads = [self.inside(o) for o in range(self.outputs)]
        low, high = min(r.start for r in reads), max(r.stop for r in reads)
        before = self.before - low * self.dilation
        after = self.after - (self.taps - high) * self.dilation
        if min(len(r) for r in reads) == 0 or before < 0 or after < 0:
            return self, 0
        kept = Axis(self.size, self.outputs, high - low, self.stride, self.dilation, before, after)
        return kept, low


def trimmed(weights: Array, axes: Sequence[Axis]) -> tuple[Array, list[Axis]]:
    """Weights without the taps that read nothing but padding, and the dimensions of that convolution.

    Args:
        weights: of any rank, the spatial dimensions first.
    """
    kept = [axis.trimmed() for axis in axes]
    inside = tuple(slice(low, low + axis.taps) for axis, low in kept)
    left = weights[inside]
    if left.shape == weights.shape or not np.isfinite(weights).all():  # infinity times 0 is no number
        return weights, list(axes)
    return np.ascontiguousarray(left), [axis for axis, _ in kept]

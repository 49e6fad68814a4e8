"""Signals and volumes as images, so that one kernel serves convolutions and poolings of every rank.

All are channels last. A signal (N, L, C) is the image (N, 1, L, C), or (N, L, 1, C) where it is pooled over
windows too wide to be unrolled. A volume (N, D, H, W, C) is N * D images (N * D, H, W, C), or, where nothing
happens along height and width, N images (N, D, H * W, C) whose rows are what were images before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from edgepack.compiler.graph.fused_group import Anchor
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, mod

__all__ = ["WIDEST_UNROLLED", "As2d", "DepthWindow"]

#: Width of the widest window whose taps are unrolled; rows of a window may be a loop.
WIDEST_UNROLLED = 64


@dataclass(frozen=True)
class DepthWindow:
    """What a window does along the depth of a volume, whose planes are images.

    Attributes:
        size, out: planes of the input and of the output, of one volume.
        kernel, stride, dilation, pad: as along the other dimensions; ``pad`` is that in front.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    pad: int

    @property
    def padded(self) -> bool:
        """Whether any window reaches into padding."""
        last = (self.out - 1) * self.stride + (self.kernel - 1) * self.dilation - self.pad
        return self.pad > 0 or last >= self.size


@dataclass(frozen=True)
class As2d:
    """How the tensors of a convolution or pooling are images.

    Attributes:
        output: shape of the operator's output, (N, ..., C) with one to three spatial dimensions.
        flat: of a volume, whether height and width are one dimension, and of a signal, whether its length
            is a height.
        depth_window: of a volume that is not flat, and whose window has a depth.
    """

    output: tuple[int, ...]
    flat: bool = False
    depth_window: DepthWindow | None = None

    @classmethod
    def of(cls, anchor: Anchor, data: Sequence[int], output: Sequence[int], kernel: Sequence[int]) -> As2d:
        """
        Args:
            data: shape of the input.
            kernel: sizes of the window.
        """
        a = anchor.attributes
        if len(output) < 5:
            wide = "pool_size" in a and len(kernel) == 1 and kernel[0] > WIDEST_UNROLLED
            return cls(tuple(output), flat=wide)
        pads = [int(p) for p in a["padding"]]
        if set(kernel[1:]) | {int(s) for s in a["strides"][1:]} == {1} and not any(pads[1:3] + pads[4:]):
            return cls(tuple(output), flat=True)
        planes = DepthWindow(
            data[1], output[1], kernel[0], int(a["strides"][0]), int(a["dilation"][0]), pads[0]
        )
        alone = planes == DepthWindow(data[1], data[1], 1, 1, planes.dilation, 0)
        return cls(tuple(output), depth_window=None if alone else planes)

    def shape(self, tensor: Sequence[int]) -> tuple[int, int, int, int]:
        """The shape, as images, of a tensor of the operator (batch first, channels last)."""
        n, *spatial, c = tensor
        if self.flat:
            return n, spatial[0], prod(spatial[1:]), c
        height, width = self.pair(spatial, 1)
        return n * prod(spatial[:-2]), height, width, c

    def pair(self, values: Sequence[Any], nothing: int) -> tuple[int, int]:
        """What is given for each spatial dimension, for height and width of the images.

        Args:
            nothing: what it is along a dimension that the operator does not have.
        """
        if self.flat:
            return int(values[0]), nothing
        height, width = [nothing, *values][-2:]
        return int(height), int(width)

    def position(self, e: Emitter, at: Sequence[Any]) -> tuple[Any, ...]:
        """The position in the operator's output of (image, row, column, channel) in the images."""
        image, y, x, channel = at
        if len(self.output) == 3:
            return image, y if self.flat else x, channel
        if len(self.output) == 4:
            return image, y, x, channel
        _, depth, _, width, _ = self.output
        if self.flat:
            return image, y, e.let(div(x, width)), e.let(mod(x, width)), channel
        return e.let(div(image, depth)), e.let(mod(image, depth)), y, x, channel

"""How far the output of a convolution or pooling may reach into its input: where a kernel goes over the
pixels in order, the input's first rows are not read any more when the output's are written.

With in-place depthwise convolutions row by row, MCUNet's TinyEngine saves the second tensor of such layers
(Lin et al., "MCUNetV2", 2021); this is the same for windows, strides and channels of any number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.window import Window

__all__ = ["PixelOrder"]


@dataclass(frozen=True)
class PixelOrder:
    """A kernel that computes the output's pixels in the order in which they lie in memory.

    Attributes:
        image: (height, width) of the input.
        output: (height, width) of the output.
        pads: rows above and columns to the left of the image.
        strides: down and to the right.
        bytes_in, bytes_out: of a pixel.
    """

    image: tuple[int, int]
    output: tuple[int, int]
    pads: tuple[int, int]
    strides: tuple[int, int]
    bytes_in: int
    bytes_out: int

    @classmethod
    def of(cls, window: Window, itemsize_in: int, itemsize_out: int) -> PixelOrder:
        """Of a window over one image; ``itemsize``: bytes of an element."""
        g = window
        return cls(
            (g.height, g.width),
            (g.out_height, g.out_width),
            g.pads[:2],
            g.strides,
            g.channels * itemsize_in,
            g.out_channels * itemsize_out,
        )

    def first_read(self) -> Array:
        """For each pixel of the output, the first byte of the input that its window has."""
        down, right = (
            np.clip(np.arange(count) * stride - pad, 0, size - 1)
            for count, stride, pad, size in zip(self.output, self.strides, self.pads, self.image, strict=True)
        )
        return ((down[:, None] * self.image[1] + right[None, :]) * self.bytes_in).reshape(-1)

    def most(self, tile: int, *, again: bool = False) -> int:
        """:attr:`~edgepack.compiler.kernels.contract.Overlap.most` of a kernel that computes so many pixels
        at a time. The last tile begins so that it ends with the last pixel.

        Args:
            again: it has written parts of a tile's pixels before it has read all that they need; otherwise it
                reads all first.
        """
        windows = self.first_read()
        pixels = len(windows)
        size = min(tile, pixels)
        first = np.minimum(np.arange(-(-pixels // size)) * size, pixels - size)
        nothing = self.image[0] * self.image[1] * self.bytes_in + pixels * self.bytes_out
        later = np.append(windows, [nothing])  # what is read by the tiles behind
        still = np.minimum.accumulate(later[::-1])[::-1]
        reads = still[first if again else np.append(first[1:], pixels)]
        return int((reads - (first + size) * self.bytes_out).min())

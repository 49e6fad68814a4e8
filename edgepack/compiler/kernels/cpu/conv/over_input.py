"""How far the output of a convolution or pooling may reach into its input: where a kernel goes over the
pixels in order, the input's first rows are not read any more when the output's are written.

With in-place depthwise convolutions row by row, MCUNet's TinyEngine saves the second tensor of such layers
(Lin et al., "MCUNetV2", 2021); this is the same for windows, strides and channels of any number.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from edgepack.compiler.kernels.contract import Array

__all__ = ["PixelOrder", "most_distance"]


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

    def first_read(self) -> Array:
        """For each pixel of the output, the first byte of the input that its window has."""
        down, right = (
            np.clip(np.arange(count) * stride - pad, 0, size - 1)
            for count, stride, pad, size in zip(self.output, self.strides, self.pads, self.image, strict=True)
        )
        return ((down[:, None] * self.image[1] + right[None, :]) * self.bytes_in).reshape(-1)

    def most(self, tile: int) -> int:
        """:attr:`~edgepack.compiler.kernels.contract.Overlap.most` of a kernel that reads all that ``tile``
        pixels need before it writes any of them; 0: that writes parts of a pixel before it has read all.

        The last tile begins so that it ends with the last pixel.
        """
        reads = self.first_read()
        pixels = len(reads)
        if not tile:
            return most_distance(reads, np.arange(1, pixels + 1) * self.bytes_out)
        size = min(tile, pixels)
        first = np.minimum(np.arange(-(-pixels // size)) * size, pixels - size)
        nothing = self.image[0] * self.image[1] * self.bytes_in + pixels * self.bytes_out
        later = np.append(reads, [nothing])  # what is read by the tiles behind
        begins = np.minimum.accumulate(later[::-1])[::-1][np.append(first[1:], pixels)]
        return most_distance(begins, (first + size) * self.bytes_out)


def most_distance(reads: Array, written: Array) -> int:
    """Bytes from the input's beginning to the output's, at most.

    Args:
        reads: for each moment, the first byte of the input that is read at it; later ones may read before.
        written: and how many bytes of the output are written then.
    """
    still = np.minimum.accumulate(reads[::-1])[::-1]
    return int((still - written).min())

"""Windows that slide over images: their geometry, and which of their taps lie inside."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.compiler.kernels.cpu.analysis.as_2d import DepthWindow
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.indices import balanced_split, run_lengths

__all__ = ["Strips", "Taps", "Window"]

#: Which taps of each pixel of a strip lie inside the image, along the width.
Taps = tuple[tuple[bool, ...], ...]


@dataclass(frozen=True)
class Strips:
    """Neighbouring strips of columns whose pixels have the same taps.

    Attributes:
        first: the first column, and ``count`` how many strips there are, each as wide as ``taps`` is long.
    """

    first: int
    count: int
    taps: Taps


@dataclass(frozen=True)
class Window:
    """Geometry of windows that slide over images, NHWC; pairs are (height, width)."""

    batch: int
    height: int
    width: int
    channels: int
    out_height: int
    out_width: int
    out_channels: int
    size: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pads: tuple[int, int, int, int]  # top, left, bottom, right
    depth_window: DepthWindow | None = None

    @classmethod
    def of(cls, conv: Conv2d) -> Window:
        """The window of a convolution."""
        return cls(
            conv.batch,
            conv.height,
            conv.width,
            conv.in_channels,
            conv.out_height,
            conv.out_width,
            conv.out_channels,
            conv.kernel,
            conv.strides,
            conv.dilation,
            (conv.pad_top, conv.pad_left, conv.pad_bottom, conv.pad_right),
            conv.depth_window,
        )

    @property
    def taps(self) -> int:
        """Elements of the window."""
        return self.size[0] * self.size[1] * (self.depth_window.kernel if self.depth_window else 1)

    @property
    def input_elements(self) -> int:
        """Elements of all images of the input."""
        images = (
            self.batch // self.depth_window.out * self.depth_window.size if self.depth_window else self.batch
        )
        return images * self.height * self.width * self.channels

    @property
    def down(self) -> tuple[int, int, int]:
        """Rows that a window reaches over, how far the next one is below, and rows above the image."""
        return (self.size[0] - 1) * self.dilation[0] + 1, self.strides[0], self.pads[0]

    def reach(self, columns: int) -> int:
        """Columns of the input that the windows of so many neighbouring pixels reach over."""
        return (columns - 1) * self.strides[1] + (self.size[1] - 1) * self.dilation[1] + 1

    def strips(self, columns: int) -> list[Strips]:
        """The output's columns in strips of at most so many, in order."""
        strips: list[tuple[int, int]] = []
        at = 0
        for size, count in balanced_split(self.out_width, columns):
            strips += [(at + i * size, size) for i in range(count)]
            at += size * count
        runs = run_lengths(len(strips), lambda i: self._inside(*strips[i]))
        return [Strips(strips[first][0], last - first, taps) for first, last, taps in runs]

    def _inside(self, x: int, size: int) -> Taps:
        return tuple(
            tuple(
                0 <= (x + i) * self.strides[1] - self.pads[1] + k * self.dilation[1] < self.width
                for k in range(self.size[1])
            )
            for i in range(size)
        )

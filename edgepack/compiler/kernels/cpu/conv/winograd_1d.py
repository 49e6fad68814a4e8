"""Tiles of a Winograd convolution that is filtered along one side: where they lie, and in what order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgepack.compiler.graph.taps import Axis
from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_filters import FILTERS, LineFilter
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import ordered
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod, unravel
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel

__all__ = ["Winograd1D", "all_1d"]


def all_1d(conv: Conv2d) -> list[Winograd1D]:
    """The tiles that a convolution may be cut into, by side and filter."""
    if conv.depth_window:
        return []
    found = []
    for axis in (1, 0):
        taps = conv.kernel[axis]
        if taps > 1 and conv.strides[axis] == 1:
            found += [Winograd1D(conv, axis, one) for one in FILTERS.get(taps, FILTERS[4])]
    return found


@dataclass(frozen=True)
class Winograd1D:
    """Tiles of a convolution, each of m outputs along ``axis``.

    Lines lie along ``axis``, side by side ``across``; each phase of a dilated one is a line. Tiles are
    numbered (image, tile of the line, phase, line) and, where there are several filters in a row, (tile of
    the line, image, phase, line), which brings the next tile of all lines to the same distance. Input
    tiles are what V has: with those that only later filters need, and the lines that only other rows of the
    window need.
    """

    conv: Conv2d
    axis: int
    filter: LineFilter

    @property
    def rule(self) -> str:
        return f"conv2d.winograd1x{self.m}"

    @property
    def key(self) -> str:
        """Names the order of the weights."""
        return f"line{self.axis}:{self.m}x{self.filter.r}"

    @property
    def m(self) -> int:
        """Outputs of a tile."""
        return self.filter.m

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and columns of a tile's outputs."""
        return (1, self.m) if self.axis == 1 else (self.m, 1)

    @property
    def image(self) -> Conv2d:
        """The convolution of images as they lie in memory."""
        return self.conv

    @property
    def image_channels(self) -> int:
        """Channels of an image in memory."""
        return self.conv.in_channels

    @property
    def channels(self) -> int:
        """Elements of V of an input tile at a position: channels of a group."""
        return self.conv.group_in

    @property
    def positions(self) -> int:
        """Products of each pair of an input and an output channel."""
        return self.filter.a

    @property
    def depth(self) -> int:
        """Length of the reduction: input channels of a group, of all filters."""
        return self.across.taps * self.filters * self.conv.group_in

    # Sides ------------------------------------------------------------------------------------------------

    @property
    def along(self) -> Axis:
        return self._side(self.axis)

    @property
    def across(self) -> Axis:
        return self._side(1 - self.axis)

    def _side(self, axis: int) -> Axis:
        c = self.conv
        size, outputs = ((c.height, c.out_height), (c.width, c.out_width))[axis]
        pads = ((c.pad_top, c.pad_bottom), (c.pad_left, c.pad_right))[axis]
        return Axis(size, outputs, c.kernel[axis], c.strides[axis], c.dilation[axis], *pads)

    def pixels(self, along: int, across: int) -> int:
        """Pixels of the input, in memory, between two that are so far from each other."""
        return along + across * self.conv.width if self.axis == 1 else along * self.conv.width + across

    def placed(self, along: Any, across: Any) -> tuple[Any, Any]:
        """(row, column) of a pixel."""
        return (across, along) if self.axis == 1 else (along, across)

    # Tiles ------------------------------------------------------------------------------------------------

    @property
    def filters(self) -> int:
        """Filters of a row of the window."""
        return -(-self.along.taps // self.filter.r)

    @property
    def tiles(self) -> int:
        """Tiles of each phase of a line."""
        return -(-self.along.outputs // (self.m * self.along.dilation))

    @property
    def lines(self) -> int:
        """Lines of V side by side: those of the output, and of other rows of the window."""
        across = self.across
        return (across.outputs - 1) * across.stride + (across.taps - 1) * across.dilation + 1

    @property
    def run_length(self) -> int:
        """Tiles side by side whose input tiles are equally far from each other; 0 where those of all are."""
        across = self.across
        return 0 if across.taps == across.stride == 1 and not self._padded_across() else across.outputs

    @property
    def input_stride(self) -> int:
        """Input tiles from that of one tile to that of the next."""
        return self.across.stride

    @property
    def count(self) -> int:
        """Tiles of the output."""
        return self.conv.batch * self.tiles * self.along.dilation * self.across.outputs

    @property
    def input_tiles(self) -> int:
        """Input tiles of all tiles."""
        return self.conv.batch * (self.tiles + self.filters - 1) * self.along.dilation * self.lines

    @property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """(number, input tiles from one to the next) of the rows of the window, and of a row's filters."""
        apart = self.conv.batch * self.along.dilation * self.lines
        return (self.across.taps, self.across.dilation), (self.filters, apart)

    @property
    def more_input_tiles(self) -> int:
        """Input tiles behind those of a run of tiles that its last row and filter read."""
        return sum((number - 1) * apart for number, apart in self.taps)

    def input_tile(self, tile: Any) -> Any:
        """The first of the input tiles that a tile of the output needs."""
        if not self.run_length:
            return tile
        return div(tile, self.run_length) * self.lines + mod(tile, self.run_length) * self.input_stride

    def most_input_tiles(self, tiles: int) -> int:
        """Input tiles of a run of ``tiles``, and behind it, at most."""
        run = tiles
        if self.run_length:
            between = max(0, self.lines - self.run_length * self.input_stride)
            run = (tiles - 1) * self.input_stride + 1 + -(-(tiles - 1) // self.run_length) * between
        return min(run + self.more_input_tiles, self.input_tiles)

    def position(self, number: Any, lines: int, more: int = 0) -> tuple[Any, Any, Any]:
        """(image, first output along the line, line) of a tile of the output or of the input.

        Args:
            lines: side by side.
            more: tiles of a line that only later filters need.
        """
        batch, tiles, phases = self.conv.batch, self.tiles + more, self.along.dilation
        if self.filters > 1:
            tile, image, phase, line = unravel(number, (tiles, batch, phases, lines))
        else:
            image, tile, phase, line = unravel(number, (batch, tiles, phases, lines))
        return index(image), tile * (self.m * phases) + phase, index(line)

    def by_need(self) -> None:
        """None: all tiles need all positions."""

    # Borders and weights ----------------------------------------------------------------------------------

    @property
    def zeros(self) -> int:
        """Zeros behind the weights: a pixel beside the image."""
        along = self.along
        last = (self.tiles + self.filters - 1) * self.m * along.dilation - 1 - along.before
        last += (self.filter.r - 1) * along.dilation
        inside = along.before == 0 and last < along.size and not self._padded_across()
        return 0 if inside else self.conv.in_channels

    def _padded_across(self) -> bool:
        return self.across.before > 0 or self.lines > self.across.size

    def pack(self, weights: Array, columns: tuple[int, int], micro: MicroKernel) -> Array:
        """HWIO to U, whose IC are [rows of the window][filters][IC], see :func:`ordered`; in float64."""
        conv, r, across = self.conv, self.filter.r, self.across.taps
        taps = weights if self.axis == 1 else weights.transpose(1, 0, 2, 3)
        missing = self.filters * r - self.along.taps
        taps = np.pad(taps.astype(np.float64), ((0, 0), (0, missing), (0, 0), (0, 0)))
        parts = taps.reshape(across, self.filters, r, conv.group_in, conv.out_channels)
        u = np.einsum("kr,yprco->kypco", self.filter.weights, parts).astype(np.float32)
        u = u.reshape(self.positions, self.depth, -1)
        return ordered(u, columns, self.zeros, conv.groups)

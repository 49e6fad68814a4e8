"""Lines of tiles: where the tiles of a convolution lie that is filtered along one side, and in what order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from edgepack.compiler.graph.taps import Axis
from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_filters import FILTERS, LineFilter
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import in_blocks
from edgepack.compiler.kernels.cpu.emit.emitter import div, index, mod, unravel

__all__ = ["Lines", "all_lines"]


def all_lines(conv: Conv2d) -> list[Lines]:
    """The tiles that a convolution may be cut into, by side and filter."""
    if conv.planes:
        return []
    found = []
    for axis in (1, 0):
        taps = conv.kernel[axis]
        if taps > 1 and conv.strides[axis] == 1:
            found += [Lines(conv, axis, one) for one in FILTERS.get(taps, FILTERS[4])]
    return found


@dataclass(frozen=True)
class Lines:
    """Tiles of a convolution, each of m outputs along ``axis``.

    Lines lie along ``axis``, side by side ``across``; each phase of a dilated one is a line. Tiles are
    numbered (image, tile of the line, phase, line) and, where there are several filters in a row, (tile of
    the line, image, phase, line), which brings the next tile of all lines to the same distance. Slots are
    tiles as V has them: with those that only later filters need, and the lines that only other rows of the
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
    def row(self) -> int:
        """Elements of V of a slot at a position: channels of a group."""
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

    # Tiles and slots --------------------------------------------------------------------------------------

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
    def segment(self) -> int:
        """Tiles whose slots are equally far from each other, ``step``: those side by side, or 0 for all."""
        across = self.across
        return 0 if across.taps == across.stride == 1 and not self._padded_across() else across.outputs

    @property
    def step(self) -> int:
        """Slots from one tile to the next."""
        return self.across.stride

    @property
    def count(self) -> int:
        """Tiles of the output."""
        return self.conv.batch * self.tiles * self.along.dilation * self.across.outputs

    @property
    def slots(self) -> int:
        """Slots of V for all tiles."""
        return self.conv.batch * (self.tiles + self.filters - 1) * self.along.dilation * self.lines

    @property
    def parts(self) -> tuple[tuple[int, int], ...]:
        """(number, slots from one to the next) of the rows of the window, and of a row's filters."""
        apart = self.conv.batch * self.along.dilation * self.lines
        return (self.across.taps, self.across.dilation), (self.filters, apart)

    @property
    def more_slots(self) -> int:
        """Slots behind a run of tiles that their last row and filter need."""
        return sum((number - 1) * apart for number, apart in self.parts)

    def slot(self, tile: Any) -> Any:
        """The slot of a tile."""
        if not self.segment:
            return tile
        return div(tile, self.segment) * self.lines + mod(tile, self.segment) * self.step

    def most_slots(self, tiles: int) -> int:
        """Slots of a run of ``tiles``, and behind it, at most."""
        run = tiles
        if self.segment:
            between = max(0, self.lines - self.segment * self.step)
            run = (tiles - 1) * self.step + 1 + -(-(tiles - 1) // self.segment) * between
        return min(run + self.more_slots, self.slots)

    def position(self, number: Any, lines: int, more: int = 0) -> tuple[Any, Any, Any]:
        """(image, first output along the line, line) of a tile or slot.

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

    def pack(self, weights: Array, columns: int) -> Array:
        """HWIO to [block of columns][a][rows of the window][filters][IC][columns], then zeros; in float64."""
        conv, r, across = self.conv, self.filter.r, self.across.taps
        taps = weights if self.axis == 1 else weights.transpose(1, 0, 2, 3)
        missing = self.filters * r - self.along.taps
        taps = np.pad(taps.astype(np.float64), ((0, 0), (0, missing), (0, 0), (0, 0)))
        parts = taps.reshape(across, self.filters, r, conv.group_in, conv.out_channels)
        u = np.einsum("kr,yprco->kypco", self.filter.weights, parts).astype(np.float32)
        return in_blocks(u.reshape(self.positions, self.depth, -1), columns, self.zeros, conv.groups)

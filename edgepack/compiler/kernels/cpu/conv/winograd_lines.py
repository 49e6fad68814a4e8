"""Winograd's minimal filtering along one side of an image: convolutions of signals, and by 1xK and Kx1.

A tile is m outputs of a line and the a inputs that they need, ``dilation`` apart from each other: the phases
of a dilated line are lines of their own, nothing is copied. More than five taps are several filters of four
(:data:`edgepack.compiler.kernels.cpu.conv.winograd_filters.FILTERS`), whose products are summed before they
are transformed back. F(4, 4) steps by as many pixels as it has taps, so that the transformed inputs of a
filter are those that the one before it has in the next tile: they are computed once, and only the place where
the product begins differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.winograd_filters import FILTERS, LineFilter
from edgepack.compiler.kernels.cpu.conv.winograd_tiles import LazyVectors, Slot, each_vector
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import Transform, in_blocks
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index, unravel

__all__ = ["InputLines", "Lines", "OutputLines", "line_axis", "line_filters"]


def line_axis(conv: Conv2d) -> int | None:
    """The side, 0 for height or 1 for width, along which all taps of a convolution of stride 1 lie."""
    sides = [side for side in (0, 1) if conv.kernel[side] > 1]
    if len(sides) != 1 or conv.strides != (1, 1) or conv.planes or conv.groups != 1:
        return None
    across = (conv.pad_left, conv.pad_right) if sides[0] == 0 else (conv.pad_top, conv.pad_bottom)
    return None if any(across) else sides[0]


def line_filters(taps: int) -> tuple[LineFilter, ...]:
    """The filters that ``taps`` are cut into, of which there is a choice."""
    return FILTERS.get(taps, FILTERS[4])


@dataclass(frozen=True)
class Lines:
    """Tiles of a convolution whose taps lie along ``axis``.

    Slots are the tiles with those that only later filters need, numbered (tile of the line, line) where there
    are several filters, so that the next one's are at the same distance for all, (line, tile) elsewhere. A
    line is one of an image's rows or columns, and one phase of it.
    """

    conv: Conv2d
    axis: int
    filter: LineFilter

    @property
    def rule(self) -> str:
        return f"conv2d.winograd1x{self.m}"

    @property
    def m(self) -> int:
        """Outputs of a tile."""
        return self.filter.m

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
        """Elements of V of a slot at a position."""
        return self.conv.in_channels

    @property
    def positions(self) -> int:
        """Products of each pair of an input and an output channel."""
        return self.filter.a

    @property
    def parts(self) -> int:
        """Filters."""
        return -(-self.conv.kernel[self.axis] // self.filter.r)

    @property
    def depth(self) -> int:
        """Length of the reduction: input channels of all filters."""
        return self.parts * self.conv.in_channels

    @property
    def dilation(self) -> int:
        return self.conv.dilation[self.axis]

    @property
    def size(self) -> int:
        """Pixels of a line of the input."""
        return (self.conv.height, self.conv.width)[self.axis]

    @property
    def outputs(self) -> int:
        """Pixels of a line of the output."""
        return (self.conv.out_height, self.conv.out_width)[self.axis]

    @property
    def before(self) -> int:
        """Padding before a line."""
        return (self.conv.pad_top, self.conv.pad_left)[self.axis]

    @property
    def inner(self) -> int:
        """Pixels from one of a line to the next: lines lie side by side along the height."""
        return self.conv.width if self.axis == 0 else 1

    @property
    def outer(self) -> int:
        """Lines, but for those that lie side by side."""
        return self.conv.batch * (self.conv.height if self.axis == 1 else 1)

    @property
    def tiles(self) -> int:
        """Tiles of each phase of a line."""
        return -(-self.outputs // (self.m * self.dilation))

    @property
    def lines(self) -> int:
        """Phases of all lines."""
        return self.outer * self.dilation * self.inner

    @property
    def count(self) -> int:
        """Tiles of the output."""
        return self.lines * self.tiles

    @property
    def part_slots(self) -> int:
        """Slots from the inputs of a filter to those of the next one."""
        return self.lines if self.parts > 1 else 0

    @property
    def more_slots(self) -> int:
        """Slots behind a run of tiles that their last filter needs."""
        return (self.parts - 1) * self.part_slots

    @property
    def zeros(self) -> int:
        """Zeros behind the weights: a pixel beside the image."""
        return 0 if self._all_inside() else self.conv.in_channels

    @property
    def key(self) -> str:
        """Names the order of the weights."""
        return f"line{self.m}x{self.filter.r}"

    def _all_inside(self) -> bool:
        last = (self.tiles + self.parts - 1) * self.m * self.dilation - 1 - self.before
        last += (self.filter.r - 1) * self.dilation
        return self.before == 0 and last < self.size

    def position(self, slot: Any) -> tuple[Any, Any, Any]:
        """(number among outer lines, first output along the line, number among inner lines) of a slot."""
        if self.parts > 1:
            dims = (self.tiles + self.parts - 1, self.outer, self.dilation, self.inner)
            tile, outer, phase, inner = unravel(slot, dims)
        else:
            outer, tile, phase, inner = unravel(slot, (self.outer, self.tiles, self.dilation, self.inner))
        return outer, tile * (self.m * self.dilation) + phase, inner

    def pack(self, weights: Array, columns: int) -> Array:
        """HWIO to [block of columns][a][filters * IC][columns], then zeros; computed in float64."""
        conv, r = self.conv, self.filter.r
        taps = weights.reshape(-1, conv.in_channels, conv.out_channels).astype(np.float64)
        taps = np.concatenate([taps, np.zeros((self.parts * r - len(taps), *taps.shape[1:]))])
        parts = taps.reshape(self.parts, r, conv.in_channels, conv.out_channels)
        u = np.einsum("kr,prco->kpco", self.filter.weights, parts).astype(np.float32)
        return in_blocks(u.reshape(self.positions, self.depth, -1), columns, self.zeros)


class InputLines:
    """Reads tiles of the input ``x`` and writes their transforms to V, [a][slots][IC].

    Args:
        zeros, zero_at: buffer and element at which zeros begin that stand for a pixel in the padding.
    """

    def __init__(self, e: Emitter, g: Lines, x: Any, zeros: Any, zero_at: int) -> None:
        self.e, self.g, self.x, self.zeros, self.zero_at = e, g, x, zeros, zero_at

    def read(self, v: Any, tile: Any, slot: Any, slots: int) -> None:
        """V of one slot."""
        self.part(v, tile, (slot, slots), 0, (0, self.g.image_channels))

    def part(self, v: Any, tile: Any, where: tuple[Any, int], plane: Any, channels: tuple[Any, int]) -> None:
        """V of some channels of one slot.

        Args:
            where: slot of V, and how many there are.
            plane: 0.
            channels: (first, how many).
        """
        e, g = self.e, self.g
        (start, count), (slot, slots), depth = channels, where, g.image_channels
        outer, first, inner = g.position(tile)
        at = e.let(first - g.before)
        base = e.let(((outer * g.size + at) * g.inner + inner) * depth + start)
        target = Slot(v, e.let(slot * depth + start), slots * depth)
        step = g.dilation * g.inner * depth

        def transform(places: Callable[[Any], list[tuple[Any, Any]]]) -> None:
            each_vector(e, count, lambda c, lanes: self._vector(target, c, places(c), lanes))

        def inside() -> None:
            view = e.rebased(self.x, base, (g.positions - 1) * step + count, "line")
            transform(lambda c: [(view, c + j * step) for j in range(g.positions)])

        def cut() -> None:
            pixels = []
            for j in range(g.positions):
                pixel = e.let(at + j * g.dilation)
                valid = tirx.all(pixel >= 0, pixel < g.size)
                pixels.append(e.either(valid, (self.x, base + j * step), (self.zeros, self.zero_at), count))
            transform(lambda c: [(pixel, c) for pixel in pixels])

        if not g.zeros:
            inside()
            return
        e.branch(tirx.all(at >= 0, at + (g.positions - 1) * g.dilation < g.size), inside, cut)

    def _vector(self, target: Slot, channel: Any, places: Sequence[tuple[Any, Any]], lanes: int) -> None:
        e = self.e
        taps = LazyVectors(e, places, lanes)
        for j, value in enumerate(self.g.filter.transform_inputs(Transform(e, lanes), taps)):
            e.vstore(target.buffer, target.at + channel + j * target.pitch, value, lanes)


@dataclass(frozen=True)
class _Line:
    """A tile of the output.

    Attributes:
        y: the output from its first pixel and channel on.
        outer, first, inner, channel: that pixel, see :meth:`Lines.position`, and channel.
        residuals: parameters of the epilogue that have the output's shape, from the same place on.
    """

    y: Any
    outer: Any
    first: Any
    inner: Any
    channel: Any
    residuals: dict[int, Any]


class OutputLines:
    """Reads products M, [a][slots][columns], and writes tiles of the output, with the epilogue.

    Args:
        y: the output, and ``extra`` what the epilogue reads, by parameter.
        columns: width of the register tile, and of a row of M.
    """

    def __init__(
        self, e: Emitter, g: Lines, fused: AnchoredGroup, y: Any, extra: dict[int, Any], columns: int
    ) -> None:
        self.e, self.g, self.fused, self.y, self.extra, self.columns = e, g, fused, y, extra, columns

    def write(self, products: Any, column: Any, width: int, tile: Any, slot: Any, slots: int) -> None:
        """The output of one tile, ``width`` channels from ``column`` on."""
        e, g = self.e, self.g
        source = Slot(products, e.let(slot * self.columns), slots * self.columns)
        at = self._line(tile, column, width)

        def part(whole: bool) -> None:
            each_vector(e, width, lambda c, lanes: self._vector(source, at, c, lanes, whole=whole))

        if g.outputs % (g.m * g.dilation) == 0:
            part(whole=True)
        else:
            end = at.first + (g.m - 1) * g.dilation
            e.branch(end < g.outputs, lambda: part(whole=True), lambda: part(whole=False))

    def _line(self, tile: Any, column: Any, width: int) -> _Line:
        """``width`` channels from ``column`` on of a tile."""
        e, g, conv, pitch = self.e, self.g, self.g.conv, self.fused.pitch
        outer, first, inner = (e.let(index(i)) for i in g.position(tile))
        pixel = e.let((outer * g.outputs + first) * g.inner + inner)
        pixels = (g.m - 1) * g.dilation * g.inner
        channel = e.let(pixel * conv.out_channels + column)
        size = pixels * conv.out_channels + width
        residuals = {p: e.rebased(self.extra[p], channel, size) for p in self.fused.epilogue.dense}
        y = e.rebased(self.y, e.let(pixel * pitch + column), pixels * pitch + width)
        return _Line(y, outer, first, inner, column, residuals)

    def _vector(self, source: Slot, at: _Line, channel: Any, lanes: int, *, whole: bool) -> None:
        """A vector of channels of all pixels of a tile, or of those that the line has."""
        e, g = self.e, self.g
        places = [(source.buffer, source.at + channel + j * source.pitch) for j in range(g.positions)]
        x = LazyVectors(e, places, lanes)
        for i, value in enumerate(g.filter.transform_outputs(Transform(e, lanes), x)):
            if whole:
                self._store(at, (channel, i), value, lanes)
            else:
                store = partial(self._store, at, (channel, i), value, lanes)
                e.branch(at.first + i * g.dilation < g.outputs, store)

    def _store(self, at: _Line, where: tuple[Any, int], value: Any, lanes: int) -> None:
        """Applies the epilogue to channels of one pixel, ``where`` (channel, pixel of the tile)."""
        e, g, conv = self.e, self.g, self.g.conv
        channel, i = where
        along, behind = at.first + i * g.dilation, i * g.dilation * g.inner
        position = (at.outer, along, at.inner, at.channel + channel)
        if g.axis == 1:
            image, row = unravel(at.outer, (conv.batch, conv.out_height))
            position = (index(image), index(row), along, at.channel + channel)
        here = {p: (view, behind * conv.out_channels + channel) for p, view in at.residuals.items()}
        stored = self.fused.stored(e, value, position, lanes, self.extra, here)
        e.vstore(at.y, behind * self.fused.pitch + channel, stored, lanes)

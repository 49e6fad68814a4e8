"""Winograd's minimal filtering along one side of an image: signals, and windows of any size.

A tile is m outputs of a line and the a inputs that they need, ``dilation`` apart from each other: the phases
of a dilated line are lines of their own, nothing is copied. More than five taps are several filters of four
(:data:`edgepack.compiler.kernels.cpu.conv.winograd_filters.FILTERS`), and a window of several rows has
filters for each of them; their products are summed before they are transformed back. F(4, 4) steps by as many
pixels as it has taps, so that the transformed inputs of a filter are those that the one before it has in the
next tile; those of a row are the ones that the row before it has in the next line. They are computed once,
and only the place where the product begins differs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.winograd_1d import Winograd1D
from edgepack.compiler.kernels.cpu.conv.winograd_tiles import LazyVectors, TransformedTile, each_vector
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import Transform
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter

__all__ = ["Input1D", "Output1D"]


class Input1D:
    """Reads tiles of the input ``x`` and writes their transforms to V, [a][tiles][IC of a group].

    Args:
        zeros, zero_at: buffer and element at which zeros begin that stand for a pixel in the padding.
    """

    def __init__(self, e: Emitter, g: Winograd1D, x: Any, zeros: Any, zero_at: int) -> None:
        self.e, self.g, self.x, self.zeros, self.zero_at = e, g, x, zeros, zero_at

    def read(self, v: Any, tile: Any, number: Any, tiles: int, group: Any) -> None:
        """V of one input tile and group of channels."""
        channels = self.g.conv.group_in
        self.part(v, tile, (number * self.g.channels, tiles), 0, (group * channels, channels))

    def part(self, v: Any, tile: Any, where: tuple[Any, int], plane: Any, channels: tuple[Any, int]) -> None:
        """V of some channels of one input tile.

        Args:
            where: element of V at which they begin, and how many input tiles V has.
            plane: 0.
            channels: (first, how many).
        """
        e, g = self.e, self.g
        (start, count), (place, tiles), depth = channels, where, g.image_channels
        along, across = g.along, g.across
        image, first, line = g.position(tile, g.lines, g.filters - 1)
        at, line = e.let(first - along.before), e.let(line - across.before)
        row, column = g.placed(at, line)
        base = e.let(((image * g.conv.height + row) * g.conv.width + column) * depth + start)
        target = TransformedTile(v, e.let(place), tiles * g.channels)
        step = g.pixels(along.dilation, 0) * depth
        there = [line >= 0, line < across.size] if g.run_length else []

        def transform(places: Callable[[Any], list[tuple[Any, Any]]]) -> None:
            each_vector(e, count, lambda c, lanes: self._vector(target, c, places(c), lanes))

        def inside() -> None:
            view = e.rebased(self.x, base, (g.positions - 1) * step + count, "line")
            transform(lambda c: [(view, c + j * step) for j in range(g.positions)])

        def cut() -> None:
            pixels = []
            for j in range(g.positions):
                pixel = e.let(at + j * along.dilation)
                valid = tirx.all(pixel >= 0, pixel < along.size, *there)
                pixels.append(e.either(valid, (self.x, base + j * step), (self.zeros, self.zero_at), count))
            transform(lambda c: [(pixel, c) for pixel in pixels])

        if not g.zeros:
            inside()
            return
        end = at + (g.positions - 1) * along.dilation
        e.branch(tirx.all(at >= 0, end < along.size, *there), inside, cut)

    def _vector(
        self, target: TransformedTile, channel: Any, places: Sequence[tuple[Any, Any]], lanes: int
    ) -> None:
        e = self.e
        t = Transform(e, lanes)
        for j, value in enumerate(self.g.filter.transform_inputs(t, LazyVectors(t, places))):
            e.vstore(target.buffer, target.at + channel + j * target.row_stride, value, lanes)


@dataclass(frozen=True)
class _Line:
    """A tile of the output.

    Attributes:
        y: the output from its first pixel and channel on.
        image, first, line, channel: that pixel, see :meth:`Winograd1D.position`, and channel.
        residuals: parameters of the epilogue that have the output's shape, from the same place on.
    """

    y: Any
    image: Any
    first: Any
    line: Any
    channel: Any
    residuals: dict[int, Any]


class Output1D:
    """Reads products M, [a][tiles][columns], and writes tiles of the output, with the epilogue.

    Args:
        y: the output, and ``extra`` what the epilogue reads, by parameter.
        columns: width of the register tile, and of a row of M.
    """

    def __init__(
        self, e: Emitter, g: Winograd1D, fused: AnchoredGroup, y: Any, extra: dict[int, Any], columns: int
    ) -> None:
        self.e, self.g, self.fused, self.y, self.extra, self.columns = e, g, fused, y, extra, columns

    def write(self, products: Any, column: Any, width: int, tile: Any, number: Any, tiles: int) -> None:
        """The output of one tile, ``width`` channels from ``column`` on."""
        e, g = self.e, self.g
        source = TransformedTile(products, e.let(number * self.columns), tiles * self.columns)
        at = self._line(tile, column, width)

        def part(whole: bool) -> None:
            each_vector(e, width, lambda c, lanes: self._vector(source, at, c, lanes, whole=whole))

        along = g.along
        if along.outputs % (g.m * along.dilation) == 0:
            part(whole=True)
        else:
            end = at.first + (g.m - 1) * along.dilation
            e.branch(end < along.outputs, lambda: part(whole=True), lambda: part(whole=False))

    def _line(self, tile: Any, column: Any, width: int) -> _Line:
        """``width`` channels from ``column`` on of a tile."""
        e, g, conv, row_stride = self.e, self.g, self.g.conv, self.fused.row_stride
        image, first, line = (e.let(i) for i in g.position(tile, g.across.outputs))
        row, across = g.placed(first, line)
        pixel = e.let((image * conv.out_height + row) * conv.out_width + across)
        pixels = (g.m - 1) * self._apart()
        channel = e.let(pixel * conv.out_channels + column)
        size = pixels * conv.out_channels + width
        residuals = {p: e.rebased(self.extra[p], channel, size) for p in self.fused.epilogue.dense}
        y = e.rebased(self.y, e.let(pixel * row_stride + column), pixels * row_stride + width)
        return _Line(y, image, first, line, column, residuals)

    def _apart(self) -> int:
        """Pixels of the output, in memory, between two of a tile."""
        return self.g.along.dilation * (1 if self.g.axis == 1 else self.g.conv.out_width)

    def _vector(self, source: TransformedTile, at: _Line, channel: Any, lanes: int, *, whole: bool) -> None:
        """A vector of channels of all pixels of a tile, or of those that the line has."""
        e, g = self.e, self.g
        places = [(source.buffer, source.at + channel + j * source.row_stride) for j in range(g.positions)]
        t = Transform(e, lanes)
        for i, value in enumerate(g.filter.transform_outputs(t, LazyVectors(t, places))):
            if whole:
                self._store(at, (channel, i), value, lanes)
            else:
                store = partial(self._store, at, (channel, i), value, lanes)
                e.branch(at.first + i * g.along.dilation < g.along.outputs, store)

    def _store(self, at: _Line, where: tuple[Any, int], value: Any, lanes: int) -> None:
        """Applies the epilogue to channels of one pixel, ``where`` (channel, pixel of the tile)."""
        e, g, conv = self.e, self.g, self.g.conv
        channel, i = where
        behind = i * self._apart()
        row, column = g.placed(at.first + i * g.along.dilation, at.line)
        position = (at.image, row, column, at.channel + channel)
        here = {p: (view, behind * conv.out_channels + channel) for p, view in at.residuals.items()}
        stored = self.fused.stored(e, value, position, lanes, self.extra, here)
        e.vstore(at.y, behind * self.fused.row_stride + channel, stored, lanes)

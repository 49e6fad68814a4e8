"""From the products of a Winograd convolution to its output: tiles transformed back, with the epilogue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.winograd_2d import Winograd2D
from edgepack.compiler.kernels.cpu.conv.winograd_tiles import (
    LazyVectors,
    TransformedTile,
    each_line,
    each_vector,
)
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import RowGroups
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["Output2D"]

#: What stores a row of a tile: (channel, row, its elements, lanes).
Emit = Callable[[Any, int, Sequence[Any], int], None]


@dataclass(frozen=True)
class _Tile:
    """A tile of the output.

    Attributes:
        products: what it is made of.
        y: the output from its first pixel and channel on.
        image, top, left, channel: that pixel and channel.
        residuals: parameters of the epilogue that have the output's shape, from the same place on.
    """

    products: TransformedTile
    y: Any
    image: Any
    top: Any
    left: Any
    channel: Any
    residuals: dict[int, Any]


class Output2D:
    """Reads products M, [a * a][tiles][columns], and writes tiles of the output, with the epilogue.

    Args:
        rows: which rows of a tile are computed together.
        y: the output, and ``extra`` what the epilogue reads, by parameter.
        columns: width of the register tile, and of a row of M.
    """

    def __init__(
        self,
        e: Emitter,
        g: Winograd2D,
        rows: RowGroups,
        fused: AnchoredGroup,
        y: Any,
        extra: dict[int, Any],
        columns: int,
    ) -> None:
        self.e, self.g, self.rows, self.fused = e, g, rows, fused
        self.y, self.extra, self.columns = y, extra, columns
        #: Sums of a tile that wait until the next vector's are there: what is stored of them is narrower, and
        #: a vector of it holds more of them. None where it is not.
        self.waiting = None
        if DTYPE_BYTES[fused.types.result] < DTYPE_BYTES[fused.types.sums]:
            self.waiting = e.scratch(g.m * g.m * columns)

    def write(self, products: Any, column: Any, width: int, tile: Any, number: Any, tiles: int) -> None:
        """The output of one tile, ``width`` channels from ``column`` on."""
        e, g, conv = self.e, self.g, self.g.conv
        at = self._tile(products, column, width, tile, number, tiles)

        def part(rows: int, columns: int) -> None:
            self._part(at, width, rows, columns)

        # The last tiles of a row or column may be cut: kernels of their own size need fewer registers than
        # one that asks for each row.
        def across(rows: int) -> None:
            rest = conv.out_width % g.m
            if rest:
                inside = at.left + g.m <= conv.out_width
                e.branch(inside, lambda: part(rows, g.m), lambda: part(rows, rest))
            else:
                part(rows, g.m)

        if self.rows.staged:
            self._columns(at.products, width)
        rest = conv.out_height % g.m
        if rest:
            e.branch(at.top + g.m <= conv.out_height, lambda: across(g.m), lambda: across(rest))
        else:
            across(g.m)

    def _tile(self, products: Any, column: Any, width: int, tile: Any, number: Any, tiles: int) -> _Tile:
        """``width`` channels from ``column`` on of a tile."""
        e, g, conv, row_stride = self.e, self.g, self.g.conv, self.fused.row_stride
        image, row, across = g.position(e, tile)
        top, left = e.let(row * g.m), e.let(across * g.m)
        pixel = e.let((image * conv.out_height + top) * conv.out_width + left)
        first = e.let(pixel * conv.out_channels + column)
        pixels = (g.m - 1) * (conv.out_width + 1)
        size = pixels * conv.out_channels + width
        residuals = {p: e.rebased(self.extra[p], first, size) for p in self.fused.epilogue.dense}
        source = TransformedTile(products, e.let(number * self.columns), tiles * self.columns)
        y = e.rebased(self.y, e.let(pixel * row_stride + column), pixels * row_stride + width)
        return _Tile(source, y, image, top, left, column, residuals)

    def _part(self, tile: _Tile, width: int, rows: int, columns: int) -> None:
        """The first ``rows`` and ``columns`` of a tile."""
        g = self.g

        def emit(c: Any, i: Any, line: Sequence[Any], lanes: int) -> None:
            for j, value in enumerate(line[:columns]):
                sums = g.outputs(self.e, lanes).finished(g.m, value)
                if self.waiting is None:
                    self._store(tile, (c, i, j), sums, lanes)
                else:
                    self.e.vstore(self.waiting, (i * g.m + j) * self.columns + c, sums, lanes)

        if self.rows.staged:
            self._lines(tile.products, width, rows, emit)
        else:
            for row_set in self.rows.at_once:
                if these := [row for row in row_set if row < rows]:
                    self._rows(tile.products, these, width, emit)
        if self.waiting is not None:
            self._store_waiting(tile, width, rows, columns)

    def _store_waiting(self, tile: _Tile, width: int, rows: int, columns: int) -> None:
        """Applies the epilogue to the sums that wait, two vectors at a time; a loop, for it may be long."""
        e, g = self.e, self.g

        def pixel(i: Any, j: Any) -> None:
            first = e.let((i * g.m + j) * self.columns)
            for c, lanes in power_of_two_chunks(width, 2 * e.lanes):
                sums = e.let(e.vload(self.waiting, first + c, lanes))
                self._store(tile, (index(c), i, j), sums, lanes)

        every_row, every_column = e.opaque_bound(rows), e.opaque_bound(columns)
        e.loop(0, every_row, lambda i: e.loop(0, every_column, lambda j: pixel(i, j)))

    def _store(self, tile: _Tile, at: tuple[Any, Any, Any], value: Any, lanes: int) -> None:
        """Applies the epilogue to channels of one pixel, ``at`` (channel, row, column) of the tile."""
        c, i, j = at
        conv = self.g.conv
        number = i * conv.out_width + j
        offset = number * conv.out_channels + c
        position = (tile.image, tile.top + i, tile.left + j, tile.channel + c)
        here = {p: (view, offset) for p, view in tile.residuals.items()}
        stored = self.fused.stored(self.e, value, position, lanes, self.extra, here)
        self.e.vstore(tile.y, number * self.fused.row_stride + c, stored, lanes)

    def _columns(self, source: TransformedTile, width: int) -> None:
        """A^T M of the columns, into the first rows of M."""
        e, g = self.e, self.g

        def column(j: Any, c: Any, lanes: int) -> None:
            to, t = e.let(source.at + j * source.row_stride), g.outputs(e, lanes)
            places = [(source.buffer, to + c + i * (g.a * source.row_stride)) for i in range(g.a)]
            values = t.output_rows(g.m, range(g.m), LazyVectors(t, places))
            for (_, place), value in zip(places, values, strict=False):
                e.vstore(source.buffer, place, value, lanes)

        each_line(e, width, range(g.a), column)

    def _lines(self, source: TransformedTile, width: int, rows: int, emit: Emit) -> None:
        """``emit`` for each of the first ``rows``, after :meth:`_columns`."""
        e, g = self.e, self.g

        def line(i: Any, c: Any, lanes: int) -> None:
            to, t = e.let(source.at + i * (g.a * source.row_stride)), g.outputs(e, lanes)
            taps = LazyVectors(t, [(source.buffer, to + c + j * source.row_stride) for j in range(g.a)])
            emit(c, i, t.output_rows(g.m, range(g.m), taps), lanes)

        each_line(e, width, range(rows), line)

    def _rows(self, source: TransformedTile, rows: Sequence[int], width: int, emit: Emit) -> None:
        """``emit`` for each of ``rows`` and each vector of channels."""
        e, g = self.e, self.g

        def vector(c: Any, lanes: int) -> None:
            t = g.outputs(e, lanes)

            def column(j: int) -> list[Any]:
                places = [
                    (source.buffer, source.at + c + (i * g.a + j) * source.row_stride) for i in range(g.a)
                ]
                return t.output_rows(g.m, rows, LazyVectors(t, places))

            for i, line in zip(rows, t.output_lines(g.m, len(rows), column), strict=True):
                emit(c, i, line, lanes)

        each_vector(e, width, vector)

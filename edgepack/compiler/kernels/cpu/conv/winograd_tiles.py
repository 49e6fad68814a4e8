"""Tiles of a Winograd convolution: from the image to V, from products to the output with its epilogue.

Rows of a tile that lie in the padding are read from zeros, through pointers; columns that do are left out
when the code is generated, so there is one variant of it for each kind of left and right border.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.winograd_geometry import Geometry
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import (
    Transform,
    input_groups,
    input_rows,
    input_stages,
    output_groups,
    output_lines,
    output_rows,
    staged_input,
    staged_output,
)
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index, run_lengths
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks
from edgepack.plan.target import CpuTarget

#: What stores a row of a tile: (channel, row, its elements, lanes).
Emit = Callable[[Any, int, Sequence[Any], int], None]

__all__ = ["Image", "Output"]


def _each_vector(e: Emitter, lanes: int, channels: int, body: Callable[[Any, int], None]) -> None:
    """``body(channel, lanes)`` for the vectors of channels; LLVM must not mix them with each other."""
    full = channels // lanes
    vector = lambda k: body(e.let(k * lanes), lanes)  # noqa: E731
    rest = power_of_two_chunks(channels - full * lanes, lanes)
    if full > 1 and e.target is not None and e.target.in_order:
        e.no_unroll_loop(full, vector)
    else:
        e.loop(0, e.opaque_bound(full), vector)
    for at, few in rest:

        def part(_: Any, at: int = at, few: int = few) -> None:
            body(index(full * lanes + at), few)

        e.loop(0, e.opaque_bound(1), part)


def _each_line(
    e: Emitter, lanes: int, channels: int, lines: range, body: Callable[[Any, Any, int], None]
) -> None:
    """``body(line, channel, lanes)`` for the vectors of channels of one line after the other."""
    end = e.opaque_bound(lines.stop)
    e.loop(lines.start, end, lambda i: _each_vector(e, lanes, channels, lambda c, n: body(i, c, n)))


class Image:
    """Reads tiles of the input ``x`` and writes their transforms to ``v``, [a * a][slots][IC]."""

    def __init__(self, e: Emitter, g: Geometry, target: CpuTarget, x: Any, zeros: Any, zero_at: int) -> None:
        self.e, self.g, self.x, self.zeros, self.zero_at = e, g, x, zeros, zero_at
        self.lanes = target.lanes("float32")
        self.groups, self.staged = input_groups(g.m, target), staged_input(target)
        self.stages = input_stages(g.m, target)

    def read(self, v: Any, tile: Any, slot: Any, slots: int, channels: tuple[Any, int] | None = None) -> None:
        """V of one tile.

        Args:
            channels: (first, how many) if not all.
        """
        e, g, conv = self.e, self.g, self.g.conv
        image, ty, tx = g.position(e, tile)
        start, count = channels or (0, conv.in_channels)
        rows = self._rows(image, ty, tx, start)
        target = e.let(slot * conv.in_channels + start)

        def inside(t: int) -> tuple[bool, ...]:
            return tuple(0 <= g.m * t - conv.pad_left + j < conv.width for j in range(g.a))

        def body(valid: Sequence[bool]) -> None:
            if self.staged:
                self._in_stages(rows, valid, (v, target), slots, count)
                return
            for group in self.groups:
                self._group(group, rows, valid, (v, target), slots, count, tile)

        e.switch(run_lengths(g.columns, inside), tx, body)

    def _group(
        self,
        group: Sequence[int],
        rows: Sequence[Any],
        valid: Sequence[bool],
        target: tuple[Any, Any],
        slots: int,
        count: int,
        tile: Any,
    ) -> None:
        """Rows ``group`` of V, for ``count`` channels."""
        e, g = self.e, self.g
        depth = g.conv.in_channels
        v, at = target

        def vector(c: Any, lanes: int) -> None:
            t = Transform(e, lanes)
            columns: list[list[Any]] = []
            for j in range(g.a):
                taps = _Lazy(e, [(row, c + j * depth) for row in rows], lanes) if valid[j] else None
                columns.append(input_rows(t, g.m, group, taps) if taps else [None] * len(group))
            for n, i in enumerate(group):
                line = input_rows(t, g.m, range(g.a), [column[n] for column in columns])
                for j, value in enumerate(line):
                    stored = e.f32(0, lanes) if value is None else value
                    e.vstore(v, at + c + (i * g.a + j) * (slots * depth), stored, lanes)

        _each_vector(e, self.lanes, count, vector)

    def _in_stages(
        self, rows: Sequence[Any], valid: Sequence[bool], target: tuple[Any, Any], slots: int, count: int
    ) -> None:
        """V of all rows: B^T d of the columns into the places of V, then its lines in place."""
        e, g = self.e, self.g
        depth = g.conv.in_channels
        v, at = target
        pitch = slots * depth
        inside = [j for j in range(g.a) if valid[j]]

        def column(group: Sequence[int], j: Any, c: Any, lanes: int) -> None:
            to = e.let(at + j * pitch)
            taps = _Lazy(e, [(row, j * depth + c) for row in rows], lanes)
            for i, value in zip(group, input_rows(Transform(e, lanes), g.m, group, taps), strict=True):
                e.vstore(v, to + c + i * (g.a * pitch), value, lanes)

        def line(i: Any, c: Any, lanes: int) -> None:
            to = e.let(at + i * (g.a * pitch))
            stored = _Lazy(e, [(v, to + c + j * pitch) for j in range(g.a)], lanes)
            taps = [stored[j] if valid[j] else None for j in range(g.a)]
            for j, value in enumerate(input_rows(Transform(e, lanes), g.m, range(g.a), taps)):
                e.vstore(v, to + c + j * pitch, e.f32(0, lanes) if value is None else value, lanes)

        for group in self.stages:
            _each_line(e, self.lanes, count, range(inside[0], inside[-1] + 1), partial(column, group))
        _each_line(e, self.lanes, count, range(g.a), line)

    def _rows(self, image: Any, ty: Any, tx: Any, start: Any) -> list[Any]:
        """A buffer for each row of the tile, which begins at its first column; zeros in the padding."""
        e, g, conv = self.e, self.g, self.g.conv
        rows = []
        for i in range(g.a):
            row = e.let(ty * g.m + (i - conv.pad_top))
            at = ((image * conv.height + row) * conv.width + tx * g.m - conv.pad_left) * conv.in_channels
            first, elements = at + start, g.a * conv.in_channels
            last = (g.rows - 1) * g.m + i - conv.pad_top
            if i < conv.pad_top or last >= conv.height:
                valid = tirx.all(row >= 0, row < conv.height)
                rows.append(e.either(valid, (self.x, first), (self.zeros, self.zero_at), elements))
            else:
                rows.append(e.rebased(self.x, first, elements, "row"))
        return rows


class _Lazy(Sequence[Any]):
    """Vectors that are loaded when first used."""

    def __init__(self, e: Emitter, places: Sequence[tuple[Any, Any]], lanes: int) -> None:
        self.e, self.places, self.lanes = e, places, lanes
        self.loaded: dict[int, Any] = {}

    def __len__(self) -> int:
        return len(self.places)

    def __getitem__(self, i: Any) -> Any:
        if i not in self.loaded:
            buffer, at = self.places[i]
            self.loaded[i] = self.e.let(self.e.vload(buffer, at, self.lanes))
        return self.loaded[i]


class Output:
    """Reads products ``m``, [a * a][slots][columns], and writes tiles of the output, with the epilogue."""

    def __init__(
        self,
        e: Emitter,
        g: Geometry,
        target: CpuTarget,
        group: AnchoredGroup,
        y: Any,
        extra: Mapping[int, Any],
        columns: int,
    ) -> None:
        self.e, self.g, self.group, self.y, self.extra, self.columns = e, g, group, y, extra, columns
        self.lanes = target.lanes("float32")
        self.groups, self.staged = output_groups(g.m, target), staged_output(target)

    def write(self, products: Any, column: Any, width: int, tile: Any, slot: Any, slots: int) -> None:
        """The output of one tile, ``width`` channels from ``column`` on."""
        e, g, conv = self.e, self.g, self.g.conv
        place = g.position(e, tile)
        top, left = e.let(place[1] * g.m), e.let(place[2] * g.m)
        pixel = e.let((place[0] * conv.out_height + top) * conv.out_width + left)
        first = e.let(pixel * conv.out_channels + column)
        size = ((g.m - 1) * (conv.out_width + 1)) * conv.out_channels + width
        operands = {p: e.rebased(self.extra[p], first, size) for p in self.group.epilogue.dense}
        source = (products, e.let(slot * self.columns))
        pitch = self.group.pitch
        reach = ((g.m - 1) * (conv.out_width + 1)) * pitch + width
        y = e.rebased(self.y, e.let(pixel * pitch + column), reach)

        def store(c: Any, i: int, j: Any, value: Any, lanes: int) -> None:
            number = i * conv.out_width + j
            offset = number * conv.out_channels + c
            at = (place[0], top + i, left + j, column + c)
            here = {p: (operand, offset) for p, operand in operands.items()}
            stored = self.group.epilogue.apply(e, value, at, lanes, self.extra, here)
            e.vstore(y, number * pitch + c, stored, lanes)

        def part(rows: int, columns: int) -> None:
            def emit(c: Any, i: int, line: Sequence[Any], lanes: int) -> None:
                for j, value in enumerate(line[:columns]):
                    store(c, i, j, value, lanes)

            if self.staged:
                self._lines(source, slots, width, rows, emit)
                return
            for group in self.groups:
                if these := [row for row in group if row < rows]:
                    self._rows(source, slots, these, width, emit)

        # The last tiles of a row or column may be cut: kernels of their own size need fewer registers than
        # one that asks for each row.
        def across(rows: int) -> None:
            rest = conv.out_width % g.m
            if rest:
                inside = left + g.m <= conv.out_width
                e.branch(inside, lambda: part(rows, g.m), lambda: part(rows, rest))
            else:
                part(rows, g.m)

        if self.staged:
            self._columns(source, slots, width)
        rest = conv.out_height % g.m
        if rest:
            e.branch(top + g.m <= conv.out_height, lambda: across(g.m), lambda: across(rest))
        else:
            across(g.m)

    def _columns(self, source: tuple[Any, Any], slots: int, width: int) -> None:
        """A^T M of the columns, into the first rows of M."""
        e, g = self.e, self.g
        buffer, at = source
        pitch = slots * self.columns

        def column(j: Any, c: Any, lanes: int) -> None:
            to = e.let(at + j * pitch)
            places = [(buffer, to + c + i * (g.a * pitch)) for i in range(g.a)]
            values = output_rows(Transform(e, lanes), g.m, range(g.m), _Lazy(e, places, lanes))
            for (_, place), value in zip(places, values, strict=False):
                e.vstore(buffer, place, value, lanes)

        _each_line(e, self.lanes, width, range(g.a), column)

    def _lines(self, source: tuple[Any, Any], slots: int, width: int, rows: int, emit: Emit) -> None:
        """``emit(channel, i, line, lanes)`` for each of the first ``rows``, after :meth:`_columns`."""
        e, g = self.e, self.g
        buffer, at = source
        pitch = slots * self.columns

        def line(i: Any, c: Any, lanes: int) -> None:
            to = e.let(at + i * (g.a * pitch))
            taps = _Lazy(e, [(buffer, to + c + j * pitch) for j in range(g.a)], lanes)
            emit(c, i, output_rows(Transform(e, lanes), g.m, range(g.m), taps), lanes)

        _each_line(e, self.lanes, width, range(rows), line)

    def _rows(
        self,
        source: tuple[Any, Any],
        slots: int,
        rows: Sequence[int],
        width: int,
        emit: Callable[[Any, int, Sequence[Any], int], None],
    ) -> None:
        """``emit(channel, i, line, lanes)`` for each of ``rows`` and each vector of channels."""
        e, g = self.e, self.g
        buffer, at = source

        def vector(c: Any, lanes: int) -> None:
            t = Transform(e, lanes)

            def column(j: int) -> list[Any]:
                places = [(buffer, at + c + (i * g.a + j) * (slots * self.columns)) for i in range(g.a)]
                return output_rows(t, g.m, rows, _Lazy(e, places, lanes))

            for i, line in zip(rows, output_lines(t, g.m, len(rows), column), strict=True):
                emit(c, i, line, lanes)

        _each_vector(e, self.lanes, width, vector)

"""From the image to V: the input tiles of a Winograd convolution, transformed.

Rows of a tile that lie in the padding are read from zeros, through pointers; columns that do are left out
when the code is generated, so there is one variant of it for each kind of left and right border.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.conv.depth_window import first_plane
from edgepack.compiler.kernels.cpu.conv.winograd_2d import Winograd2D
from edgepack.compiler.kernels.cpu.conv.winograd_tiles import (
    LazyVectors,
    TransformedTile,
    each_line,
    each_vector,
)
from edgepack.compiler.kernels.cpu.conv.winograd_transforms import RowGroups
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import run_lengths

__all__ = ["Input2D"]


class Input2D:
    """Reads tiles of the input ``x`` and writes their transforms to V, [a * a][tiles][IC of a group].

    Args:
        rows: which rows of a tile are computed together.
        zeros, zero_at: buffer and element at which zeros begin that stand for a row in the padding.
    """

    def __init__(self, e: Emitter, g: Winograd2D, rows: RowGroups, x: Any, zeros: Any, zero_at: int) -> None:
        self.e, self.g, self.rows, self.x, self.zeros, self.zero_at = e, g, rows, x, zeros, zero_at

    def read(self, v: Any, tile: Any, number: Any, tiles: int, group: Any) -> None:
        """V of one tile and group of channels."""
        e, g = self.e, self.g
        planes = g.volume.depth_window if g.volume else None
        channels = (group * g.conv.group_in, g.image_channels // g.conv.groups)
        where = (e.let(number * g.channels), tiles)
        e.loop(0, planes.kernel if planes else 1, lambda k: self.part(v, tile, where, k, channels))

    def part(self, v: Any, tile: Any, where: tuple[Any, int], plane: Any, channels: tuple[Any, int]) -> None:
        """V of some channels of one tile.

        Args:
            where: element of V at which they begin in the first plane, and how many input tiles V has.
            plane: of the window.
            channels: (first, how many) of the plane.
        """
        e, g, conv = self.e, self.g, self.g.conv
        image, ty, tx = g.position(e, tile)
        (start, count), (place, tiles) = channels, where
        rows = self._rows(image, ty, tx, start, plane)
        at = place + plane * g.image_channels if g.volume else place
        target = TransformedTile(v, e.let(at), tiles * g.channels)

        def inside(t: int) -> tuple[bool, ...]:
            return tuple(0 <= g.m * t - conv.pad_left + j < conv.width for j in range(g.a))

        def body(valid: Sequence[bool]) -> None:
            if self.rows.staged:
                self._in_stages(rows, valid, target, count)
                return
            for row_set in self.rows.at_once:
                self._at_once(row_set, rows, valid, target, count)

        e.switch(run_lengths(g.columns, inside), tx, body)

    def _rows(self, image: Any, ty: Any, tx: Any, start: Any, plane: Any) -> list[Any]:
        """A buffer for each row of the tile, which begins at its first column; zeros in the padding."""
        e, g, conv = self.e, self.g, self.g.conv
        rows, depth, there = [], g.image_channels, []
        if g.volume and g.volume.depth_window:
            planes = g.volume.depth_window
            before, first_one = first_plane(e, planes, image)
            image = e.let(before + plane * planes.dilation)
            number = e.let(first_one + plane * planes.dilation)
            there = [number >= 0, number < planes.size] if planes.padded else []
        for i in range(g.a):
            row = e.let(ty * g.m + (i - conv.pad_top))
            at = ((image * conv.height + row) * conv.width + tx * g.m - conv.pad_left) * depth
            first, elements = at + start, g.a * depth
            last = (g.rows - 1) * g.m + i - conv.pad_top
            if i < conv.pad_top or last >= conv.height or there:
                valid = tirx.all(row >= 0, row < conv.height, *there)
                rows.append(e.either(valid, (self.x, first), (self.zeros, self.zero_at), elements))
            else:
                rows.append(e.rebased(self.x, first, elements, "row"))
        return rows

    def _at_once(
        self,
        row_set: Sequence[int],
        rows: Sequence[Any],
        valid: Sequence[bool],
        target: TransformedTile,
        count: int,
    ) -> None:
        """Rows ``row_set`` of V, for ``count`` channels."""
        e, g, conv = self.e, self.g, self.g.conv
        depth = g.image_channels

        def vector(c: Any, lanes: int) -> None:
            t = g.inputs(e, lanes)
            columns: list[list[Any]] = []
            for j in range(g.a):
                taps: Sequence[Any] = [t.beside(conv.outside)] * g.a
                if valid[j]:
                    taps = LazyVectors(t, [(row, c + j * depth) for row in rows], t.read)
                columns.append(t.input_rows(g.m, row_set, taps))
            for n, i in enumerate(row_set):
                line = t.input_rows(g.m, range(g.a), [column[n] for column in columns])
                for j, value in enumerate(line):
                    at = target.at + c + (i * g.a + j) * target.row_stride
                    e.vstore(target.buffer, at, t.kept(value), lanes)

        each_vector(e, count, vector)

    def _in_stages(
        self, rows: Sequence[Any], valid: Sequence[bool], target: TransformedTile, count: int
    ) -> None:
        """V of all rows: B^T d of the columns into the places of V, then its lines in place."""
        e, g = self.e, self.g
        depth, v, row_stride = g.image_channels, target.buffer, target.row_stride
        inside = [j for j in range(g.a) if valid[j]]

        def column(row_set: Sequence[int], j: Any, c: Any, lanes: int) -> None:
            to, t = e.let(target.at + j * row_stride), g.inputs(e, lanes)
            taps = LazyVectors(t, [(row, j * depth + c) for row in rows], t.read)
            for i, value in zip(row_set, t.input_rows(g.m, row_set, taps), strict=True):
                e.vstore(v, to + c + i * (g.a * row_stride), t.kept(value), lanes)

        def line(i: Any, c: Any, lanes: int) -> None:
            to, t = e.let(target.at + i * (g.a * row_stride)), g.inputs(e, lanes)
            stored = LazyVectors(t, [(v, to + c + j * row_stride) for j in range(g.a)])
            taps = [stored[j] if valid[j] else None for j in range(g.a)]
            for j, value in enumerate(t.input_rows(g.m, range(g.a), taps)):
                e.vstore(v, to + c + j * row_stride, t.kept(value), lanes)

        for row_set in self.rows.stages:
            each_line(e, count, range(inside[0], inside[-1] + 1), partial(column, row_set))
        each_line(e, count, range(g.a), line)

"""3x3 convolution of stride 1 by Winograd's minimal filtering, F(m x m, 3 x 3), NHWC.

Each m x m tile of the output is computed from an a x a tile of the input, a = m + 2, by a * a products per
pair of channels instead of 9 m * m: 4 times fewer for m = 4, 2.25 times fewer for m = 2. Input tiles are
transformed (V = B^T d B), multiplied with the weights that were transformed when packing (U = G g G^T, in
float64) as a * a matrix products over the channels, and transformed back (Y = A^T M A), where the epilogue
is applied.

Error relative to the largest output, measured: m = 2 as a direct convolution, m = 4 about ten
times that (1e-5).

Two forms. "fused": a task is one tile; a thread works on blocks of its tiles, whose V and M stay in its L2
cache. It needs enough tiles for every thread to reuse the weights. "split": one kernel transforms all tiles
into the arena, another multiplies; its tasks are blocks of output channels, so the weights are read once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.graph.lower import Group
from edgepack.kernels.contract import Implementation, Operand, Packing, RuleError, Stage
from edgepack.kernels.conv2d import Conv2d
from edgepack.kernels.cost import winograd_tile
from edgepack.kernels.emit import Emitter, balanced, div, groups_of, index, mod
from edgepack.kernels.gemm import Tile, accumulate, column_chunks, share_prefetch, tile_for, worth_prefetching
from edgepack.kernels.group import AnchoredGroup, anchored
from edgepack.kernels.winograd_transforms import (
    Vector,
    input_transform,
    output_transform,
    transform_weights,
)
from edgepack.target import CpuTarget

__all__ = ["winograd"]

#: From this many tiles on, reading the weights once per block of tiles costs less than V in the arena.
FUSED_TILES = 128


def winograd(group: Group, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rules ``conv2d.winograd2`` and ``conv2d.winograd4``."""
    found = anchored(group, ["conv2d"])
    conv = Conv2d.of(found)
    if conv.kernel != (3, 3) or conv.strides != (1, 1) or conv.dilation != (1, 1) or conv.groups != 1:
        raise RuleError("not a 3x3 convolution of stride 1")
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    m = winograd_tile(conv, target)
    if m == 0:
        raise RuleError("the direct convolution is estimated to be faster")
    geometry = _Geometry(conv, m)
    tile = tile_for(target, geometry.count, conv.out_channels)
    emitter = _Winograd(geometry, tile, found, target)
    packing = Packing(
        found.operand(1),
        f"winograd{m}:{tile.columns}",
        lambda w: transform_weights(w, m, tile.columns),
    )
    return emitter.implementation(packing)


@dataclass(frozen=True)
class _Geometry:
    """Tiles of a convolution."""

    conv: Conv2d
    m: int

    @property
    def a(self) -> int:
        """Side of an input tile."""
        return self.m + 2

    @property
    def rows(self) -> int:
        return -(-self.conv.out_height // self.m)

    @property
    def columns(self) -> int:
        return -(-self.conv.out_width // self.m)

    @property
    def count(self) -> int:
        """Tiles of all images."""
        return self.conv.batch * self.rows * self.columns


class _Winograd:
    """Emits the kernels. V is [a * a][slots][IC], M is [a * a][slots][columns of the tile]."""

    def __init__(self, geometry: _Geometry, tile: Tile, group: AnchoredGroup, target: CpuTarget) -> None:
        self.g, self.tile, self.group, self.target = geometry, tile, group, target
        self.lanes = target.lanes("float32")
        self.blocks = -(-geometry.conv.out_channels // tile.columns)
        self.slots = self._slots()
        self.fused = geometry.count >= FUSED_TILES and self.slots >= 2 * tile.rows

    def _slots(self) -> int:
        """Tiles of one block of the fused form: V and M fill at most half of the L2 cache."""
        g = self.g
        bytes_per_tile = g.a * g.a * (g.conv.in_channels + self.tile.columns) * 4
        fits = self.target.l2_bytes // 2 // bytes_per_tile
        return max(1, min(fits, 6 * self.tile.rows, -(-g.count // self.target.threads)))

    def implementation(self, packing: Packing) -> Implementation:
        g = self.g
        a2, columns = g.a * g.a, self.tile.columns
        parameters = {"tile": f"{self.tile.rows}x{columns}", "form": "fused" if self.fused else "split"}
        rule = f"conv2d.winograd{g.m}"
        flops = g.conv.flops
        if self.fused:
            scratch = (a2 * self.slots * g.conv.in_channels * 4, a2 * self.slots * columns * 4)
            parameters["slots"] = str(self.slots)
            return Implementation(
                rule, (self._fused(),), (packing,), scratch=scratch, parameters=parameters, flops=flops
            )
        temps = (a2 * g.count * g.conv.in_channels * 4,)
        stages = (self._split_input(), self._split_product())
        return Implementation(
            rule,
            stages,
            (packing,),
            temps=temps,
            scratch=(a2 * g.count * columns * 4,),
            parameters=parameters,
            flops=flops,
        )

    # The two forms ---------------------------------------------------------------------------------------

    def _fused(self) -> Stage:
        e, g, slots = Emitter(self.lanes, strict_math=self.target.strict_math), self.g, self.slots
        a2 = g.a * g.a
        x = e.pointer(g.conv.batch * g.conv.height * g.conv.width * g.conv.in_channels)
        u = e.pointer(a2 * g.conv.in_channels * g.conv.out_channels)
        extra, operands = self.group.epilogue_pointers(e)
        y = e.pointer(g.conv.pixels * g.conv.out_channels)
        v = e.pointer(a2 * slots * g.conv.in_channels)
        products = e.pointer(a2 * slots * self.tile.columns)
        lo, hi = e.task_range()
        count = e.let(hi - lo)
        blocks = e.let(div(count + (slots - 1), slots))
        size = e.let(tirx.truncdiv(count + blocks - 1, tirx.max(blocks, index(1))))

        def block(b: Any) -> None:
            first = e.let(lo + b * size)
            n = e.let(tirx.min(size, hi - first))
            e.loop(0, n, lambda i: self._read_tile(e, x, v, e.let(first + i), i, slots, None))

            def columns(at: Any, width: int) -> None:
                self._multiply(e, v, u, products, at, width, slots, n)
                e.loop(
                    0,
                    n,
                    lambda i: self._write_tile(e, products, y, extra, at, width, e.let(first + i), i, slots),
                )

            self._for_column_blocks(e, columns)

        e.loop(0, blocks, block)
        ends = (Operand("param", self.group.operand(0)), Operand("packed", 0))
        tail = (Operand("output", 0), Operand("scratch", 0), Operand("scratch", 1))
        return Stage(e.finish(), g.count, (*ends, *operands, *tail))

    def _for_column_blocks(self, e: Emitter, body: Callable[[Any, int], None]) -> None:
        """``body(first column, width)`` for each block of output channels."""
        width = self.tile.columns
        full, rest = divmod(self.g.conv.out_channels, width)
        e.loop(0, full, lambda b: body(e.let(b * width), width))
        if rest:
            body(index(full * width), rest)

    def _split_input(self) -> Stage:
        """Tasks: (tile, chunk of channels)."""
        e, g = Emitter(self.lanes, strict_math=self.target.strict_math), self.g
        vectors = max(1, g.conv.in_channels // self.lanes)
        chunk = max(c for c in (8, 4, 2, 1) if vectors % c == 0)
        chunks = vectors // chunk if g.conv.in_channels % self.lanes == 0 else 1
        x = e.pointer(g.conv.batch * g.conv.height * g.conv.width * g.conv.in_channels)
        v = e.pointer(g.a * g.a * g.count * g.conv.in_channels)

        def task(t: Any) -> None:
            tile, part = e.let(div(t, chunks)), e.let(mod(t, chunks))
            channels = None if chunks == 1 else (part, chunk)
            self._read_tile(e, x, v, tile, tile, g.count, channels)

        e.tasks(task)
        return Stage(
            e.finish(), g.count * chunks, (Operand("param", self.group.operand(0)), Operand("temp", 0))
        )

    def _split_product(self) -> Stage:
        """Tasks: blocks of output channels."""
        e, g = Emitter(self.lanes, strict_math=self.target.strict_math), self.g
        a2, count, width = g.a * g.a, g.count, self.tile.columns
        v = e.pointer(a2 * count * g.conv.in_channels)
        u = e.pointer(a2 * g.conv.in_channels * g.conv.out_channels)
        extra, operands = self.group.epilogue_pointers(e)
        y = e.pointer(g.conv.pixels * g.conv.out_channels)
        products = e.pointer(a2 * count * width)
        tail = g.conv.out_channels - (self.blocks - 1) * width

        def task(block: Any) -> None:
            at = e.let(block * width)

            def columns(width: int) -> None:
                self._multiply(e, v, u, products, at, width, count, count)
                e.loop(0, count, lambda t: self._write_tile(e, products, y, extra, at, width, t, t, count))

            if tail == width or self.blocks == 1:
                columns(tail)
            else:
                e.branch(block < index(self.blocks - 1), lambda: columns(width), lambda: columns(tail))

        e.tasks(task)
        ends = (Operand("temp", 0), Operand("packed", 0))
        return Stage(e.finish(), self.blocks, (*ends, *operands, Operand("output", 0), Operand("scratch", 0)))

    # The three parts -------------------------------------------------------------------------------------

    def _position(self, e: Emitter, tile: Any) -> tuple[Any, Any, Any]:
        """(image, row, column) of a tile."""
        g = self.g
        area = g.rows * g.columns
        image = e.let(div(tile, area)) if g.conv.batch > 1 else index(0)
        rest = e.let(mod(tile, area)) if g.conv.batch > 1 else tile
        return image, e.let(div(rest, g.columns)), e.let(mod(rest, g.columns))

    def _read_tile(
        self, e: Emitter, x: Any, v: Any, tile: Any, slot: Any, slots: int, channels: tuple[Any, int] | None
    ) -> None:
        """V of one tile. What lies outside of the image is left out when the code is generated."""
        g, conv = self.g, self.g.conv
        m, a = g.m, g.a
        image, ty, tx = self._position(e, tile)
        base = e.let(
            ((image * conv.height + ty * m - conv.pad_top) * conv.width + tx * m - conv.pad_left)
            * conv.in_channels
        )
        target = e.let(slot * conv.in_channels)

        def inside(pad: int, extent: int) -> Callable[[int], tuple[bool, ...]]:
            return lambda t: tuple(0 <= m * t - pad + i < extent for i in range(a))

        def body(in_rows: Sequence[bool], in_columns: Sequence[bool]) -> None:
            def vector(c: Any, lanes: int) -> None:
                zero = e.f32(0, lanes)
                lines: list[Vector] = []
                for j in range(a):
                    taps = [
                        e.let(e.vload(x, base + (i * conv.width + j) * conv.in_channels + c, lanes))
                        if in_rows[i] and in_columns[j]
                        else zero
                        for i in range(a)
                    ]
                    lines.append(input_transform(e, m, taps, lanes) if in_columns[j] else [zero] * a)
                for i in range(a):
                    line = input_transform(e, m, [lines[j][i] for j in range(a)], lanes)
                    for j in range(a):
                        where = target + c + (i * a + j) * (slots * conv.in_channels)
                        e.vstore(v, where, line[j], lanes)

            if channels is not None:
                part, count = channels
                first = e.let(part * (count * self.lanes))
                e.loop(0, count, lambda k: vector(e.let(first + k * self.lanes), self.lanes))
                return
            full = conv.in_channels // self.lanes
            e.loop(0, full, lambda k: vector(e.let(k * self.lanes), self.lanes))
            for at, lanes in column_chunks(conv.in_channels - full * self.lanes, self.lanes):
                vector(index(full * self.lanes + at), lanes)

        rows = groups_of(g.rows, inside(conv.pad_top, conv.height))
        columns = groups_of(g.columns, inside(conv.pad_left, conv.width))
        e.switch(rows, ty, lambda r: e.switch(columns, tx, lambda c: body(r, c)))

    def _multiply(
        self, e: Emitter, v: Any, u: Any, products: Any, column: Any, width: int, slots: int, count: Any
    ) -> None:
        """products[k][:count] = V[k][:count] U[k] for each of the a * a positions k."""
        g, rows = self.g, self.tile.rows
        depth, a2 = g.conv.in_channels, g.a * g.a
        chunks = column_chunks(width, self.lanes)

        def position(k: Any) -> None:
            weights = e.let(column * (a2 * depth) + k * (depth * width))
            following = weights + depth * width

            def tile(first: Any, size: int, number: Any = None) -> None:
                source = e.let((k * slots + first) * depth)
                target = e.let((k * slots + first) * self.tile.columns)
                rows_of_v = e.rebased(v, source, size * depth)
                accumulators = e.local(size * width)
                for r in range(size):
                    for at, lanes in chunks:
                        e.vstore(accumulators, r * width + at, e.f32(0, lanes), lanes)
                accumulate(
                    e,
                    accumulators,
                    size,
                    chunks,
                    depth,
                    lambda r, d: e.load(rows_of_v, d + r * depth),
                    u,
                    weights,
                    width,
                    2,
                    None if number is None else share_prefetch(e, u, following, width, tiles, number),
                )
                for r in range(size):
                    for at, lanes in chunks:
                        value = e.vload(accumulators, r * width + at, lanes)
                        e.vstore(products, target + r * self.tile.columns + at, value, lanes)

            tiles = sum(n for _, n in balanced(count, rows)) if isinstance(count, int) else 0
            ahead = tiles > 0 and worth_prefetching(self.target, depth, width)

            if isinstance(count, int):
                first, done = 0, 0
                for size, n in balanced(count, rows):

                    def numbered(i: Any, size: int = size, first: int = first, done: int = done) -> None:
                        tile(e.let(i * size + first), size, i + done if ahead else None)

                    e.loop(0, n, numbered)
                    first, done = first + size * n, done + n
                return
            self._dynamic_rows(e, count, rows, tile)

        e.loop(0, a2, position)

    @staticmethod
    def _dynamic_rows(e: Emitter, count: Any, rows: int, tile: Callable[[Any, int], None]) -> None:
        """Cuts ``count`` rows into tiles of ``rows`` and one of what is left."""
        full, rest = e.let(tirx.truncdiv(count, index(rows))), e.let(tirx.truncmod(count, index(rows)))
        e.loop(0, full, lambda i: tile(e.let(i * rows), rows))
        for size in range(1, rows):
            e.branch(tirx.EQ(rest, index(size)), lambda size=size: tile(e.let(full * rows), size))  # type: ignore[misc]

    def _write_tile(
        self,
        e: Emitter,
        products: Any,
        y: Any,
        extra: Any,
        column: Any,
        width: int,
        tile: Any,
        slot: Any,
        slots: int,
    ) -> None:
        """The output of one tile, with the epilogue; pixels outside of the output are left out."""
        g, conv = self.g, self.g.conv
        m, a = g.m, g.a
        image, ty, tx = self._position(e, tile)
        base = e.let(slot * self.tile.columns)
        top, left = e.let(ty * m), e.let(tx * m)
        pixel = e.let((image * conv.out_height + top) * conv.out_width + left)

        def inside(extent: int) -> Callable[[int], tuple[bool, ...]]:
            return lambda t: tuple(m * t + i < extent for i in range(m))

        def body(in_rows: Sequence[bool], in_columns: Sequence[bool]) -> None:
            def vector(at: Any, lanes: int) -> None:
                lines: list[Vector] = []
                for j in range(a):
                    taps = [
                        e.let(e.vload(products, base + at + (i * a + j) * (slots * self.tile.columns), lanes))
                        for i in range(a)
                    ]
                    lines.append(output_transform(e, m, taps, lanes))
                for i in range(m):
                    if not in_rows[i]:
                        continue
                    line = output_transform(e, m, [lines[j][i] for j in range(a)], lanes)
                    for j in range(m):
                        if in_columns[j]:
                            self._store(
                                e,
                                y,
                                extra,
                                (image, top + i, left + j),
                                pixel,
                                i,
                                j,
                                column + at,
                                line[j],
                                lanes,
                            )

            full = width // self.lanes
            e.loop(0, full, lambda k: vector(e.let(k * self.lanes), self.lanes))
            for at, lanes in column_chunks(width - full * self.lanes, self.lanes):
                vector(index(full * self.lanes + at), lanes)

        rows = groups_of(g.rows, inside(conv.out_height))
        columns = groups_of(g.columns, inside(conv.out_width))
        e.switch(rows, ty, lambda r: e.switch(columns, tx, lambda c: body(r, c)))

    def _store(
        self,
        e: Emitter,
        y: Any,
        extra: Any,
        position: tuple[Any, Any, Any],
        pixel: Any,
        i: int,
        j: int,
        channel: Any,
        value: Any,
        lanes: int,
    ) -> None:
        conv = self.g.conv
        stored = self.group.epilogue.apply(e, value, (*position, channel), lanes, extra)
        where = (pixel + (i * conv.out_width + j)) * conv.out_channels + channel
        e.vstore(y, where, stored, lanes)

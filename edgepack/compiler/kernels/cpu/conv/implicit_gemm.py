"""Dense and grouped convolution, NHWC, as an implicit matrix product.

Rows are output pixels, columns are output channels. Where the taps along the width are neighbours (dilation
1, one group), a row of the kernel is one contiguous run of KW * IC elements of the input, so the inner
reduction is long. Nothing is padded in memory: a tile whose window lies inside the image reads it directly;
at the border each tap takes its pixel's pointer, or a pointer to zeros that stand behind the packed
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.tirx import DeclBuffer, Var
from tvm.tirx.buffer import buffer_data_pointer_type
from tvm.tirx.stmt import Bind

from edgepack.compiler.kernels.contract import Operand, Stage
from edgepack.compiler.kernels.cpu.analysis.fused_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    LINE,
    Tile,
    accumulate,
    column_chunks,
    stream_prefetch,
)
from edgepack.plan.target import CpuTarget

__all__ = ["ImplicitGemm"]


@dataclass(frozen=True)
class _Product:
    """One tile at work.

    Attributes:
        chunks: its columns as full vectors, see :func:`column_chunks`.
        weights: where its columns' weights begin.
        number: of the tile, among those that are done before the next weights are.
        turn: of the tile, among all.
        part: of the reduction, see :attr:`Blocking.slices`.
    """

    accumulators: Any
    rows: int
    chunks: list[tuple[int, int]]
    weights: Any
    width: int
    number: Any
    turn: Any
    part: Any


class ImplicitGemm:
    """Emits the kernel of one convolution. Tasks are (block of columns, block of tiles) pairs."""

    def __init__(
        self,
        conv: Conv2d,
        tile: Tile,
        group: AnchoredGroup,
        target: CpuTarget,
        rows_apart: bool = False,
        ahead: int = 0,
    ) -> None:
        """
        Args:
            rows_apart: the kernel is part of another, which asks for one row of the output at a time.
            ahead: bytes to fetch for a later kernel.
        """
        self.conv, self.tile, self.group, self.target = conv, tile, group, target
        self.ahead = ahead
        self.lanes = target.lanes("float32")
        self.e = Emitter(self.lanes, self.target)
        self.rows_apart = rows_apart
        whole = replace(conv, batch=1, out_height=1) if rows_apart else conv
        self.blocking = Blocking(whole, tile, target, 1 if rows_apart else target.threads)
        #: Band of the pixels; pixel at which the tiles begin; how far from its place in the output each one
        #: is written.
        self.band: Any = 0
        self.origin: Any = 0
        self.shift: Any = 0
        #: Behind the packed weights: what pixels in the padding read, and what a last narrow vector does.
        self.zeros = max(conv.group_in if conv.padded else 0, self.lanes - 1)
        self.contiguous = conv.dilation[1] == 1 and conv.groups == 1

    def parameters(self) -> dict[str, Any]:
        """What was chosen, for reports."""
        ahead = {"ahead": self.ahead} if self.ahead else {}
        return {
            "tile": f"{self.tile.rows}x{self.tile.columns}",
            "order": "channels" if self.blocking.weights_first else "pixels",
            "blocks": self.blocking.pixel_blocks,
            **ahead,
        }

    def pointers(self) -> tuple[Operand, ...]:
        """Declares the kernel's pointers to what it reads."""
        e, c = self.e, self.conv
        self.zero_at = c.depth * c.out_channels
        self.x = e.pointer(c.batch * c.height * c.width * c.in_channels)
        self.w = e.pointer(self.zero_at + self.zeros)
        self.extra, operands = self.group.epilogue_pointers(e)
        return (Operand("param", self.group.operand(0)), Operand("packed", 0), *operands)

    def build(self) -> Stage:
        e = self.e
        begin = self.pointers()
        self.y = e.pointer(self.group.output_elements)
        ends = [Operand("output", 0)]
        if self.blocking.slices > 1:
            self.sums = e.pointer(self.blocking.scratch[0] // 4)
            ends.append(Operand("scratch", 0))
        if self.ahead:
            self.later = e.pointer(self.ahead // 4)
            ends.append(Operand("prefetch", 0))
        e.tasks(self._task)
        tasks = self.conv.groups * self.blocking.column_blocks * self.blocking.pixel_blocks
        return Stage(e.finish(), tasks, (*begin, *ends))

    def row(self, number: Any, y: Any, at: Any) -> None:
        """Writes row ``number``, counted through all images, of the output to element ``at`` of ``y``.

        For a kernel with ``rows_apart``, and one group.
        """
        e, c = self.e, self.conv
        self.y = y
        self.origin = e.let(number * c.out_width)
        self.shift = e.let(at - self.origin * self.group.pitch)
        e.loop(
            0,
            self.blocking.column_blocks,
            lambda column: self._columns(0, column, 0, self.blocking.tile_count),
        )

    def _task(self, task: Any) -> None:
        e = self.e
        blocks, cut = self.conv.groups * self.blocking.column_blocks, self.blocking
        if cut.weights_first:
            each = cut.pixel_blocks // cut.shares
            share, block, inner = (e.let(index(i)) for i in unravel(task, (cut.shares, blocks, each)))
            sweep, pixels = e.let(share * each), e.let(share * each + inner)
        else:
            sweep, block = e.let(div(task, blocks)), e.let(mod(task, blocks))
            pixels = sweep
        if cut.bands > 1:
            self.band = e.let(div(pixels, cut.blocks))
            self.origin = e.let(self.band * (self.conv.pixels // cut.bands))
            sweep, pixels = (e.let(mod(block, cut.blocks)) for block in (sweep, pixels))
        self.sweep = e.let(cut.first_tile(sweep))
        first, last = e.let(cut.first_tile(pixels)), e.let(cut.first_tile(pixels + 1))
        group = e.let(div(block, self.blocking.column_blocks))
        self._columns(group, e.let(mod(block, self.blocking.column_blocks)), first, last)

    def _columns(self, group: Any, column: Any, first: Any, last: Any) -> None:
        """All tiles [first, last) for one block of columns."""
        e = self.e
        tail = self.conv.group_out - (self.blocking.column_blocks - 1) * self.tile.columns

        def columns(width: int) -> None:
            self._pixels(group, column, width, first, last)

        if tail == self.tile.columns or self.blocking.column_blocks == 1:
            columns(tail)
        else:
            e.branch(
                column < index(self.blocking.column_blocks - 1),
                lambda: columns(self.tile.columns),
                lambda: columns(tail),
            )

    def _pixels(self, group: Any, column: Any, width: int, first: Any, last: Any) -> None:
        """All tiles [first, last) for one block of ``width`` columns."""
        e, c = self.e, self.conv
        weights = e.let((group * c.group_out + column * self.tile.columns) * c.depth)
        channel = e.let(group * c.group_out + column * self.tile.columns)
        start = first if self.blocking.slices > 1 or self.rows_apart else self.sweep
        tile_count = self.blocking.bands * self.blocking.tile_count
        turns = e.let((group * self.blocking.column_blocks + column) * tile_count) if self.ahead else 0

        def tiles(part: Any) -> None:
            done, pixel = 0, 0
            for rows, count in self.blocking.tiles:
                begin, end = done, done + count
                if not self.rows_apart:
                    begin = e.let(tirx.max(first, index(begin)))
                    end = e.let(tirx.max(begin, tirx.min(last, index(end))))

                def tile(i: Any, rows: int = rows, done: int = done, pixel: int = pixel) -> None:
                    at = e.let((i - done) * rows + pixel + self.origin)
                    turn = e.let(turns + self.band * self.blocking.tile_count + i) if self.ahead else 0
                    self._tile((i - start, turn), at, rows, group, weights, channel, width, part)

                e.loop(begin, end, tile)
                done, pixel = done + count, pixel + rows * count

        e.loop(0, self.blocking.slices, tiles)

    def _tile(
        self,
        which: tuple[Any, Any],
        pixel: Any,
        rows: int,
        group: Any,
        weights: Any,
        channel: Any,
        width: int,
        part: Any,
    ) -> None:
        """A tile of a block of ``width`` columns, the first of which is ``channel``.

        Args:
            which: its number and turn, see :class:`_Product`.
        """
        e, c = self.e, self.conv
        chunks = column_chunks(width, self.lanes)
        # A last narrow vector is computed in full: a register file with vectors of two widths spills.
        lanes = width if width < self.lanes and width in (2, 4, 8) else self.lanes
        per_row = len(chunks) * lanes
        accumulators = e.local(rows * per_row)
        number, turn = which
        sums = e.let(number * self.blocking.accumulator_floats)

        def zero() -> None:
            for at in range(0, rows * per_row, lanes):
                e.vstore(accumulators, at, e.f32(0, lanes), lanes)

        def resume() -> None:
            for at in range(0, rows * per_row, lanes):
                e.vstore(accumulators, at, e.vload(self.sums, sums + at, lanes), lanes)

        def wait() -> None:
            for at in range(0, rows * per_row, lanes):
                e.vstore(self.sums, sums + at, e.vload(accumulators, at, lanes), lanes)

        if self.blocking.slices > 1:
            e.branch(tirx.EQ(part, index(0)), zero, resume)
        else:
            zero()
        origins = [self._origin(pixel + r) for r in range(rows)]
        first, elements = e.let(pixel * c.out_channels + channel), (rows - 1) * c.out_channels + width
        operands = {p: e.rebased(self.extra[p], first, elements) for p in self.group.epilogue.dense}
        for operand in operands.values() if self.blocking.slices == 1 else ():
            for r in range(rows):
                for at in range(0, width, LINE):
                    e.prefetch(operand, r * c.out_channels + at, 3)
        full = column_chunks(per_row, lanes)
        product = _Product(accumulators, rows, full, weights, width, number, turn, part)
        inside = self._inside(origins)
        if inside is None:
            self._inner_loops(product, origins, group)
        else:
            e.branch(
                inside,
                lambda: self._inner_loops(product, origins, group),
                lambda: self._border_loops(product, origins, group),
            )
        pitch = self.group.pitch

        def store() -> None:
            # What the same kernel reads must not be written by way of a rebased buffer.
            y, first = self.y, e.let(pixel * pitch + channel + self.shift)
            if not self.rows_apart:
                y, first = e.rebased(self.y, first, (rows - 1) * pitch + width), 0
            for r in range(rows):
                place = unravel(pixel + r, self.group.output_shape[:-1])
                for at, count in chunks:
                    value = e.let(e.vload(accumulators, r * per_row + at, count))
                    offset = r * c.out_channels + at
                    here = {p: (operand, offset) for p, operand in operands.items()}
                    position = (*place, channel + at)
                    stored = self.group.epilogue.apply(e, value, position, count, self.extra, here)
                    e.vstore(y, first + (r * pitch + at), stored, count)

        if self.blocking.slices > 1:
            e.branch(tirx.EQ(part, index(self.blocking.slices - 1)), store, wait)
        else:
            store()

    def _origin(self, pixel: Any) -> tuple[Any, Any, Any]:
        """(image, input row, input column) of the window's first tap; negative in the padding."""
        e, c = self.e, self.conv
        n, y, x = unravel(pixel, (c.batch, c.out_height, c.out_width))
        row = y * c.strides[0] - c.pad_top if c.pad_top else y * c.strides[0]
        column = x * c.strides[1] - c.pad_left if c.pad_left else x * c.strides[1]
        return e.let(n), e.let(row), e.let(column)

    def _address(self, origin: tuple[Any, Any, Any], group: Any) -> Any:
        c = self.conv
        n, y, x = origin
        return ((n * c.height + y) * c.width + x) * c.in_channels + group * c.group_in

    def _inside(self, origins: list[tuple[Any, Any, Any]]) -> Any:
        """Whether no tap of the tile lies in the padding, or None if none ever does.

        A tile that spans two output rows counts as outside: it touches both borders unless the padding is
            on one side only.
        """
        c = self.conv
        if not c.padded:
            return None
        reach_y = (c.kernel[0] - 1) * c.dilation[0]
        reach_x = (c.kernel[1] - 1) * c.dilation[1]
        (n0, y0, x0), (n1, y1, x1) = origins[0], origins[-1]
        tests = [y0 >= 0, y0 + reach_y < c.height, x0 >= 0, x1 + reach_x < c.width]
        if len(origins) > 1:
            tests.append(tirx.EQ(y0, y1))
            if c.batch > 1:
                tests.append(tirx.EQ(n0, n1))
        return tirx.all(*tests)

    def _inner_loops(self, product: _Product, origins: list[tuple[Any, Any, Any]], group: Any) -> None:
        """All taps, from the input directly."""
        e, c = self.e, self.conv
        kh, kw = c.kernel
        rows = product.rows
        if c.pointwise:
            # The rows are neighbours in memory, and so are those of the next tile.
            depth = c.group_in // self.blocking.slices
            first = e.let(self._address(origins[0], group) + product.part * depth)
            pixels = e.rebased(self.x, first, rows * c.in_channels)
            # Without multiply-adds products need registers too: two steps would not fit.
            unroll = 1 if e.few_registers and self.target.arch.startswith("x86") else 2 - depth % 2
            whole = c.groups == 1 and rows > 2 and self.blocking.slices == 1
            lines = -(-rows * c.in_channels // LINE) if whole else 0
            ahead = stream_prefetch(e, pixels, rows * c.in_channels, lines, depth, unroll)
            element = lambda r, k: e.load(pixels, k + r * c.in_channels)  # noqa: E731
            self._accumulate(product, product.part, depth, element, unroll, ahead)
            return
        row, column = c.dilation[0] * c.width * c.in_channels, c.dilation[1] * c.in_channels
        step = c.strides[1] * c.in_channels
        # Inside of a padded image a tile lies in one output row, see _inside: one pointer serves its pixels.
        bases = [e.let(self._address(origin, group)) for origin in origins[: 1 if c.padded else None]]

        def taps(part: Any, offset: Any, depth: int) -> None:
            element = lambda r, k: e.load(self.x, bases[r] + offset + k)  # noqa: E731
            if c.padded:
                view = e.rebased(self.x, e.let(bases[0] + offset), (rows - 1) * step + depth)
                element = lambda r, k: e.load(view, k + r * step)  # noqa: E731
            unroll = next((u for u in (2, 3) if depth % u == 0), 1)
            if self.target.vector_registers < 32 and not self.target.arch.startswith("x86"):
                # LLVM mixes the steps: weights, broadcasts and pointers of several do not fit the registers.
                unroll = 1
            self._accumulate(product, part, depth, element, unroll)

        def tap_row(i: Any) -> None:
            if self.contiguous:
                taps(i, e.let(i * row), kw * c.in_channels)
            else:
                e.loop(0, kw, lambda j: taps(i * kw + j, e.let(i * row + j * column), c.group_in))

        if self.blocking.slices > 1:
            tap_row(product.part)
        else:
            e.loop(0, kh, tap_row)

    def _border_loops(self, product: _Product, origins: list[tuple[Any, Any, Any]], group: Any) -> None:
        """Tap by tap; a pixel in the padding is read from the zeros behind the weights."""
        e, c = self.e, self.conv
        kh, kw = c.kernel

        def tap(i: Any, j: Any) -> None:
            pointers = []
            for n, y, x in origins:
                row, column = e.let(y + i * c.dilation[0]), e.let(x + j * c.dilation[1])
                valid = tirx.all(row >= 0, row < c.height, column >= 0, column < c.width)
                pointers.append(self._select(valid, e.let(self._address((n, row, column), group))))
            # On x86 a pointer for each row leaves none for prefetching.
            fetch = len(pointers) <= 8 or not self.target.arch.startswith("x86")
            element = lambda r, k: e.load(pointers[r], k)  # noqa: E731
            self._accumulate(product, i * kw + j, c.group_in, element, 1, fetch=fetch)

        if self.blocking.slices > 1:
            e.loop(0, kw, lambda j: tap(product.part, j))
        else:
            e.loop(0, kh, lambda i: e.loop(0, kw, lambda j: tap(i, j)))

    def _accumulate(
        self,
        product: _Product,
        part: Any,
        depth: int,
        row: Callable[[int, Any], Any],
        unroll: int,
        ahead: Callable[[Any], None] | None = None,
        fetch: bool = True,
    ) -> None:
        """Part ``part`` of the reduction, ``depth`` steps; fetches this tile's share of the next weights.

        Args:
            row: element ``k`` of row ``r``, as for :func:`accumulate`.
            ahead: what else to prefetch.
            fetch: whether to prefetch weights.
        """
        e, c = self.e, self.conv
        prefetches = [] if ahead is None else [ahead]
        large = c.depth * c.out_channels * 4 > self.target.l1d_bytes // 2
        if fetch and product.rows > 2 and large and c.groups * self.blocking.column_blocks > 1:
            alone = self.blocking.weights_first and self.blocking.slices == 1
            sweep = -(
                -self.blocking.tile_count
                * self.blocking.bands
                // (self.blocking.shares if alone else self.blocking.pixel_blocks)
            )
            share = -(-depth * product.width // (LINE * sweep))
            size = c.depth // self.blocking.slices  # of what follows the current weights
            parts = size // depth
            turn = product.number * parts + part - product.part * parts
            start = product.weights + (product.part + 1) * (size * product.width) + turn * (share * LINE)
            prefetches.append(stream_prefetch(e, self.w, e.let(start), share, depth, unroll))
        if fetch and self.ahead and product.rows > 2:
            parts = c.depth // depth
            tiles = c.groups * self.blocking.column_blocks * self.blocking.bands * self.blocking.tile_count
            share = -(-self.ahead // (4 * LINE * tiles * parts))
            start = e.let((product.turn * parts + part) * (share * LINE))
            prefetches.append(stream_prefetch(e, self.later, start, share, depth, unroll, locality=1))

        def prefetch(step: Any) -> None:
            for one in prefetches:
                one(step)

        accumulate(
            e,
            product.accumulators,
            product.rows,
            product.chunks,
            depth,
            row,
            self.w,
            e.let(product.weights + part * (depth * product.width)),
            product.width,
            unroll,
            prefetch,
            rest=True,
        )

    def _select(self, valid: Any, at: Any) -> Any:
        """A buffer that starts at the input's element ``at`` if valid, else at the zeros."""
        e = self.e
        buffer = tirx.decl_buffer((max(1, self.conv.group_in),), "float32", e.name("row"))
        var = Var(e.name("row_p"), buffer_data_pointer_type(buffer))
        inside = tirx.address_of(e.load(self.x, at))
        zeros = tirx.address_of(e.load(self.w, self.zero_at))
        e.add(Bind(var, Call("prim.if_then_else", [valid, inside, zeros], ret_ty=var.ty)))
        e.add(DeclBuffer(buffer, data=var))
        return buffer

"""Dense and grouped convolution, NHWC, as an implicit matrix product.

Rows are output pixels, columns are output channels. Where the taps along the width are neighbours (dilation
1, one group), a row of the kernel is one contiguous run of KW * IC elements of the input, so the inner
reduction is long. Nothing is padded in memory: a tile whose window lies inside the image reads it directly;
at the border each tap takes its pixel's pointer, or a pointer to zeros that stand behind the packed
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.ir import Call
from tvm.tirx import DeclBuffer, Var
from tvm.tirx.buffer import buffer_data_pointer_type
from tvm.tirx.stmt import Bind

from edgepack.graph.lower import Group
from edgepack.kernels.contract import Array, Implementation, Operand, Packing, RuleError, Stage
from edgepack.kernels.emit import Emitter, balanced, div, index, mod, unravel
from edgepack.kernels.gemm import LINE, Tile, accumulate, column_chunks, stream_prefetch, tile_for
from edgepack.kernels.group import AnchoredGroup, anchored
from edgepack.target import CpuTarget

__all__ = ["Conv2d", "ImplicitGemm", "conv2d", "pack_weights"]

#: Weights up to this size stay in the L2 cache while pixels stream past them; larger ones are read once.
RESIDENT_WEIGHTS = 256 * 1024


@dataclass(frozen=True)
class Conv2d:
    """Geometry of a convolution: NHWC input, HWIO weights, one value per dimension (height, width)."""

    batch: int
    height: int
    width: int
    in_channels: int
    out_height: int
    out_width: int
    out_channels: int
    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    pad_top: int
    pad_left: int
    pad_bottom: int
    pad_right: int
    groups: int

    @classmethod
    def of(cls, group: AnchoredGroup) -> Conv2d:
        """Reads the geometry off the anchor. RuleError for another layout."""
        a = group.anchor.attributes
        if a["layout"] != "NHWC/HWIO":
            raise RuleError(f"layout {a['layout']}")
        n, h, w, c = group.operand_shape(0)
        kh, kw, _, oc = group.operand_shape(1)
        _, oh, ow, _ = group.output_shape
        top, left, bottom, right = (int(p) for p in a["padding"])
        sh, sw = (int(s) for s in a["strides"])
        dh, dw = (int(d) for d in a["dilation"])
        groups = int(a["groups"])
        return cls(n, h, w, c, oh, ow, oc, (kh, kw), (sh, sw), (dh, dw), top, left, bottom, right, groups)

    @property
    def padded(self) -> bool:
        return any((self.pad_top, self.pad_left, self.pad_bottom, self.pad_right))

    @property
    def group_in(self) -> int:
        """Input channels of one group."""
        return self.in_channels // self.groups

    @property
    def group_out(self) -> int:
        """Output channels of one group."""
        return self.out_channels // self.groups

    @property
    def pixels(self) -> int:
        return self.batch * self.out_height * self.out_width

    @property
    def depth(self) -> int:
        """Length of the reduction."""
        return self.kernel[0] * self.kernel[1] * self.group_in

    @property
    def flops(self) -> int:
        return 2 * self.pixels * self.out_channels * self.depth


def pack_weights(weights: Array, groups: int, columns: int, zeros: int) -> Array:
    """HWIO to [group][block of columns][KH][KW][IC / groups][columns], then ``zeros`` zeros.

    Args:
        weights: (KH, KW, IC / groups, OC), the output channels of a group next to each other.
        columns: width of a block; the last block of a group has what is left.
    """
    per_group = weights.shape[3] // groups
    parts = []
    for first in range(0, weights.shape[3], per_group):
        for at in range(0, per_group, columns):
            block = weights[..., first + at : first + min(at + columns, per_group)]
            parts.append(np.ascontiguousarray(block).reshape(-1))
    parts.append(np.zeros(zeros, weights.dtype))
    return np.concatenate(parts)


def conv2d(group: Group, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``conv2d.igemm``."""
    found = anchored(group, ["conv2d"])
    conv = Conv2d.of(found)
    if found.operand(1) not in constants:
        raise RuleError("the weights are not constant")
    tile = tile_for(target, conv.pixels, conv.group_out)
    builder = ImplicitGemm(conv, tile, found, target)
    stage = builder.build()
    zeros = builder.zeros
    packing = Packing(
        found.operand(1),
        f"conv2d:{conv.groups}:{tile.columns}:{zeros}",
        lambda w: pack_weights(w, conv.groups, tile.columns, zeros),
    )
    return Implementation(
        "conv2d.igemm",
        (stage,),
        (packing,),
        scratch=builder.scratch,
        parameters=builder.parameters(),
        flops=conv.flops,
    )


@dataclass(frozen=True)
class _Product:
    """One tile at work.

    Attributes:
        chunks: its columns as full vectors, see :func:`column_chunks`.
        weights: where its columns' weights begin.
        number: of the tile, among those that are done before the next weights are.
        part: of the reduction, see :meth:`ImplicitGemm._slices`.
    """

    accumulators: Any
    rows: int
    chunks: list[tuple[int, int]]
    weights: Any
    width: int
    number: Any
    part: Any


class ImplicitGemm:
    """Emits the kernel of one convolution. Tasks are (block of columns, block of tiles) pairs."""

    def __init__(self, conv: Conv2d, tile: Tile, group: AnchoredGroup, target: CpuTarget) -> None:
        self.conv, self.tile, self.group, self.target = conv, tile, group, target
        self.lanes = target.lanes("float32")
        self.e = Emitter(self.lanes, strict_math=self.target.strict_math)
        self.tiles = balanced(conv.pixels, tile.rows)
        self.tile_count = sum(count for _, count in self.tiles)
        self.column_blocks = -(-conv.group_out // tile.columns)  # per group
        self.weights_first = conv.depth * conv.group_out * 4 > RESIDENT_WEIGHTS
        self.shares = self._shares()
        self.slices = self._slices()
        self.pixel_blocks = self._pixel_blocks()
        #: Behind the packed weights: what pixels in the padding read, and what a last narrow vector does.
        self.zeros = max(conv.group_in if conv.padded else 0, self.lanes - 1)
        self.contiguous = conv.dilation[1] == 1 and conv.groups == 1

    def _shares(self) -> int:
        """Parts of the pixels that are done one after the other, the columns anew in each.

        With large weights and one part, threads share out the columns, and each reads all of the input, half
        of which the other thread wrote. From 96 rows for each thread on it is faster to read the weights
        once for each thread: multiplying takes several times as long as that.
        """
        threads = self.target.threads
        return threads if self.weights_first and self.conv.pixels >= 96 * threads else 1

    def _slices(self) -> int:
        """Parts of the reduction that are done one after the other, for all tiles of a task in each.

        More than one where the weights of a block of columns and the next ones would push each other out of
        the L2 cache; the tiles' sums wait in the thread's scratch.
        """
        c, kh = self.conv, self.conv.kernel[0]
        nbytes = c.depth * min(self.tile.columns, c.group_out) * 4
        if nbytes <= self.target.l2_bytes * 3 // 16 or self.tile_count == 1:
            return 1
        if c.kernel != (1, 1):
            return kh
        enough = (
            n for n in range(2, 17) if nbytes <= n * self.target.l2_bytes // 8 and c.depth % (2 * n) == 0
        )
        return next(enough, 1)

    @property
    def scratch(self) -> tuple[int, ...]:
        """Bytes of scratch of one thread: the sums of a task's tiles, if they have to wait."""
        tiles = -(-self.tile_count // self.pixel_blocks)
        return (tiles * self._sums * 4,) if self.slices > 1 else ()

    @property
    def _sums(self) -> int:
        """Floats in the sums of a tile."""
        return self.tile.rows * (-(-self.tile.columns // self.lanes) * self.lanes)

    def _pixel_blocks(self) -> int:
        """Blocks of tiles, equally many tasks for each thread where that is possible.

        With small weights a block is a few tiles, so that all columns of a row of the output are written
        soon after each other. With large weights its input fits half of the L2 cache.
        """
        c, threads = self.conv, self.target.threads
        columns = c.groups * self.column_blocks
        most = max(1, self.tile_count // (2 if self.weights_first else 4))
        if not self.weights_first:
            count = min(most, 16 * threads) if columns == 1 else most
            return count // threads * threads or count
        bytes_per_tile = max(1, self.tile.rows * c.strides[0] * c.strides[1] * c.in_channels * 4)
        fits = max(4, self.target.l2_bytes // 2 // bytes_per_tile)
        if self.slices > 1:  # the sums too
            fits = max(4, min(fits, self.target.l2_bytes // 16 // (self._sums * 4)))
        least = min(most, max(-(-self.tile_count // fits), -(-4 * threads // columns), self.shares))
        if self.shares == 1:
            more = range(least, min(most, least + threads))
            return next((n for n in more if n * columns % threads == 0), least)
        return min(-(-least // threads), most // threads) * threads

    def _first_tile(self, block: Any) -> Any:
        """Of a block of pixels; blocks differ by at most one tile."""
        size, rest = divmod(self.tile_count, self.pixel_blocks)
        return block * size + tirx.min(block, index(rest)) if rest else block * size

    def parameters(self) -> dict[str, Any]:
        """What was chosen, for reports."""
        return {
            "tile": f"{self.tile.rows}x{self.tile.columns}",
            "order": "channels" if self.weights_first else "pixels",
            "blocks": self.pixel_blocks,
        }

    def build(self) -> Stage:
        e, c = self.e, self.conv
        self.zero_at = c.depth * c.out_channels
        self.x = e.pointer(c.batch * c.height * c.width * c.in_channels)
        self.w = e.pointer(self.zero_at + self.zeros)
        self.extra, operands = self.group.epilogue_pointers(e)
        self.y = e.pointer(self.group.output_elements)
        column_blocks = c.groups * self.column_blocks
        ends = [Operand("output", 0)]
        if self.slices > 1:
            self.sums = e.pointer(self.scratch[0] // 4)
            ends.append(Operand("scratch", 0))
        e.tasks(self._task)
        begin = (Operand("param", self.group.operand(0)), Operand("packed", 0))
        return Stage(e.finish(), column_blocks * self.pixel_blocks, (*begin, *operands, *ends))

    def _task(self, task: Any) -> None:
        e = self.e
        blocks = self.conv.groups * self.column_blocks
        if self.weights_first:
            each = self.pixel_blocks // self.shares
            share, block, inner = (e.let(index(i)) for i in unravel(task, (self.shares, blocks, each)))
            sweep, pixels = e.let(share * each), e.let(share * each + inner)
        else:
            sweep, block = e.let(div(task, blocks)), e.let(mod(task, blocks))
            pixels = sweep
        self.sweep = e.let(self._first_tile(sweep))
        first, last = e.let(self._first_tile(pixels)), e.let(self._first_tile(pixels + 1))
        group = e.let(div(block, self.column_blocks))
        column = e.let(mod(block, self.column_blocks))
        tail = self.conv.group_out - (self.column_blocks - 1) * self.tile.columns

        def columns(width: int) -> None:
            self._pixels(group, column, width, first, last)

        if tail == self.tile.columns or self.column_blocks == 1:
            columns(tail)
        else:
            e.branch(
                column < index(self.column_blocks - 1),
                lambda: columns(self.tile.columns),
                lambda: columns(tail),
            )

    def _pixels(self, group: Any, column: Any, width: int, first: Any, last: Any) -> None:
        """All tiles [first, last) for one block of ``width`` columns."""
        e, c = self.e, self.conv
        weights = e.let((group * c.group_out + column * self.tile.columns) * c.depth)
        channel = e.let(group * c.group_out + column * self.tile.columns)
        start = first if self.slices > 1 else self.sweep

        def tiles(part: Any) -> None:
            done, pixel = 0, 0
            for rows, count in self.tiles:
                begin = e.let(tirx.max(first, index(done)))
                end = e.let(tirx.max(begin, tirx.min(last, index(done + count))))

                def tile(i: Any, rows: int = rows, done: int = done, pixel: int = pixel) -> None:
                    at = e.let((i - done) * rows + pixel)
                    self._tile(i - start, at, rows, group, weights, channel, width, part)

                e.loop(begin, end, tile)
                done, pixel = done + count, pixel + rows * count

        e.loop(0, self.slices, tiles)

    def _tile(
        self,
        number: Any,
        pixel: Any,
        rows: int,
        group: Any,
        weights: Any,
        channel: Any,
        width: int,
        part: Any,
    ) -> None:
        """Tile ``number`` of a block of ``width`` columns, the first of which is ``channel``."""
        e, c = self.e, self.conv
        chunks = column_chunks(width, self.lanes)
        # A last narrow vector is computed in full: a register file with vectors of two widths spills.
        lanes = width if width in (2, 4, 8) else self.lanes
        per_row = len(chunks) * lanes
        accumulators = e.local(rows * per_row)
        sums = e.let(number * self._sums)

        def zero() -> None:
            for at in range(0, rows * per_row, lanes):
                e.vstore(accumulators, at, e.f32(0, lanes), lanes)

        def resume() -> None:
            for at in range(0, rows * per_row, lanes):
                e.vstore(accumulators, at, e.vload(self.sums, sums + at, lanes), lanes)

        def wait() -> None:
            for at in range(0, rows * per_row, lanes):
                e.vstore(self.sums, sums + at, e.vload(accumulators, at, lanes), lanes)

        if self.slices > 1:
            e.branch(tirx.EQ(part, index(0)), zero, resume)
        else:
            zero()
        origins = [self._origin(pixel + r) for r in range(rows)]
        first, elements = e.let(pixel * c.out_channels + channel), (rows - 1) * c.out_channels + width
        operands = {p: e.rebased(self.extra[p], first, elements) for p in self.group.epilogue.dense}
        for operand in operands.values() if self.slices == 1 else ():
            for r in range(rows):
                for at in range(0, width, LINE):
                    e.prefetch(operand, r * c.out_channels + at, 3)
        full = column_chunks(per_row, lanes)
        product = _Product(accumulators, rows, full, weights, width, number, part)
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
            y = e.rebased(self.y, e.let(pixel * pitch + channel), (rows - 1) * pitch + width)
            for r in range(rows):
                place = unravel(pixel + r, self.group.output_shape[:-1])
                for at, count in chunks:
                    value = e.let(e.vload(accumulators, r * per_row + at, count))
                    offset = r * c.out_channels + at
                    here = {p: (operand, offset) for p, operand in operands.items()}
                    position = (*place, channel + at)
                    stored = self.group.epilogue.apply(e, value, position, count, self.extra, here)
                    e.vstore(y, r * pitch + at, stored, count)

        if self.slices > 1:
            e.branch(tirx.EQ(part, index(self.slices - 1)), store, wait)
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
        if c.kernel == (1, 1) and c.strides == (1, 1) and not c.padded:
            # The rows are neighbours in memory, and so are those of the next tile.
            depth = c.group_in // self.slices
            first = e.let(self._address(origins[0], group) + product.part * depth)
            pixels = e.rebased(self.x, first, rows * c.in_channels)
            unroll = 2 - depth % 2
            whole = c.groups == 1 and rows > 2 and self.slices == 1
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
                # Elsewhere weights and broadcasts of three steps do not fit the registers.
                unroll = 2
            self._accumulate(product, part, depth, element, unroll)

        def tap_row(i: Any) -> None:
            if self.contiguous:
                taps(i, e.let(i * row), kw * c.in_channels)
            else:
                e.loop(0, kw, lambda j: taps(i * kw + j, e.let(i * row + j * column), c.group_in))

        if self.slices > 1:
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
            self._accumulate(product, i * kw + j, c.group_in, lambda r, k: e.load(pointers[r], k), 1)

        if self.slices > 1:
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
    ) -> None:
        """Part ``part`` of the reduction, ``depth`` steps; fetches this tile's share of the next weights.

        Args:
            row: element ``k`` of row ``r``, as for :func:`accumulate`.
            ahead: what else to prefetch.
        """
        e, c = self.e, self.conv
        prefetches = [] if ahead is None else [ahead]
        large = c.depth * c.out_channels * 4 > self.target.l1d_bytes // 2
        if product.rows > 2 and large and c.groups * self.column_blocks > 1:
            alone = self.weights_first and self.slices == 1
            sweep = -(-self.tile_count // (self.shares if alone else self.pixel_blocks))
            share = -(-depth * product.width // (LINE * sweep))
            size = c.depth // self.slices  # of what follows the current weights
            parts = size // depth
            turn = product.number * parts + part - product.part * parts
            start = product.weights + (product.part + 1) * (size * product.width) + turn * (share * LINE)
            prefetches.append(stream_prefetch(e, self.w, e.let(start), share, depth, unroll))

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

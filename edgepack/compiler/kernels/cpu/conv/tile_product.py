"""The reduction of one register tile of a convolution.

It multiplies the windows of a few output pixels, in the image as it lies in memory, with the weights of a few
output channels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.depth_window import first_plane
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.weight_panels import TileColumns, WeightPanels
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    LeftOperand,
    Steps,
    stream_prefetch,
)
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CACHE_LINE_BYTES

__all__ = ["Columns", "GemmOperands", "Origin", "TileAt", "TileProduct"]

#: Part of the taps that read the image, from which on it is not asked tap by tap whether any pixel does.
MOSTLY_INSIDE = 0.8


@dataclass(frozen=True)
class Origin:
    """The first tap of a pixel's window.

    Attributes:
        image: number of its image, of all of the input's.
        plane: number of its image in the volume; negative in the padding, as are row and column.
        row, column: its pixel.
    """

    image: Any
    plane: Any
    row: Any
    column: Any


@dataclass(frozen=True)
class GemmOperands:
    """The buffers of the kernel.

    Attributes:
        x: the image, (N, H, W, C).
        weights: packed units of the micro-kernel, with zeros behind them.
        padding: what pixels in the padding read: a buffer, and where in it as many units of padding begin as
            a group has input channels.
        epilogue: parameters that the epilogue reads, by their number.
        y: the output; None where rows of it are written elsewhere.
        sums: scratch for the sums of tiles that wait for the next part of the reduction, or None.
        prefetched: constants of a later call, or None.
    """

    x: Any
    weights: Any
    padding: tuple[Any, int]
    epilogue: dict[int, Any]
    y: Any = None
    sums: Any = None
    prefetched: Any = None


@dataclass(frozen=True)
class Columns:
    """A block of output channels, or those of a register tile in it.

    Attributes:
        group: which of the convolution's groups they belong to.
        weights: where the block's packed weights begin.
        channel: the first output channel, and ``width`` how many there are.
        prefetch_index: how many tiles all blocks before it have.
        panels: how the block's weights are read.
        part: which of the block's register tiles has these; None: there is one.
    """

    group: Any
    weights: Any
    channel: Any
    width: int
    prefetch_index: Any
    panels: WeightPanels
    part: TileColumns | None = None

    @property
    def first(self) -> int:
        """The first of them in the block."""
        return self.part.first if self.part else 0

    @property
    def begins(self) -> bool:
        """Whether no register tile of the block is before them."""
        return self.part is None or self.part.begins

    @property
    def ends(self) -> bool:
        """Whether none is behind them."""
        return self.part is None or self.part.ends

    def tiles(self, e: Emitter) -> list[Columns]:
        """Those of each register tile of the block."""
        parts = self.panels.tiles
        if len(parts) == 1:
            return [self]
        return [
            replace(self, channel=e.let(self.channel + part.first), width=part.width, part=part)
            for part in parts
        ]


@dataclass(frozen=True)
class TileAt:
    """A tile: ``rows`` output pixels from ``pixel`` on, and a block of output channels.

    Attributes:
        index: the tile's number among those that are done before the next weights are needed.
        prefetch_index: the tile's number among all of the kernel.
        k_block: which slice of the reduction.
    """

    pixel: Any
    rows: int
    columns: Columns
    index: Any
    prefetch_index: Any
    k_block: Any


class TileProduct:
    """Emits the reduction of one tile after the other, for :class:`ImplicitGemm`.

    Args:
        prefetch_bytes: bytes of a later call's constants, of which each tile fetches its share.
    """

    def __init__(
        self, e: Emitter, conv: Conv2d, blocking: Blocking, operands: GemmOperands, prefetch_bytes: int
    ) -> None:
        self.e, self.conv, self.blocking, self.operands = e, conv, blocking, operands
        self.micro, self.target = blocking.micro, blocking.micro.target
        self.prefetch_bytes = prefetch_bytes
        #: Whether the taps of a row of the window are neighbours in memory.
        self.contiguous = conv.dilation[1] == 1 and conv.groups == 1

    def origin(self, pixel: Any) -> Origin:
        """Where the window of an output pixel begins."""
        e, c = self.e, self.conv
        n, y, x = unravel(pixel, (c.batch, c.out_height, c.out_width))
        image, plane = first_plane(e, c.depth_window, n)
        row = _first(e, y, c.strides[0], c.pad_top)
        column = _first(e, x, c.strides[1], c.pad_left)
        return Origin(e.let(image), plane, e.let(row), e.let(column))

    def add(self, sums: Accumulators, tile: TileAt, origins: list[Origin]) -> None:
        """Adds the products of a part of the reduction; ``origins`` are those of the tile's pixels."""
        inside, inner = self.inside(origins), self.micro.begin(self.e, sums)
        if inside is None:
            self._whole_windows(inner, tile, origins)
        else:
            self.e.branch(
                inside,
                lambda: self._whole_windows(inner, tile, origins),
                lambda: self._cut_windows(inner, tile, origins),
            )
        self.micro.end(self.e, inner, sums)

    def address(self, origin: Origin, group: Any) -> Any:
        """Where in the image the pixel of a tap begins, or its part of a group."""
        c = self.conv
        pixel = (origin.image * c.height + origin.row) * c.width + origin.column
        return pixel * c.in_channels + group * c.group_in

    def inside(self, origins: list[Origin]) -> Any:
        """Whether no tap of the tile lies in the padding, or None if none ever does.

        A tile that spans two output rows counts as outside: it touches both borders unless the padding is
        on one side only.
        """
        c = self.conv
        if not c.padded:
            return None
        reach_y = (c.kernel[0] - 1) * c.dilation[0]
        reach_x = (c.kernel[1] - 1) * c.dilation[1]
        a, z = origins[0], origins[-1]
        tests = [a.row >= 0, a.row + reach_y < c.height, a.column >= 0, z.column + reach_x < c.width]
        if c.depth_window:
            tests += [
                a.plane >= 0,
                a.plane + (c.depth_window.kernel - 1) * c.depth_window.dilation < c.depth_window.size,
            ]
        if len(origins) > 1:
            tests.append(tirx.EQ(a.row, z.row))
            if c.batch > 1:
                tests.append(tirx.EQ(a.image, z.image))
        return tirx.all(*tests)

    # Windows inside of the image --------------------------------------------------------------------------

    def _whole_windows(self, sums: Accumulators, tile: TileAt, origins: list[Origin]) -> None:
        """All taps, from the input directly."""
        if self.conv.pointwise:
            self._pixels(sums, tile, origins)
            return
        e, c = self.e, self.conv
        # Inside of a padded image a tile lies in one output row, see inside(): one pointer serves its pixels.
        group = tile.columns.group
        bases = [e.let(self.address(origin, group)) for origin in origins[: 1 if c.padded else None]]
        column, kw = c.dilation[1] * c.in_channels, c.kernel[1]

        def taps(part: Any, offset: Any, depth: int) -> None:
            self._taps(sums, tile, bases, (part, offset, depth))

        def tap_row(i: Any) -> None:
            row = self._line(i) * (c.width * c.in_channels)
            if self.contiguous:
                taps(i, e.let(row), kw * c.in_channels)
            else:
                e.loop(0, kw, lambda j: taps(i * kw + j, e.let(row + j * column), c.group_in))

        if self.blocking.k_blocks > 1:
            tap_row(tile.k_block)
        else:
            e.loop(0, c.rows, tap_row)

    def _line(self, row: Any) -> Any:
        """How many rows of the input lie between the first row of the window and another."""
        c = self.conv
        if c.depth_window is None:
            return row * c.dilation[0]
        plane, row = div(row, c.kernel[0]), mod(row, c.kernel[0])
        return plane * (c.depth_window.dilation * c.height) + row * c.dilation[0]

    def _pixels(self, sums: Accumulators, tile: TileAt, origins: list[Origin]) -> None:
        """A pointwise convolution: pixels are neighbours in memory, and so are those of the next tile."""
        e, c, rows = self.e, self.conv, tile.rows
        depth = c.group_in // self.blocking.k_blocks
        first = e.let(self.address(origins[0], tile.columns.group) + tile.k_block * depth)
        pixels = e.rebased(self.operands.x, first, rows * c.in_channels)
        # Where products need registers too, two steps would not fit.
        unroll = 1 if self.target.few_registers and self.target.separate_multiply_add else 2 - depth % 2
        whole = c.groups == 1 and rows > 2 and self.blocking.k_blocks == 1 and tile.columns.ends
        line = CACHE_LINE_BYTES // DTYPE_BYTES[str(pixels.dtype)]
        lines = -(-rows * c.in_channels // line) if whole else 0
        following = stream_prefetch(e, pixels, rows * c.in_channels, lines, depth, unroll)
        prefetches = [following, *self._prefetches(tile, tile.k_block, depth, unroll)]
        element = lambda r, k, n=1: e.vload(pixels, k + r * c.in_channels, n)  # noqa: E731
        self._add(sums, tile, element, tile.k_block, Steps(depth, unroll, True, _all(prefetches)))

    def _taps(self, sums: Accumulators, tile: TileAt, bases: list[Any], which: tuple[Any, Any, int]) -> None:
        """Taps that are neighbours in memory.

        Args:
            bases: where the windows of the tile's pixels begin, or that of the first, for all.
            which: part of the reduction, offset from there, and number of input elements.
        """
        e, c = self.e, self.conv
        part, offset, depth = which
        step = c.strides[1] * c.in_channels
        element = lambda r, k, n=1: e.vload(self.operands.x, bases[r] + offset + k, n)  # noqa: E731
        if c.padded:
            view = e.rebased(self.operands.x, e.let(bases[0] + offset), (tile.rows - 1) * step + depth)
            element = lambda r, k, n=1: e.vload(view, k + r * step, n)  # noqa: E731
        unroll = next((u for u in (2, 3) if depth % u == 0), 1)
        if self.target.vector_registers < 32 and not self.target.arithmetic_reads_memory:
            # LLVM mixes the steps: weights, broadcasts and pointers of several do not fit the registers.
            unroll = 1
        prefetches = self._prefetches(tile, part, depth, unroll)
        self._add(sums, tile, element, part, Steps(depth, unroll, True, _all(prefetches)))

    # Windows that reach into the padding ------------------------------------------------------------------

    def _cut_windows(self, sums: Accumulators, tile: TileAt, origins: list[Origin]) -> None:
        """Tap by tap; a pixel in the padding is read from a row of it. Where windows are mostly outside, and
        the padding is zero, a tap for which all pixels are outside is left out."""
        e, c = self.e, self.conv
        kw, skips = c.kernel[1], c.inside < MOSTLY_INSIDE and c.outside == 0

        def tap(i: Any, j: Any) -> None:
            pointers, inside = [], []
            for origin in origins:
                at = self.tap(origin, i, j)
                valid = tirx.all(at.row >= 0, at.row < c.height, at.column >= 0, at.column < c.width)
                if c.depth_window:
                    valid = tirx.all(valid, at.plane >= 0, at.plane < c.depth_window.size)
                if skips:
                    valid = e.let(valid)
                    inside.append(valid)
                place = e.let(self.address(at, tile.columns.group))
                pointers.append(e.either(valid, (self.operands.x, place), self.operands.padding, c.group_in))
            # With few registers for pointers, those of the rows leave none for prefetching.
            fetch = len(pointers) <= 8 or self.target.pointer_registers > 16
            part = i * kw + j
            prefetches = self._prefetches(tile, part, c.group_in, 1) if fetch else []
            element = lambda r, k, n=1: e.vload(pointers[r], k, n)  # noqa: E731
            steps = Steps(c.group_in, 1, True, _all(prefetches))
            if skips:
                e.branch(tirx.any(*inside), lambda: self._add(sums, tile, element, part, steps))
            else:
                self._add(sums, tile, element, part, steps)

        if self.blocking.k_blocks > 1:
            e.loop(0, kw, lambda j: tap(tile.k_block, j))
        else:
            e.loop(0, c.rows, lambda i: e.loop(0, kw, lambda j: tap(i, j)))

    def tap(self, origin: Origin, i: Any, j: Any) -> Origin:
        """Tap ``j`` of row ``i`` of the window that begins at ``origin``."""
        e, c = self.e, self.conv
        image, plane = origin.image, origin.plane
        if c.depth_window:
            behind = e.let(div(i, c.kernel[0]) * c.depth_window.dilation)
            image, plane, i = e.let(image + behind), e.let(plane + behind), e.let(mod(i, c.kernel[0]))
        row, column = e.let(origin.row + i * c.dilation[0]), e.let(origin.column + j * c.dilation[1])
        return Origin(image, plane, row, column)

    # Products and prefetches ------------------------------------------------------------------------------

    def _add(self, sums: Accumulators, tile: TileAt, left: LeftOperand, part: Any, steps: Steps) -> None:
        """``steps.depth`` steps of the reduction, its part number ``part``."""
        columns = tile.columns
        weights = self.operands.weights, columns.weights
        before = part, steps.depth
        right = columns.panels.matrix(self.e, weights, before, columns.first, sums.chunks)
        self.micro.add_product(self.e, sums, left, right, steps)

    def _prefetches(self, tile: TileAt, part: Any, depth: int, unroll: int) -> list[Callable[[Any], None]]:
        """What a part of ``depth`` steps fetches: its share of the next weights, and of a later call's."""
        found: list[Callable[[Any], None]] = []
        c, blocking = self.conv, self.blocking
        if tile.rows <= 2 or not tile.columns.begins:
            return found
        weights = c.depth * c.out_channels * self.micro.unit_bytes
        if weights > self.target.l1d_bytes // 2 and c.groups * blocking.column_blocks > 1:
            found.append(self._next_weights(tile, part, depth, unroll))
        if self.prefetch_bytes:
            found.append(self.later(tile, part, depth, unroll))
        return found

    def later(self, tile: TileAt, part: Any, depth: int, unroll: int) -> Callable[[Any], None]:
        """The share of a part of ``depth`` steps of a later call's constants."""
        e, c, blocking = self.e, self.conv, self.blocking
        parts = c.depth // depth
        tiles = c.groups * blocking.column_blocks * blocking.thread_rows * blocking.tile_count
        share = -(-self.prefetch_bytes // (CACHE_LINE_BYTES * tiles * parts))
        start = e.let((tile.prefetch_index * parts + part) * (share * e.line))
        return stream_prefetch(e, self.operands.prefetched, start, share, depth, unroll, locality=1)

    def _next_weights(self, tile: TileAt, part: Any, depth: int, unroll: int) -> Callable[[Any], None]:
        """The share of one tile and part of the weights that follow the current ones."""
        e, blocking, columns = self.e, self.blocking, tile.columns
        alone = blocking.weight_stationary and blocking.k_blocks == 1
        times = blocking.passes if alone else blocking.row_blocks
        sweep = -(-blocking.tile_count * blocking.thread_rows // times)
        line = CACHE_LINE_BYTES // DTYPE_BYTES[str(self.operands.weights.dtype)]
        block = columns.panels.block
        share = -(-depth * block // (line * sweep))
        size = self.conv.depth // blocking.k_blocks
        parts = size // depth
        turn = tile.index * parts + part - tile.k_block * parts
        if blocking.k_blocks > 1 and columns.panels.count > 1:
            start = columns.weights + columns.panels.in_next_slice(tile.k_block, size, turn * (share * line))
        else:
            start = columns.weights + (tile.k_block + 1) * (size * block) + turn * (share * line)
        return stream_prefetch(e, self.operands.weights, e.let(start), share, depth, unroll)


def _first(e: Emitter, place: Any, stride: int, pad: int) -> Any:
    """Where a window begins along a side; where code is to be short alike for strides of 1 and no padding."""
    if e.short and not isinstance(place, int):
        return tirx.Sub(tirx.Mul(place, index(stride)), index(pad))
    return place * stride - pad if pad else place * stride


def _all(prefetches: list[Callable[[Any], None]]) -> Callable[[Any], None]:
    def prefetch(step: Any) -> None:
        for one in prefetches:
            one(step)

    return prefetch

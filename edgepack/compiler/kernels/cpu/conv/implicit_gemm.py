"""Dense and grouped convolution, NHWC, as an implicit matrix product.

Rows are output pixels, columns are output channels. Where the taps along the width are neighbours (dilation
1, one group), a row of the kernel is one contiguous run of KW * IC elements of the input, so the inner
reduction is long. Nothing is padded in memory: a tile whose window lies inside the image reads it directly;
at the border each tap takes its pixel's pointer, or a pointer to zeros that stand behind the packed
weights.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.contract import Array, Implementation, Packing, Stage
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule, divided, propose
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d, pack_weights
from edgepack.compiler.kernels.cpu.conv.rounded_input import rounded_input
from edgepack.compiler.kernels.cpu.conv.tile_product import Columns, GemmOperands, TileAt, TileProduct
from edgepack.compiler.kernels.cpu.conv.window import Window
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, column_chunks
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["OPEN", "ImplicitGemm", "Pixels"]

#: All is left to the cost model.
OPEN = GemmSchedule()


@dataclass(frozen=True)
class Pixels:
    """The tiles that are done for one block of columns after the other.

    Attributes:
        first, last: tiles [first, last) of a part of the rows.
        start: the tile that has index 0, see :class:`TileAt`.
        y: where they are written, and ``output_offset`` how far from a pixel's place in the output.
        origin: the pixel at which the part begins, and ``part`` its number.
    """

    first: Any
    last: Any
    start: Any
    y: Any
    output_offset: Any = 0
    origin: Any = 0
    part: Any = 0


class ImplicitGemm(KernelBuilder):
    """Builds the kernel of one convolution. Tasks are (block of columns, block of tiles) pairs.

    Args:
        layout: names the order of the packed weights, together with tile and zeros.
        elements: the convolution; what is computed is one of the micro-kernel's units.
        micro: computes the tiles.
        schedule: what is decided; what is open is proposed.
        emitter: of the kernel that this one is a part of; by default a new one.
    """

    def __init__(
        self,
        rule: str,
        layout: str,
        elements: Conv2d,
        fused: AnchoredGroup,
        micro: MicroKernel,
        schedule: GemmSchedule = OPEN,
        emitter: Emitter | None = None,
    ) -> None:
        super().__init__(
            rule,
            micro.target,
            dtype=micro.types.sums,
            prefetch_bytes=schedule.prefetch_bytes,
            emitter=emitter or micro.emitter(),
        )
        self.layout, self.elements, self.fused, self.micro = layout, elements, fused, micro
        self.conv = self._walked().in_units(micro.group)
        self.schedule, self.blocking = self._divided(schedule)
        self.tile = self.blocking.tile
        #: Whether pixels in the padding read what stands behind the packed weights, which is zeros.
        self.padding_behind = micro.left_unit == micro.right_unit and elements.outside == 0
        #: Units behind the packed weights: what these pixels read, and what the last vector of a tile that is
        #: not as wide as it does.
        behind = self.conv.group_in if self.conv.padded and self.padding_behind else 0
        self.zeros = max(behind, micro.panel_columns - 1, micro.overhang)
        self.operands = self._declare()
        self.product = TileProduct(self.e, self.conv, self.blocking, self.operands, self.prefetch_bytes)

    def _walked(self) -> Conv2d:
        """The convolution as its windows are read."""
        return self.elements

    def _divided(self, given: GemmSchedule) -> tuple[GemmSchedule, Blocking]:
        """What is decided, but for what is given, and the product as that divides it."""
        schedule = propose(self.conv, self.micro, given)
        return schedule, divided(self.conv, self.micro, schedule)

    @property
    def rounds_input(self) -> bool:
        """Whether a stage before the product rounds its input to the type that is multiplied."""
        return self.micro.types.left != self.fused.types.left

    def _declare(self) -> GemmOperands:
        e, sums = self.e, self.blocking.spilled_sums
        return GemmOperands(
            *self._declare_inputs(),
            e.output(0, self.fused.output_elements, self.micro.types.result),
            e.scratch(sums) if sums else None,
            e.prefetched(self.prefetch_bytes) if self.prefetch_bytes else None,
        )

    def _declare_inputs(self) -> tuple[Any, Any, tuple[Any, int], dict[int, Any]]:
        e, c = self.e, self.conv
        unit = self.micro.left_unit
        x = self._declare_image(unit)
        elements = c.depth * c.out_channels
        weights = e.packed(0, elements + self.zeros, self.micro.right_unit)
        behind = self.padding_behind or not c.padded
        padding = (weights, elements) if behind else (e.packed(1, c.group_in, unit), 0)
        return x, weights, padding, self.fused.declare_epilogue(e)

    def _declare_image(self, unit: str) -> Any:
        if self.rounds_input:
            return self.e.temp(0, self.conv.input_elements, unit)
        return self.fused.declare_operand(self.e, 0, self.conv.input_elements, unit)

    def parameters(self) -> dict[str, Any]:
        return self.micro.parameters()

    def packings(self) -> tuple[Packing, ...]:
        """The weights as the kernel reads them, and what the padding is, where it does not stand behind."""
        c, micro, zeros = self.elements, self.micro, self.zeros
        columns = micro.panel_columns or self.tile.columns
        shape = (c.rows, c.kernel[1], c.group_in, c.out_channels)
        param, key = self.fused.operand(1), f"{self.layout}:{columns}:{zeros}"

        def pack(w: Array) -> Array:
            return pack_weights(micro.pack_units(w.reshape(shape)), c.groups, columns, zeros)

        packed = Packing(param, f"{key}:{micro.layout}" if micro.layout else key, pack)
        if self.padding_behind or not self.conv.padded:
            return (packed,)
        outside, value, dtype = c.group_in, c.outside, micro.types.left
        row = Packing(param, f"padding:{dtype}:{value}:{outside}", lambda _: np.full(outside, value, dtype))
        return (packed, row)

    def build(self) -> Implementation:
        self._tasks()
        product = self.e.stage(self._task_count)
        before, temps = self._before()
        return Implementation(
            self.rule,
            (*before, product),
            self.packings(),
            temps,
            scratch=tuple(self.e.scratch_bytes),
            rows=None if before else self.fused.rows(*Window.of(self.elements).down),
            schedule=self.schedule,
            parameters=self.parameters(),
            flops=self.elements.flops,
            multiply_adds=self.elements.multiply_adds,
            weights=self.conv.depth * self.conv.out_channels * DTYPE_BYTES[self.micro.right_unit],
            rate=self.rate,
            with_prefetch=self._with_prefetch,
        )

    @property
    def _task_count(self) -> int:
        return self.conv.groups * self.blocking.column_blocks * self.blocking.row_blocks

    @property
    def rate(self) -> float:
        """Multiply-adds in the time of one of float32."""
        return self.micro.rate

    def _before(self) -> tuple[tuple[Stage, ...], tuple[int, ...]]:
        """Stages before the product, and bytes of what they write."""
        if not self.rounds_input:
            return (), ()
        unit, size = self.micro.left_unit, self.conv.input_elements
        e = Emitter(self.lanes, self.target, self.fused.types.left)
        stage = rounded_input(e, self.fused.operand(0), size, self.micro.types.left, unit)
        return (stage,), (size * DTYPE_BYTES[unit],)

    def _with_prefetch(self, nbytes: int) -> Implementation:
        schedule = replace(self.schedule, prefetch_bytes=nbytes)
        return type(self)(self.rule, self.layout, self.elements, self.fused, self.micro, schedule).build()

    # Tasks, blocks of columns, tiles ----------------------------------------------------------------------

    def _tasks(self) -> None:
        self.e.tasks(self._task)

    def _task(self, task: Any) -> None:
        e, blocking = self.e, self.blocking
        blocks = self.conv.groups * blocking.column_blocks
        if blocking.weight_stationary:
            each = blocking.row_blocks // blocking.passes
            rows, block, inner = (e.let(index(i)) for i in unravel(task, (blocking.passes, blocks, each)))
            sweep, pixels = e.let(rows * each), e.let(rows * each + inner)
        else:
            sweep, block = e.let(div(task, blocks)), e.let(mod(task, blocks))
            pixels = sweep
        part: Any = 0
        origin: Any = 0
        if blocking.thread_rows > 1:
            part = e.let(div(pixels, blocking.blocks))
            origin = e.let(part * (self.conv.pixels // blocking.thread_rows))
            sweep, pixels = (e.let(mod(block, blocking.blocks)) for block in (sweep, pixels))
        start = e.let(blocking.first_tile(sweep))
        first, last = e.let(blocking.first_tile(pixels)), e.let(blocking.first_tile(pixels + 1))
        group, column = e.let(div(block, blocking.column_blocks)), e.let(mod(block, blocking.column_blocks))
        start = first if blocking.k_blocks > 1 else start
        self._columns(group, column, Pixels(first, last, start, self.operands.y, 0, origin, part))

    def _columns(self, group: Any, column: Any, pixels: Pixels) -> None:
        """All tiles of ``pixels`` for block ``column`` of a group's columns."""
        blocks, width = self.blocking.column_blocks, self.blocking.columns
        tail = self.conv.group_out - (blocks - 1) * width

        def columns(width: int) -> None:
            self._block(group, column, width, pixels)

        if tail == width or blocks == 1:
            columns(tail)
        else:
            self.e.branch(column < index(blocks - 1), lambda: columns(width), lambda: columns(tail))

    def _block(self, group: Any, column: Any, width: int, pixels: Pixels) -> None:
        """All tiles of ``pixels`` for a block of ``width`` columns."""
        e, c, blocking = self.e, self.conv, self.blocking
        weights = e.let((group * c.group_out + column * blocking.columns) * c.depth)
        channel = e.let(group * c.group_out + column * blocking.columns)
        prefetch_index: Any = 0
        if self.prefetch_bytes:
            tiles = blocking.thread_rows * blocking.tile_count
            prefetch_index = e.let((group * blocking.column_blocks + column) * tiles)
        columns = Columns(group, weights, channel, width, prefetch_index, blocking.panels(width))

        def reduction_slice(k_block: Any) -> None:
            done, pixel = 0, 0
            for rows, count in blocking.tiles:
                begin, end = self._tile_range(pixels, done, done + count)

                def tile(i: Any, rows: int = rows, done: int = done, pixel: int = pixel) -> None:
                    at = e.let((i - done) * rows + pixel + pixels.origin)
                    prefetch_index: Any = 0
                    if self.prefetch_bytes:
                        prefetch_index = e.let(columns.prefetch_index + pixels.part * blocking.tile_count + i)
                    number = i - pixels.start
                    for some in columns.tiles(e):
                        self._tile(TileAt(at, rows, some, number, prefetch_index, k_block), pixels)

                e.loop(begin, end, tile)
                done, pixel = done + count, pixel + rows * count

        e.loop(0, blocking.k_blocks, reduction_slice)

    def _tile_range(self, pixels: Pixels, begin: int, end: int) -> tuple[Any, Any]:
        """The tiles of [begin, end), of a part of the rows, that belong to ``pixels``."""
        first = self.e.let(tirx.max(pixels.first, index(begin)))
        return first, self.e.let(tirx.max(first, tirx.min(pixels.last, index(end))))

    # One tile ---------------------------------------------------------------------------------------------

    def _sums(self, tile: TileAt) -> Any:
        """Where the sums of a tile are while it is computed."""
        width = tile.columns.width
        # A last vector is computed in full: a register file with vectors of two widths spills.
        lanes = width if width < self.lanes and width in (2, 4, 8) else self.lanes
        full = [(at, lanes) for at, _ in column_chunks(width, self.lanes)]
        return Accumulators(self.e, tile.rows, full)

    def _add(self, sums: Any, tile: TileAt) -> None:
        """Adds the products of a tile's slice of the reduction."""
        origins = [self.product.origin(tile.pixel + r) for r in range(tile.rows)]
        self.product.add(sums, tile, origins)

    def _tile(self, tile: TileAt, pixels: Pixels) -> None:
        e = self.e
        sums = self._sums(tile)
        waiting = e.let(tile.index * self.blocking.tile_sums + tile.columns.first * tile.rows)
        k_blocks = self.blocking.k_blocks
        if k_blocks > 1:
            begin = tirx.EQ(tile.k_block, index(0))
            e.branch(begin, sums.clear, lambda: sums.load(self.operands.sums, waiting))
        else:
            sums.clear()
        residuals = self._residuals(tile)
        self._add(sums, tile)
        if k_blocks > 1:
            e.branch(
                tirx.EQ(tile.k_block, index(k_blocks - 1)),
                lambda: self._store(sums, tile, residuals, pixels),
                lambda: sums.save(self.operands.sums, waiting),
            )
        else:
            self._store(sums, tile, residuals, pixels)

    def _residuals(self, tile: TileAt) -> dict[int, Any]:
        """Views of the epilogue's parameters that have the output's shape, from the tile's place on."""
        e, c, width = self.e, self.conv, tile.columns.width
        first = e.let(tile.pixel * c.out_channels + tile.columns.channel)
        elements = (tile.rows - 1) * c.out_channels + width
        found = {p: e.rebased(self.operands.epilogue[p], first, elements) for p in self.fused.epilogue.dense}
        for view in found.values() if self.blocking.k_blocks == 1 else ():
            for r in range(tile.rows):
                for at in range(0, width, self.line):
                    e.prefetch(view, r * c.out_channels + at, 3)
        return found

    def _values(self, sums: Any, row: int, width: int) -> list[tuple[int, int, Any]]:
        """The sums of a row of a tile: first column, columns, and vector. Two vectors where what is stored is
        narrower than sums: they are narrowed together."""
        e, chunks = self.e, column_chunks(width, self.lanes)
        values = [(at, lanes, e.let(sums.get(row, at, lanes))) for at, lanes in chunks]
        if DTYPE_BYTES[self.micro.types.result] >= DTYPE_BYTES[self.micro.types.sums] or self.lanes == 1:
            return values
        joined = []
        while len(values) > 1 and values[0][1] == values[1][1] == self.lanes:
            (at, lanes, low), (_, _, high), *values = values
            joined.append((at, 2 * lanes, e.let(shuffle([low, high], range(2 * lanes)))))
        return joined + values

    def _destination(self, tile: TileAt, pixels: Pixels) -> tuple[Any, Any]:
        """The buffer that a tile is written to, and where in it."""
        e, row_stride = self.e, self.fused.row_stride
        first = e.let(tile.pixel * row_stride + tile.columns.channel + pixels.output_offset)
        return e.rebased(pixels.y, first, (tile.rows - 1) * row_stride + tile.columns.width), 0

    def _store(self, sums: Any, tile: TileAt, residuals: dict[int, Any], pixels: Pixels) -> None:
        """Applies the epilogue and writes the tile."""
        e, fused = self.e, self.fused
        y, first = self._destination(tile, pixels)
        for r in range(tile.rows):
            place = unravel(tile.pixel + r, fused.output_shape[:-1])
            for at, count, value in self._values(sums, r, tile.columns.width):
                offset = r * self.conv.out_channels + at
                here = {p: (view, offset) for p, view in residuals.items()}
                position = (*place, tile.columns.channel + at)
                stored = fused.stored(e, value, position, count, self.operands.epilogue, here)
                e.vstore(y, first + (r * fused.row_stride + at), stored, count)

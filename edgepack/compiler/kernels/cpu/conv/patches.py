"""Implicit matrix products of bytes on CPUs whose memory is counted in KiB.

What the windows of a tile's pixels read is written to the thread's scratch, once for all output channels: a
*patch*. Padding and zero points outside of the image are written there too, so that the product has no
borders, and a window's rows of any length follow each other as one reduction. Images stay bytes in memory,
and so do weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from tvm import tirx

from edgepack.compiler.kernels.contract import Implementation, Overlap, RuleError
from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm, Pixels
from edgepack.compiler.kernels.cpu.conv.over_input import PixelOrder
from edgepack.compiler.kernels.cpu.conv.tile_product import Columns, GemmOperands, Origin, TileAt, TileProduct
from edgepack.compiler.kernels.cpu.conv.window import Window
from edgepack.compiler.kernels.cpu.emit.indices import index, unravel
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["PATCH_BYTES", "Patches", "PatchesOfTaps"]

#: Sums that are stored without a loop where code is to be short.
FEW_SUMS = 4

#: Bytes of a patch up to which a tile has more rows than two: beside what images take, it is small.
PATCH_BYTES = 2304


class Patches(ImplicitGemm):
    """Builds the kernel of one convolution without groups. One task is all tiles, for all output channels, or
    each those of a row of the output.

    Attributes:
        patch_bytes: bytes of a patch up to which a tile has more rows than two.
    """

    patch_bytes: ClassVar[int] = PATCH_BYTES

    @property
    def in_place(self) -> bool:
        """Whether the product reads the image itself, whose pixels are whole steps: there is no patch."""
        return False

    @property
    @abstractmethod
    def steps(self) -> int:
        """Elements of the reduction that the micro-kernel takes together: a patch has whole ones."""

    @property
    @abstractmethod
    def bytes_of_element(self) -> int:
        """Of the patch."""

    def _walked(self) -> Conv2d:
        """A product of patches, of whole steps."""
        c = self.elements
        return Conv2d.product(c.pixels, -(-c.depth // self.steps) * self.steps, c.out_channels, c.types)

    def _divided(self, given: GemmSchedule) -> tuple[GemmSchedule, Blocking]:
        """Tiles of as many rows as a small patch has, all in one task, and with one height: the last one
        begins so that it ends with the last pixel."""
        c = self.conv
        if self.by_rows and (self.elements.batch != 1 or self.elements.depth_window):
            raise RuleError("rows of several images")
        row = self.bytes_of_element * c.in_channels * self.micro.group
        most = self.patch_bytes
        if self.e.short and most:  # one tile for all layers: beside what its images take, a patch is small
            most = max(most, self.elements.input_elements + self.fused.output_elements)
        tile = self.micro.tile(min(self.pixels, max(2, most // row)), c.out_channels)
        columns = tile.columns
        if self.e.short:  # one piece of code for all blocks of channels
            columns = next(n for n in range(columns, 0, -1) if c.out_channels % n == 0)
        asked = given.register_tile or (tile.rows, columns)
        one = replace(given, register_tile=asked, weight_stationary=False, thread_rows=1, passes=1)
        return super()._divided(replace(one, row_blocks=1, k_blocks=1))

    def _declare(self) -> GemmOperands:
        e, c = self.e, self.elements
        x = e.param(self.fused.operand(0), c.input_elements, c.types.left)
        weights = e.packed(0, self.weight_units, self.micro.right_unit)
        extra = self.fused.declare_epilogue(e)
        y = e.output(0, self.fused.output_elements, self.micro.types.result)
        self.patch: Any = None if self.in_place else self._declare_patch()
        operands = GemmOperands(x, weights, (weights, 0), extra, y)
        self.geometry = TileProduct(e, c, self.blocking, operands, 0)
        return operands

    @property
    def weight_units(self) -> int:
        """Units of all packed weights."""
        return self.conv.depth * self.elements.out_channels

    @abstractmethod
    def _declare_patch(self) -> Any:
        """The scratch that a patch lies in."""

    # Tasks ------------------------------------------------------------------------------------------------

    @property
    def by_rows(self) -> bool:
        """Whether a task is a row of the output."""
        return self.fused.by_rows

    @property
    def pixels(self) -> int:
        """Of the output that a task computes."""
        return self.elements.out_width if self.by_rows else self.elements.pixels

    @property
    def _task_count(self) -> int:
        """One where not rows are asked for: CPUs of this kind have one core, and the last two tiles may
        overlap."""
        return self.elements.pixels // self.pixels

    def _task(self, task: Any) -> None:
        """All tiles, each for all columns."""
        e, rows, pixels = self.e, self.tile.rows, self.pixels
        width, channels = self.tile.columns, self.conv.out_channels
        begin = e.let(task * pixels) if self.by_rows else None

        def tile(i: Any) -> None:
            first = i * rows
            last = index(pixels - rows)
            first = tirx.min(first, last) if pixels % rows or self.e.short else first
            first = e.let(first if begin is None else first + begin)
            if not self.in_place:
                self._write_patch(first)
            self._each(channels // width, lambda block: self._channels(first, block * width, width))
            if channels % width:
                self._channels(first, channels - channels % width, channels % width)

        self._each(-(-pixels // rows), tile)

    def _each(self, count: int, body: Callable[[Any], None]) -> None:
        """``body`` of each tile, or block of channels."""
        self.e.each(count, body)

    def _channels(self, first: Any, channel: Any, width: int) -> None:
        """Some output channels of the tile that begins at pixel ``first``."""
        channel = self.e.let(channel)
        weights = self.e.let(channel * self.conv.depth)
        columns = Columns(0, weights, channel, width, 0, self.blocking.panels(width))
        pixels = Pixels(0, 0, 0, self.operands.y)
        self._tile(TileAt(first, self.tile.rows, columns, 0, 0, 0), pixels)

    def build(self) -> Implementation:
        down = Window.of(self.elements).down
        return replace(super().build(), overlaps=self._overlaps(), rows=self.fused.rows(*down))

    def _overlaps(self) -> tuple[Overlap, ...]:
        """A tile's patch is written before any of its results is stored; without one pixels are read again
        for each block of channels."""
        c, fused = self.elements, self.fused
        if c.batch != 1 or self.by_rows or fused.row_stride != c.out_channels or c.depth_window:
            return ()
        order = PixelOrder.of(Window.of(c), DTYPE_BYTES[c.types.left], DTYPE_BYTES[self.micro.types.result])
        return (Overlap(fused.operand(0), order.most(self.tile.rows, again=self.in_place)),)

    # The patch --------------------------------------------------------------------------------------------

    def _write_patch(self, first: Any) -> None:
        """Writes the patch of the tile that begins at pixel ``first``."""
        e = self.e

        def row(r: Any) -> None:
            origin = self.geometry.origin(e.let(first + r))
            begin = e.let(self._row(r))
            inside = self.geometry.inside([origin])
            if inside is not None and e.short:
                self._border(begin, origin)
            elif inside is None:
                self._window(begin, origin)
            else:
                e.branch(inside, lambda: self._window(begin, origin), lambda: self._border(begin, origin))

        self._loop(self.tile.rows, row)

    @abstractmethod
    def _row(self, r: Any) -> Any:
        """Where in the patch the part of pixel ``r`` begins."""

    def _loop(self, count: int, body: Callable[[Any], None]) -> None:
        """A loop that is not unrolled: the code would be longer than the time it saves."""
        if count > 1 or self.e.short:
            self.e.no_unroll_loop(count, body)
        else:
            self.e.loop(0, count, body)

    def _window(self, row: Any, origin: Origin) -> None:
        """The window of a pixel that lies inside of the image; its part of the patch begins at ``row``."""
        c = self.elements
        joined = c.dilation[1] == 1
        run = c.in_channels * (c.kernel[1] if joined else 1)

        def tap(i: Any, j: Any) -> None:
            source, to, _ = self._tap(origin, i, j)
            self._copied(row, source, to, run)

        def line(i: Any) -> None:
            if joined:
                tap(i, 0)
            else:
                self._loop(c.kernel[1], lambda j: tap(i, j))

        self._loop(c.rows, line)

    def _tap(self, origin: Origin, i: Any, j: Any) -> tuple[Any, Any, Any]:
        """Where a tap's elements lie in the image and in the reduction, and whether it is inside."""
        e, c, geometry = self.e, self.elements, self.geometry
        at = geometry.tap(origin, i, j)
        source = e.let(geometry.address(at, 0))
        to = e.let((i * c.kernel[1] + j) * c.in_channels)
        inside = tirx.all(at.row >= 0, at.row < c.height, at.column >= 0, at.column < c.width)
        return source, to, inside

    @abstractmethod
    def _border(self, row: Any, origin: Origin) -> None:
        """The window of a pixel that reaches beside the image."""

    @abstractmethod
    def _copied(self, row: Any, source: Any, to: Any, count: int) -> None:
        """``count`` elements of the image from ``source`` on, as those of the reduction from ``to`` on.

        Args:
            row: what :meth:`_row` gives for the pixel.
        """


class PatchesOfTaps(Patches):
    """Windows at the border of the image tap by tap; sums are numbers in general registers."""

    def _store(self, sums: Any, tile: TileAt, residuals: dict[int, Any], pixels: Pixels) -> None:
        """Column by column, whose numbers the epilogue reads once for all pixels."""
        e, fused, rows, width = self.e, self.fused, tile.rows, tile.columns.width
        y, first = self._destination(tile, pixels)

        def store(r: Any, at: Any, value: Any) -> None:
            offset = r * self.conv.out_channels + at
            here = {p: (view, offset) for p, view in residuals.items()}
            place = unravel(tile.pixel + r, fused.output_shape[:-1])
            position = (*place, tile.columns.channel + at)
            stored = fused.stored(e, e.let(value), position, 1, self.operands.epilogue, here)
            e.vstore(y, first + (r * fused.row_stride + at), stored, 1)

        if not e.short or rows * width <= FEW_SUMS:
            for at in range(width):
                for r in range(rows):
                    store(r, at, sums.get(r, at, 1))
            return
        waiting = e.local(rows * width, "int32")
        for at in range(width):
            for r in range(rows):
                e.vstore(waiting, at * rows + r, sums.get(r, at, 1), 1)

        def column(at: Any) -> None:
            e.no_unroll_loop(rows, lambda r: store(r, at, e.load(waiting, e.let(at * rows + r))))

        e.no_unroll_loop(width, column)

    def _border(self, row: Any, origin: Origin) -> None:
        e, c = self.e, self.elements

        def tap(i: Any, j: Any) -> None:
            source, to, inside = self._tap(origin, i, j)
            e.branch(
                inside,
                lambda: self._copied(row, source, to, c.in_channels),
                lambda: self._filled(row, to, c.in_channels),
            )

        self._loop(c.rows, lambda i: self._loop(c.kernel[1], lambda j: tap(i, j)))

    @abstractmethod
    def _filled(self, row: Any, to: Any, count: int) -> None:
        """As :meth:`_copied`, of what lies outside of the image."""

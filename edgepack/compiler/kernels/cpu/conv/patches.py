"""Implicit matrix products whose left operand is a copy of what windows read.

What the windows of a tile's pixels read is copied once, for all output channels, to the thread's scratch: a
*patch*. Padding and zero points outside of the image are written there, so that the product has no borders,
and a window's rows of any length follow each other as one reduction. Images stay bytes in memory, and so do
weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

from tvm import tirx

from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm, Pixels
from edgepack.compiler.kernels.cpu.conv.tile_product import Columns, GemmOperands, Origin, TileAt, TileProduct
from edgepack.compiler.kernels.cpu.emit.indices import index

__all__ = ["Patches"]


class Patches(ImplicitGemm):
    """Builds the kernel of one convolution without groups, of one task: CPUs of this kind have one core, and
    the last two tiles may overlap.

    Attributes:
        patch_bytes: bytes of a patch up to which a tile has more rows than two: beside what images take, it
            is small.
    """

    patch_bytes: ClassVar[int]

    @property
    @abstractmethod
    def row_bytes(self) -> int:
        """Bytes of a pixel's row of the patch."""

    @abstractmethod
    def _operands(self) -> GemmOperands:
        """Declares the operands, and the patch."""

    @abstractmethod
    def _copied(self, row: Any, source: Any, to: Any, count: int) -> None:
        """``count`` elements of the image from ``source`` on, as those of the reduction from ``to`` on, of
        row ``row``."""

    @abstractmethod
    def _border(self, row: Any, origin: Origin) -> None:
        """The window of a pixel that is not all inside of the image, whose units begin at ``row``."""

    def _walked(self) -> Conv2d:
        """A product of patches, of whole units."""
        c, group = self.elements, self.micro.group
        return Conv2d.product(c.pixels, -(-c.depth // group) * group, c.out_channels, c.types)

    def _divided(self, given: GemmSchedule) -> tuple[GemmSchedule, Blocking]:
        """Tiles of as many rows as a small patch has, all in one task, and with one height: the last one
        begins so that it ends with the last pixel."""
        c = self.conv
        rows = min(c.pixels, max(2, self.patch_bytes // self.row_bytes))
        tile = self.micro.tile(rows, c.out_channels)
        asked = given.register_tile or (tile.rows, tile.columns)
        one = replace(given, register_tile=asked, weight_stationary=False, thread_rows=1, passes=1)
        return super()._divided(replace(one, row_blocks=1, k_blocks=1))

    def _declare(self) -> GemmOperands:
        operands = self._operands()
        self.geometry = TileProduct(self.e, self.elements, self.blocking, operands, 0)
        return operands

    # Tasks ------------------------------------------------------------------------------------------------

    @property
    def _task_count(self) -> int:
        return 1

    def _task(self, task: Any) -> None:
        """All tiles, each for all columns."""
        del task
        e, rows, pixels = self.e, self.tile.rows, self.conv.pixels
        width, channels = self.tile.columns, self.conv.out_channels

        def tile(i: Any) -> None:
            first = i * rows
            first = e.let(tirx.min(first, index(pixels - rows)) if pixels % rows else first)
            self._copy(first)
            self._each(channels // width, lambda block: self._channels(first, block * width, width))
            if channels % width:
                self._channels(first, channels - channels % width, channels % width)

        self._each(-(-pixels // rows), tile)

    def _each(self, count: int, body: Callable[[Any], None]) -> None:
        """``body`` of each tile, or block of channels."""
        self.e.loop(0, count, body)

    def _channels(self, first: Any, channel: Any, width: int) -> None:
        """Some output channels of the tile that begins at pixel ``first``."""
        channel = self.e.let(channel)
        columns = Columns(0, self.e.let(channel * self.conv.depth), channel, width, 0)
        pixels = Pixels(0, 0, 0, self.operands.y)
        self._tile(TileAt(first, self.tile.rows, columns, 0, 0, 0), pixels)

    # The patch --------------------------------------------------------------------------------------------

    def _copy(self, first: Any) -> None:
        """Writes the patch of the tile that begins at pixel ``first``."""
        e = self.e

        def row(r: Any) -> None:
            origin = self.geometry.origin(e.let(first + r))
            begin = e.let(r * self.conv.depth)
            inside = self.geometry.inside([origin])
            if inside is None:
                self._window(begin, origin)
            else:
                e.branch(inside, lambda: self._window(begin, origin), lambda: self._border(begin, origin))

        self._loop(self.tile.rows, row)

    def _loop(self, count: int, body: Callable[[Any], None]) -> None:
        """A loop that is not unrolled: the code would be longer than the time it saves."""
        if count > 1:
            self.e.no_unroll_loop(count, body)
        else:
            self.e.loop(0, count, body)

    def _window(self, row: Any, origin: Origin) -> None:
        """The window of a pixel inside of the image, whose units begin at ``row``."""
        joined = self.elements.dilation[1] == 1
        taps = self.elements.kernel[1]
        run = self.elements.in_channels * (taps if joined else 1)

        def tap(i: Any, j: Any) -> None:
            source, to, _ = self._tap(origin, i, j)
            self._copied(row, source, to, run)

        self._loop(self.elements.rows, lambda i: self._loop(1 if joined else taps, lambda j: tap(i, j)))

    def _tap(self, origin: Origin, i: Any, j: Any) -> tuple[Any, Any, Any]:
        """Where a tap's elements lie in the image and in the reduction, and whether it is inside."""
        e, c, geometry = self.e, self.elements, self.geometry
        at = geometry.tap(origin, i, j)
        source = e.let(geometry.address(at, 0))
        to = e.let((i * c.kernel[1] + j) * c.in_channels)
        inside = tirx.all(at.row >= 0, at.row < c.height, at.column >= 0, at.column < c.width)
        return source, to, inside

"""Implicit matrix products of bytes on CPUs that multiply pairs of 16 bits in general registers.

What the windows of a tile's pixels read is widened to 16 bits, once for all output channels, in the thread's
scratch: a *patch*, in which the pixels of quad ``k`` of the reduction lie next to each other, each as two
pairs. Padding and zero points outside of the image are written there, so that the product has no borders, and
a window's rows of any length follow each other as one reduction. Images stay bytes in memory, and so do
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array, Implementation, Overlap, Packing
from edgepack.compiler.kernels.cpu.conv.blocking import Blocking
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d, pack_weights
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import ImplicitGemm, Pixels
from edgepack.compiler.kernels.cpu.conv.over_input import PixelOrder
from edgepack.compiler.kernels.cpu.conv.tile_product import Columns, GemmOperands, Origin, TileAt, TileProduct
from edgepack.compiler.kernels.cpu.emit.indices import Index, div, index
from edgepack.compiler.kernels.cpu.emit.register_tile import Matrix, Steps
from edgepack.compiler.kernels.cpu.micro.word_pairs import PATCH_BYTES, WordPairs, widened_pairs
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["WidenedPatches"]

#: Where in a quad of a patch its bytes lie, whose pairs are bytes 0 and 2, and 1 and 3.
ORDER = (0, 2, 1, 3)


class WidenedPatches(ImplicitGemm):
    """Builds the kernel of one convolution without groups. A task is some tiles, for all output channels."""

    micro: WordPairs

    @property
    def in_quads(self) -> bool:
        """Whether pixels are whole quads, which are widened at once. Otherwise numbers lie in the patch as
        they do in the image, and the bytes of weights in an order of their own."""
        return self.elements.in_channels % 4 == 0

    def _walked(self) -> Conv2d:
        """A product of patches, of whole quads."""
        c = self.elements
        return Conv2d.product(c.pixels, -(-c.depth // 4) * 4, c.out_channels, c.types)

    def _divided(self, given: GemmSchedule) -> tuple[GemmSchedule, Blocking]:
        """Tiles of as many rows as a small patch has, all in one task, and with one height: the last one
        begins so that it ends with the last pixel."""
        c = self.conv
        row = 8 * c.in_channels
        tile = self.micro.tile(min(c.pixels, max(2, PATCH_BYTES // row)), c.out_channels)
        asked = given.register_tile or (tile.rows, tile.columns)
        one = replace(given, register_tile=asked, weight_stationary=False, thread_rows=1, passes=1)
        return super()._divided(replace(one, row_blocks=1, k_blocks=1))

    def _declare(self) -> GemmOperands:
        """Quad ``k`` of row ``r`` of the patch: the words 2 (r K + k) and the next one, of K quads a row."""
        e, c = self.e, self.elements
        x = e.param(self.fused.operand(0), c.input_elements, c.types.left)
        weights = e.packed(0, self.conv.depth * c.out_channels, self.micro.right_unit)
        extra = self.fused.declare_epilogue(e)
        y = e.output(0, self.fused.output_elements, self.micro.types.result)
        words = 2 * self.conv.depth * self.tile.rows
        # TVM tells LLVM that arrays of two types are no two views of one, so it is read as it is written.
        self.patch = e.scratch(words, "int32") if self.in_quads else e.scratch(2 * words, "int16")
        operands = GemmOperands(x, weights, (weights, 0), extra, y)
        self.geometry = TileProduct(e, c, self.blocking, operands, 0)
        return operands

    def packings(self) -> tuple[Packing, ...]:
        c, columns = self.elements, self.tile.columns
        param, extra = self.fused.operand(1), self.conv.depth * 4 - c.depth
        order = list(range(4)) if self.in_quads else list(ORDER)

        def pack(w: Array) -> Array:
            flat = np.pad(w.reshape(c.depth, c.out_channels), [(0, extra), (0, 0)])
            quads = flat.reshape(-1, 4, c.out_channels)[:, order]
            return pack_weights(self.micro.pack_units(quads.reshape(1, 1, -1, c.out_channels)), 1, columns, 0)

        return (Packing(param, f"{self.layout}:{columns}:patches:{order[1]}", pack),)

    # Tasks ------------------------------------------------------------------------------------------------

    @property
    def _task_count(self) -> int:
        """One: CPUs of this kind have one core, and the last two tiles may overlap."""
        return 1

    def _task(self, task: Any) -> None:
        """All tiles, each for all columns."""
        del task
        e, rows, pixels = self.e, self.tile.rows, self.conv.pixels
        width, channels = self.tile.columns, self.conv.out_channels

        def tile(i: Any) -> None:
            first = i * rows
            first = e.let(tirx.min(first, index(pixels - rows)) if pixels % rows else first)
            self._widen(first)
            e.loop(0, channels // width, lambda block: self._channels(first, block * width, width))
            if channels % width:
                self._channels(first, channels - channels % width, channels % width)

        e.loop(0, -(-pixels // rows), tile)

    def _channels(self, first: Any, channel: Any, width: int) -> None:
        """Some output channels of the tile that begins at pixel ``first``."""
        channel = self.e.let(channel)
        columns = Columns(0, self.e.let(channel * self.conv.depth), channel, width, 0)
        pixels = Pixels(0, 0, 0, self.operands.y)
        self._tile(TileAt(first, self.tile.rows, columns, 0, 0, 0), pixels)

    def _add(self, sums: Any, tile: TileAt) -> None:
        e, depth = self.e, self.conv.depth

        def left(row: int, k: Index) -> tuple[Any, Any]:
            at = (k + row * depth) * 2
            return self._pair(at), self._pair(at + 1)

        right = Matrix(self.operands.weights, tile.columns.weights, tile.columns.width)
        self.micro.add_product(e, sums, left, right, Steps(depth))

    def _pair(self, at: Any) -> Any:
        """Word ``at`` of the patch."""
        e = self.e
        if self.in_quads:
            return e.let(e.vload(self.patch, at, 1))
        return e.let(tirx.reinterpret("int32", e.vload(self.patch, at * 2, 2)))

    def build(self) -> Implementation:
        return replace(super().build(), overlaps=self._overlaps())

    def _overlaps(self) -> tuple[Overlap, ...]:
        """A tile's windows are widened before any of its results is stored."""
        c, fused = self.elements, self.fused
        if c.batch != 1 or fused.row_stride != c.out_channels or c.depth_window:
            return ()
        bytes_out = c.out_channels * DTYPE_BYTES[self.micro.types.result]
        order = PixelOrder(
            (c.height, c.width),
            (c.out_height, c.out_width),
            (c.pad_top, c.pad_left),
            c.strides,
            c.in_channels,
            bytes_out,
        )
        return (Overlap(fused.operand(0), order.most(self.tile.rows)),)

    # The patch --------------------------------------------------------------------------------------------

    def _widen(self, first: Any) -> None:
        """Writes the patch of the tile that begins at pixel ``first``."""
        e = self.e

        def row(r: Any) -> None:
            origin = self.geometry.origin(e.let(first + r))
            quads = e.let(r * self.conv.depth)
            inside = self.geometry.inside([origin])
            if inside is None:
                self._window(quads, origin, inside=True)
            else:
                e.branch(
                    inside,
                    lambda: self._window(quads, origin, inside=True),
                    lambda: self._window(quads, origin, inside=False),
                )

        self._loop(self.tile.rows, row)

    def _loop(self, count: int, body: Callable[[Any], None]) -> None:
        """A loop that is not unrolled: the code would be longer than the time it saves."""
        if count > 1:
            self.e.no_unroll_loop(count, body)
        else:
            self.e.loop(0, count, body)

    def _window(self, row: Any, origin: Origin, *, inside: bool) -> None:
        """The window of one pixel, whose quads begin at ``row``."""
        e, c, geometry = self.e, self.elements, self.geometry
        joined = inside and c.dilation[1] == 1
        run = c.in_channels * (c.kernel[1] if joined else 1)

        def line(i: Any) -> None:
            def tap(j: Any) -> None:
                at = geometry.tap(origin, i, j)
                source = e.let(geometry.address(at, 0))
                to = e.let((i * c.kernel[1] + j) * c.in_channels)
                valid = tirx.all(at.row >= 0, at.row < c.height, at.column >= 0, at.column < c.width)
                if inside:
                    self._copied(row, source, to, run)
                else:
                    filled = lambda: self._written(row, to, run, None)  # noqa: E731
                    e.branch(valid, lambda: self._copied(row, source, to, run), filled)

            if joined:
                tap(0)
            else:
                self._loop(c.kernel[1], tap)

        self._loop(c.rows, line)

    def _copied(self, row: Any, source: Any, to: Any, count: int) -> None:
        """``count`` elements of the image from ``source`` on, as those of the reduction from ``to`` on."""
        e, x = self.e, self.operands.x

        def value(k: Any) -> Any:
            if not self.in_quads:
                return tirx.Cast("int16", e.vload(x, source + k, 1))
            return widened_pairs(e, tirx.reinterpret("int32", e.vload(x, source + k * 4, 4)))

        self._written(row, to, count, value)

    def _written(self, row: Any, to: Any, count: int, value: Callable[[Any], Any] | None) -> None:
        """``count`` elements of the reduction from ``to`` on.

        Args:
            value: the pairs of quad ``k`` of them, or of images whose pixels are no quads element ``k``; None
                for what lies outside of the image.
        """
        e, outside = self.e, self.elements.outside
        if self.in_quads:
            pair = IntImm("int32", int(np.array([outside] * 2, "<i2").view("<i4")[0]))
            first = e.let((row + div(to, 4)) * 2)

            def quad(k: Any) -> None:
                for number, one in enumerate((pair, pair) if value is None else value(k)):
                    e.vstore(self.patch, first + k * 2 + number, one, 1)

            self._loop(count // 4, quad)
            return
        begin = e.let(row * 4 + to)
        number = IntImm("int16", outside)

        def element(k: Any) -> None:
            e.vstore(self.patch, begin + k, number if value is None else value(k), 1)

        self._loop(count, element)

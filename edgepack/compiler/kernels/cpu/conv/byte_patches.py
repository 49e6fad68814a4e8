"""Implicit matrix products of bytes on CPUs that multiply them one by one.

A patch is of bytes: those of step ``k`` of the reduction, one of each pixel of the tile, lie next to each
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array, Packing
from edgepack.compiler.kernels.cpu.conv.geometry import pack_weights
from edgepack.compiler.kernels.cpu.conv.implicit_gemm import Pixels
from edgepack.compiler.kernels.cpu.conv.patches import Patches
from edgepack.compiler.kernels.cpu.conv.tile_product import TileAt
from edgepack.compiler.kernels.cpu.emit.indices import Index, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import Matrix, Steps
from edgepack.compiler.kernels.cpu.micro.single_bytes import STEPS, SingleBytes

__all__ = ["BytePatches"]

#: Bytes of an iteration of a loop that copies.
COPIED = 8


class BytePatches(Patches):
    """Builds the kernel of one convolution without groups."""

    micro: SingleBytes
    steps, bytes_of_element = STEPS, 1

    def _declare_patch(self) -> Any:
        return self.e.scratch(self.conv.depth * self.tile.rows, "int8")

    def packings(self) -> tuple[Packing, ...]:
        c, columns, extra = self.elements, self.tile.columns, self.conv.depth - self.elements.depth

        def pack(w: Array) -> Array:
            padded = np.pad(w.reshape(c.depth, c.out_channels), [(0, extra), (0, 0)])
            return pack_weights(padded.reshape(1, 1, -1, c.out_channels), 1, columns, 0)

        return (Packing(self.fused.operand(1), f"{self.layout}:{columns}:{extra}:bytes", pack),)

    def _add(self, sums: Any, tile: TileAt) -> None:
        rows = self.tile.rows

        def left(row: int, k: Index) -> Any:
            return self.e.vload(self.patch, k * rows + row, 1)

        right = Matrix(self.operands.weights, tile.columns.weights, tile.columns.width)
        self.micro.add_product(self.e, sums, left, right, Steps(self.conv.depth))

    def _store(self, sums: Any, tile: TileAt, residuals: dict[int, Any], pixels: Pixels) -> None:
        """Column by column, whose numbers the epilogue reads once for all pixels."""
        e, fused = self.e, self.fused
        y, first = self._destination(tile, pixels)
        for at in range(tile.columns.width):
            for r in range(tile.rows):
                offset = r * self.conv.out_channels + at
                here = {p: (view, offset) for p, view in residuals.items()}
                place = unravel(tile.pixel + r, fused.output_shape[:-1])
                position = (*place, tile.columns.channel + at)
                value = e.let(sums.get(r, at, 1))
                stored = fused.stored(e, value, position, 1, self.operands.epilogue, here)
                e.vstore(y, first + (r * fused.row_stride + at), stored, 1)

    # The patch --------------------------------------------------------------------------------------------

    def _row(self, r: Any) -> Any:
        return r

    def _copied(self, row: Any, source: Any, to: Any, count: int) -> None:
        self._written(row, to, count, lambda k: self.e.vload(self.operands.x, source + k, 1))

    def _filled(self, row: Any, to: Any, count: int) -> None:
        outside = IntImm("int8", self.elements.outside)
        self._written(row, to, count, lambda _: outside)

    def _written(self, row: Any, to: Any, count: int, value: Callable[[Any], Any]) -> None:
        """``count`` elements of a pixel's reduction from ``to`` on."""
        e, rows = self.e, self.tile.rows
        begin = e.let(row + to * rows)
        each = next(n for n in range(min(COPIED, count), 0, -1) if count % n == 0)

        def copied(i: Any) -> None:
            first = e.let(i * each)
            for k in range(each):
                e.vstore(self.patch, begin + (first + k) * rows, value(first + k), 1)

        self._loop(count // each, copied)

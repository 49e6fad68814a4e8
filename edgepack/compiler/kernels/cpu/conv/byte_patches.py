"""Implicit matrix products of bytes on CPUs that multiply them one by one.

A patch is of bytes: those of step ``k`` of the reduction, one of each pixel of the tile, lie next to each
other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array, Packing
from edgepack.compiler.kernels.cpu.conv.geometry import pack_weights
from edgepack.compiler.kernels.cpu.conv.patches import PATCH_BYTES, PatchesOfTaps
from edgepack.compiler.kernels.cpu.conv.tile_product import TileAt
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, Matrix, Steps
from edgepack.compiler.kernels.cpu.micro.single_bytes import SingleBytes

__all__ = ["BytePatches"]

#: What a displacement of a load reaches (RISC-V's 12 bits).
DISPLACEMENTS = 2048

#: Bytes of an iteration of a loop that copies.
COPIED = 8


class BytePatches(PatchesOfTaps):
    """Builds the kernel of one convolution without groups."""

    micro: SingleBytes

    @property
    def steps(self) -> int:
        return self.micro.steps

    @property
    def bytes_of_element(self) -> int:
        """Of a number of 32 bits where weights are raised, for a load extends the sign of no byte there."""
        return 4 if self.micro.raised and 4 * self.elements.depth <= PATCH_BYTES else 1

    @property
    def in_place(self) -> bool:
        """Whether pixels are read where they lie: those of pointwise convolutions, of whole steps, that
        displacements reach from one pointer."""
        whole = self.elements.pointwise and self.conv.depth == self.elements.depth
        return whole and not self.micro.raised and self.tile.rows * self.elements.depth <= DISPLACEMENTS

    def _declare_patch(self) -> Any:
        dtype = "int32" if self.bytes_of_element == 4 else "int8"
        if self.micro.raised:
            #: The sum of the numbers of a patch, which has one row.
            self.row_sum = self.e.local(1, "int32")
        return self.e.scratch(self.conv.depth * self.tile.rows, dtype)

    def packings(self) -> tuple[Packing, ...]:
        c, columns, extra = self.elements, self.tile.columns, self.conv.depth - self.elements.depth

        def pack(w: Array) -> Array:
            flat, nothing = w.reshape(c.depth, c.out_channels), -self.micro.raised
            padded = np.pad(flat, [(0, extra), (0, 0)], constant_values=nothing)
            units = self.micro.pack_units(padded.reshape(1, 1, -1, c.out_channels))
            return pack_weights(units, 1, columns, 0)

        key = f"{self.layout}:{columns}:{extra}:bytes:{self.micro.layout}"
        return (Packing(self.fused.operand(1), key, pack),)

    def _sums(self, tile: TileAt) -> Accumulators:
        sums: Accumulators = super()._sums(tile)
        if self.micro.raised:
            sums.start = self.start
        return sums

    def _add(self, sums: Any, tile: TileAt) -> None:
        rows, depth = self.tile.rows, self.conv.depth
        if self.in_place:
            x = self.operands.x
            pixels = self.e.rebased(x, self.e.let(tile.pixel * depth), rows * depth)

        def left(row: int, k: Index) -> Any:
            if self.in_place:
                return self.e.vload(pixels, k + row * depth, 1)
            return self.e.vload(self.patch, k * rows + row, 1)

        right = Matrix(self.operands.weights, tile.columns.weights, tile.columns.width)
        self.micro.add_product(self.e, sums, left, right, Steps(self.conv.depth))

    # The patch --------------------------------------------------------------------------------------------

    def _write_patch(self, first: Any) -> None:
        e = self.e
        if self.micro.raised:
            e.vstore(self.row_sum, 0, IntImm("int32", 0), 1)
        super()._write_patch(first)
        if self.micro.raised:
            #: What the sums begin with.
            self.start = e.let(e.load(self.row_sum, 0) * IntImm("int32", -self.micro.raised))

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
        dtype = str(self.patch.dtype)

        def copied(i: Any) -> None:
            first = e.let(i * each)
            for k in range(each):
                number = e.let(tirx.Cast("int32", value(first + k)))
                e.vstore(self.patch, begin + (first + k) * rows, tirx.Cast(dtype, number), 1)
                if self.micro.raised:
                    e.vstore(self.row_sum, 0, e.load(self.row_sum, 0) + number, 1)

        self._loop(count // each, copied)

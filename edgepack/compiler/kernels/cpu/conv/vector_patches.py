"""Implicit matrix products of bytes on CPUs that add all products of two vectors to one sum (Helium).

A patch (:mod:`edgepack.compiler.kernels.cpu.conv.patches`) has the bytes of a window as they are. It ends
with a whole vector: what lies behind the window is multiplied by weights of 0, whatever it is. Pixels that
are whole vectors are read where they lie.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from edgepack.compiler.kernels.contract import Array, Implementation, Packing, RuleError
from edgepack.compiler.kernels.cpu.conv.patches import Patches
from edgepack.compiler.kernels.cpu.conv.tile_product import Origin, TileAt
from edgepack.compiler.kernels.cpu.conv.window_copy import copy_bytes, copy_window
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, Matrix, Steps
from edgepack.compiler.kernels.cpu.micro.reduced_vectors import RUN, WORDS, ReducedVectors

__all__ = ["VectorPatches"]


class VectorPatches(Patches):
    """Builds the kernel of one convolution without groups. Sums are numbers in general registers, of which
    the epilogue has vectors of neighbouring channels."""

    micro: ReducedVectors
    patch_bytes = 0

    @property
    def steps(self) -> int:
        return self.micro.group

    @property
    def bytes_of_element(self) -> int:
        return 1

    @property
    def row_bytes(self) -> int:
        """Bytes of a pixel's part of the patch."""
        return RUN * self.conv.in_channels

    @property
    def in_place(self) -> bool:
        return self.elements.pointwise and self.elements.in_channels % RUN == 0

    @property
    def weight_units(self) -> int:
        return self.conv.in_channels * WORDS * self.elements.out_channels

    def _declare_patch(self) -> Any:
        """Byte ``k`` of row ``r``: r K + k, of K bytes a row."""
        if self.elements.depth_window is not None:
            raise RuleError("windows of volumes")
        return self.e.scratch(self.row_bytes * self.tile.rows, self.elements.types.left)

    def packings(self) -> tuple[Packing, ...]:
        """[block of channels][run of the reduction][channel][16 bytes]."""
        c, columns = self.elements, self.tile.columns
        extra = self.row_bytes - c.depth

        def pack(w: Array) -> Array:
            flat = np.pad(w.reshape(c.depth, c.out_channels), [(0, extra), (0, 0)])
            units = self.micro.pack_units(flat.reshape(1, 1, -1, c.out_channels))[0, 0]
            blocks = [units[:, at : at + columns].reshape(-1) for at in range(0, c.out_channels, columns)]
            return np.concatenate(blocks)

        return (Packing(self.fused.operand(1), f"{self.layout}:{columns}:{self.micro.layout}", pack),)

    def build(self) -> Implementation:
        return replace(super().build(), weights=self.row_bytes * self.elements.out_channels)

    def _tasks(self) -> None:
        """No loop over one task, and none over rows that LLVM would count in LR."""
        first, last = self.e.task_range()
        if self.by_rows:
            self.e.no_unroll_loop(last - first, lambda i: self._task(first + i))
            return
        self.e.branch(first < last, lambda: self._task(first))

    # The product ------------------------------------------------------------------------------------------

    def _each(self, count: int, body: Callable[[Any], None]) -> None:
        """LLVM counts loops in LR where it knows how often they run, which takes a register of a sum's."""
        if count > 1 or self.e.short:
            self.e.no_unroll_loop(count, body)
        else:
            super()._each(count, body)

    def _sums(self, tile: TileAt) -> Accumulators:
        return Accumulators(self.e, tile.rows, [(column, 1) for column in range(tile.columns.width)])

    def _add(self, sums: Any, tile: TileAt) -> None:
        e, length = self.e, self.row_bytes
        # TVM tells LLVM that a view is other memory than the array: a patch, which is written, has none.
        whole = tile.rows * length
        rows = e.rebased(self.operands.x, tile.pixel * length, whole) if self.in_place else self.patch
        size = tile.columns.width * self.conv.depth * WORDS
        weights = e.rebased(self.operands.weights, tile.columns.weights * WORDS, size)

        def left(row: int, k: Index) -> Any:
            return e.vload(rows, k * RUN + row * length, RUN)

        right = Matrix(weights, 0, tile.columns.width)
        self.micro.add_product(e, sums, left, right, Steps(self.conv.depth))

    def _values(self, sums: Any, row: int, width: int) -> list[tuple[int, int, Any]]:
        """Whole vectors of a row's sums, made of numbers in an array, and the numbers that are left."""
        e, found = self.e, []
        for at in range(0, width - width % self.lanes, self.lanes):
            vector = e.local(self.lanes)
            for lane in range(self.lanes):
                e.vstore(vector, lane, sums.get(row, at + lane, 1), 1)
            found.append((at, self.lanes, e.let(e.vload(vector, 0, self.lanes))))
        rest = range(width - width % self.lanes, width)
        return [*found, *((at, 1, e.let(sums.get(row, at, 1))) for at in rest)]

    # The patch --------------------------------------------------------------------------------------------

    def _row(self, r: Any) -> Any:
        return r * self.conv.depth

    def _border(self, row: Any, origin: Origin) -> None:
        memory = self.operands.x, self.patch, self.e.let(row * RUN)
        first = origin.image, origin.row, origin.column
        copy_window(self.e, self.elements, memory, first, self.elements.outside)

    def _copied(self, row: Any, source: Any, to: Any, count: int) -> None:
        e, x = self.e, self.operands.x
        copy_bytes(
            e, self.patch, e.let(row * RUN + to), count, lambda at, lanes: e.vload(x, source + at, lanes)
        )

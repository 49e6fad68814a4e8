"""Implicit matrix products of bytes on CPUs that multiply pairs of 16 bits in general registers.

A patch is of 16 bits: each quad of the reduction is two pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array, Packing
from edgepack.compiler.kernels.cpu.conv.geometry import pack_weights
from edgepack.compiler.kernels.cpu.conv.patches import PatchesOfTaps
from edgepack.compiler.kernels.cpu.conv.tile_product import TileAt
from edgepack.compiler.kernels.cpu.emit.indices import Index, div
from edgepack.compiler.kernels.cpu.emit.register_tile import Matrix, Steps
from edgepack.compiler.kernels.cpu.micro.word_pairs import WordPairs, widened_pairs

__all__ = ["WidenedPatches"]

#: Where in a quad of a patch its bytes lie, whose pairs are bytes 0 and 2, and 1 and 3.
ORDER = (0, 2, 1, 3)


class WidenedPatches(PatchesOfTaps):
    """Builds the kernel of one convolution without groups."""

    micro: WordPairs

    @property
    def steps(self) -> int:
        return 4

    @property
    def bytes_of_element(self) -> int:
        return 2

    @property
    def in_quads(self) -> bool:
        """Whether pixels are whole quads, which are widened at once. Otherwise numbers lie in the patch as
        they do in the image, and the bytes of weights in an order of their own."""
        return self.elements.in_channels % 4 == 0

    def _declare_patch(self) -> Any:
        """Quad ``k`` of row ``r``: the words 2 (r K + k) and the next one, of K quads a row."""
        words = 2 * self.conv.depth * self.tile.rows
        # TVM tells LLVM that arrays of two types are no two views of one, so it is read as it is written.
        return self.e.scratch(words, "int32") if self.in_quads else self.e.scratch(2 * words, "int16")

    def packings(self) -> tuple[Packing, ...]:
        c, columns = self.elements, self.tile.columns
        param, extra = self.fused.operand(1), self.conv.depth * 4 - c.depth
        order = list(range(4)) if self.in_quads else list(ORDER)

        def pack(w: Array) -> Array:
            flat = np.pad(w.reshape(c.depth, c.out_channels), [(0, extra), (0, 0)])
            quads = flat.reshape(-1, 4, c.out_channels)[:, order]
            return pack_weights(self.micro.pack_units(quads.reshape(1, 1, -1, c.out_channels)), 1, columns, 0)

        return (Packing(param, f"{self.layout}:{columns}:patches:{order[1]}", pack),)

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

    # The patch --------------------------------------------------------------------------------------------

    def _row(self, r: Any) -> Any:
        return r * self.conv.depth

    def _copied(self, row: Any, source: Any, to: Any, count: int) -> None:
        e, x = self.e, self.operands.x

        def value(k: Any) -> Any:
            if not self.in_quads:
                return tirx.Cast("int16", e.vload(x, source + k, 1))
            return widened_pairs(e, tirx.reinterpret("int32", e.vload(x, source + k * 4, 4)))

        self._written(row, to, count, value)

    def _filled(self, row: Any, to: Any, count: int) -> None:
        self._written(row, to, count, None)

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

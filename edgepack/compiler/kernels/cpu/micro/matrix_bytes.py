"""The micro-kernel of CPUs that multiply matrices of bytes: AArch64's SMMLA (FEAT_I8MM).

One instruction adds the product of 2 rows by 8 bytes and 8 bytes by 2 columns to 4 sums: 32 multiply-adds,
twice as many as SDOT. A unit is 8 neighbouring elements of the reduction, so two units of a row of the packed
weights are what it takes of two columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, LeftOperand, Matrix, Tile
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.partial_sums import Partial, PartialSums
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["MatrixBytes", "multiplies_matrices"]

#: Sums in a vector, and in one row of what an instruction adds to.
LANES, PAIR = 4, 2

#: Multiply-adds in the time of one of float32: those of an instruction, 32 beside 4.
RATE = 8.0


def multiplies_matrices(target: CpuTarget) -> bool:
    """Whether the CPU has the instruction."""
    return target.lanes("int32") == LANES and has_feature(target, "i8mm") and has_feature(target, "dotprod")


@dataclass(frozen=True)
class MatrixBytes(PartialSums):
    """Multiplies pairs of rows by pairs of columns. An odd last row is multiplied twice."""

    order = 145
    group = 8

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> MatrixBytes | None:
        bytes_ = (types.left, types.right, types.sums) == ("int8", "int8", "int32")
        return cls(types, target) if bytes_ and multiplies_matrices(target) else None

    def suits(self, run: int, columns: int) -> bool:
        """Others of the reduction's lengths are of quads."""
        return run % self.group == 0 and columns >= LANES

    @property
    def left_unit(self) -> str:
        return "int64"

    @property
    def right_unit(self) -> str:
        return "int64"

    @property
    def unit_bytes(self) -> int:
        return 8

    @property
    def layout(self) -> str:
        return "eights"

    def pack_units(self, weights: Array) -> Array:
        """Neighbouring elements of a column next to each other in memory."""
        rows, taps, elements, columns = weights.shape
        units = np.moveaxis(weights.reshape(rows, taps, elements // self.group, self.group, columns), 3, 4)
        return np.ascontiguousarray(units.astype("i1")).view("<i8")[..., 0]

    def tile(self, rows: int, columns: int) -> Tile:
        """16 vectors of sums of 32 registers, as square as the product allows."""
        pairs = min(4, -(-rows // PAIR))
        vectors = min(-(-columns // LANES), 8 // pairs)
        return Tile(min(rows, 8), min(columns, vectors * LANES))

    def partial_rows(self, rows: int) -> int:
        return -(-rows // PAIR)

    def whole(self, e: Emitter, inner: Accumulators, row: int, chunk: tuple[int, int]) -> Any:
        column, lanes = chunk
        first = row % PAIR * PAIR
        order = [first + k for at in range(0, 2 * lanes, LANES) for k in (at, at + 1)]
        return shuffle([e.let(inner.get(row // PAIR, 2 * column, 2 * lanes))], order)

    def add_steps(
        self, e: Emitter, inner: Partial, steps: tuple[Index, int], left: LeftOperand, right: Matrix
    ) -> None:
        """Two units of a row are loaded together."""
        (first, count), last = steps, inner.tile_rows - 1
        pairs = [(row, min(row + 1, last)) for row in range(0, inner.tile_rows, PAIR)]
        units = [e.let(left(row, first, count)) for row in range(inner.tile_rows)]
        for u in range(count):
            rows = [self._bytes(e, shuffle([units[a], units[b]], [u, count + u])) for a, b in pairs]
            for column, place, _ in self.parts(inner, right, LANES):
                source = right.at + (first + u) * right.stride + place
                weights = self._bytes(e, e.vload(right.buffer, source, PAIR))
                for number, row in enumerate(rows):
                    sums = inner.get(number, column, LANES)
                    made = tirx.call_llvm_pure_intrin(
                        "int32x4", "llvm.aarch64.neon.smmla.v4i32.v16i8", sums, row, weights
                    )
                    inner.set(number, column, made, LANES)

    @staticmethod
    def _bytes(e: Emitter, units: Any) -> Any:
        return e.let(tirx.reinterpret("int8x16", units))

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """Units are not multiplied alone; see :meth:`add_product`."""
        raise NotImplementedError

    @property
    def rate(self) -> float:
        return RATE

    def parameters(self) -> dict[str, Any]:
        return {"operands": "eights of bytes", "rate": self.rate}

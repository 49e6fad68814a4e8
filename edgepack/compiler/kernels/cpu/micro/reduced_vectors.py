"""The micro-kernel of runs of 16 bytes on CPUs that add all products of two vectors to one sum in a general
register: VMLADAVA of ARM's Helium (Cortex-M55, M85).

A unit is a whole vector: 16 neighbouring elements of the reduction. The instruction takes sums in registers
of even numbers only, of which there are eight, so a tile has at most eight sums, and its loop counts in one
of the other registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, LeftOperand, Matrix, Steps, Tile
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.kernels.schedule import ScheduleError, by
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["RUN", "ReducedVectors", "reduces_vectors"]

#: Bytes of a vector, and its words.
RUN, WORDS = 16, 4

#: Rows and columns of a tile: two pixels by one vector of sums, as they are stored.
ROWS, COLUMNS = 2, 4

#: Units that rows have together up to which steps follow each other without a loop, and steps of an iteration
#: of one: LLVM keeps units of rows from one block of columns to the next, on the stack where they are many.
STRAIGHT, UNROLL = 12, 3


def reduces_vectors(target: CpuTarget) -> bool:
    """Whether the CPU adds all products of two vectors of bytes to one sum."""
    return target.vector_bits == 8 * RUN and has_feature(target, "mve")


@dataclass(frozen=True)
class ReducedVectors(MicroKernel):
    """Adds the 16 products of two units to a sum by one instruction."""

    order = 157
    group = RUN

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> ReducedVectors | None:
        bytes_ = (types.left, types.right, types.sums) == ("int8", "int8", "int32")
        return cls(types, target) if bytes_ and reduces_vectors(target) else None

    @property
    def right_unit(self) -> str:
        """Words: the displacement of a load of words reaches four times as far as of one of bytes."""
        return "int32"

    @property
    def layout(self) -> str:
        return "runs"

    @property
    def overhang(self) -> int:
        return 0

    def pack_units(self, weights: Array) -> Array:
        """(rows, taps, elements, columns) as (rows, taps, elements / 16, columns, words of 16 elements)."""
        rows, taps, elements, columns = weights.shape
        runs = weights.astype("i1").reshape(rows, taps, elements // RUN, RUN, columns)
        return np.ascontiguousarray(runs.swapaxes(3, 4)).view("<i4")

    def suits(self, run: int, columns: int) -> bool:
        """Always: a patch has whole units, whatever the elements of a window's row."""
        return True

    def tile(self, rows: int, columns: int) -> Tile:
        """2 rows by 4 columns, whose sums take all registers that can have one."""
        return Tile(min(rows, ROWS), min(columns, COLUMNS))

    def check_tile(self, tile: tuple[int, int], columns: int) -> None:
        super().check_tile(tile, columns)
        if tile[0] * tile[1] > ROWS * COLUMNS:
            raise ScheduleError(f"a register tile of {by(tile)}, of {ROWS * COLUMNS} registers for sums")

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums``, one number, + the products of two vectors of bytes."""
        assert lanes == 1
        no = IntImm("int32", 0)  # unsigned, subtracted, pairs exchanged
        name = "llvm.arm.mve.vmldava.v16i8"
        return tirx.call_llvm_pure_intrin("int32", name, no, no, no, sums, left, right)

    def add_product(
        self, e: Emitter, sums: Accumulators, left: LeftOperand, right: Matrix, steps: Steps
    ) -> None:
        """As of any micro-kernel; ``left(r, k)`` is unit ``k`` of row ``r``, a vector of bytes.

        LLVM counts loops in LR where it knows how often they run, which takes a register of a sum's.
        """

        def several(first: Index, count: int) -> None:
            for u in range(count):
                step = first + u
                units = [e.let(left(row, step)) for row in range(sums.rows)]
                for column in range(sums.columns):
                    at = (right.at + step * right.stride + column) * WORDS
                    weights = e.let(tirx.reinterpret("int8x16", e.vload(right.buffer, at, WORDS)))
                    for row, unit in enumerate(units):
                        added = self.multiply_add(e, unit, weights, sums.get(row, column, 1), 1)
                        sums.set(row, column, added, 1)

        depth = steps.depth
        if e.short:
            e.no_unroll_loop(depth, lambda i: several(i, 1))
            return
        if depth * sums.rows <= STRAIGHT:
            several(0, depth)
            return
        e.no_unroll_loop(depth // UNROLL, lambda i: several(e.let(i * UNROLL), UNROLL))
        several(depth - depth % UNROLL, depth % UNROLL)

    @property
    def rate(self) -> float:
        """16 products in the time of four of float32."""
        return 4.0

    def parameters(self) -> dict[str, Any]:
        return {"operands": "runs of bytes", "rate": self.rate}

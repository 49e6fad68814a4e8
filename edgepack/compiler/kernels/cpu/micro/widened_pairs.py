"""The micro-kernel of pairs of int16 on CPUs that multiply to 32 bits and add at once: SMLAL of ARM (VMLAL),
VWMACC of RISC-V's V.

Products of a pair are not added by an instruction: of each sum a tile has two, of the even and of the odd
elements of the reduction, which are added up once, behind it. So a row's pair is one broadcast, and inputs of
Winograd's form lie as they do where an instruction adds them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import LeftOperand, Matrix, Tile
from edgepack.compiler.kernels.cpu.micro.int32_units import Int32Units
from edgepack.compiler.kernels.cpu.micro.partial_sums import Partial, PartialSums, folded
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["WidenedPairs", "widens_pairs"]

#: Sums in a vector.
LANES = 4


def widens_pairs(target: CpuTarget) -> bool:
    """Whether the CPU multiplies int16 so: ARM with NEON, RISC-V with V."""
    widens = has_feature(target, "neon") or has_feature(target, "v")
    return target.lanes("int32") == LANES and widens


@dataclass(frozen=True)
class WidenedPairs(PartialSums, Int32Units):
    """Broadcasts a pair of each row, and multiplies it by pairs of the columns' weights."""

    order = 210
    group = 2
    packed = "<i2"

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> WidenedPairs | None:
        pairs = (types.left, types.right, types.sums) == ("int16", "int16", "int32")
        return cls(types, target) if pairs and widens_pairs(target) else None

    @property
    def layout(self) -> str:
        return "pairs"

    def tile(self, rows: int, columns: int) -> Tile:
        """6 rows by 2 vectors of columns, which have 24 of 32 registers for sums, or 4 by 1."""
        most = self.target.usable_registers * 3 // 8
        if most < 12:
            most = 4
        vectors = min(-(-columns // LANES), max(1, most // min(rows, 6)))
        return Tile(min(rows, most // vectors), min(columns, vectors * LANES))

    @property
    def temporaries(self) -> int:
        """All of them on RISC-V, where what groups need is gathered lane by lane."""
        usable = self.target.usable_registers
        return usable // 2 if has_feature(self.target, "neon") else usable

    def add_steps(
        self, e: Emitter, inner: Partial, steps: tuple[Index, int], left: LeftOperand, right: Matrix
    ) -> None:
        for u in range(steps[1]):
            self._step(e, inner, steps[0] + u, left, right)

    def _step(self, e: Emitter, inner: Partial, step: Index, left: LeftOperand, right: Matrix) -> None:
        # ARM multiplies 4 numbers: of 8, the upper ones would have to be moved to a register of their own.
        numbers = LANES if has_feature(self.target, "neon") else 2 * LANES
        loaded = {
            column: self._wide(e, e.vload(right.buffer, right.at + step * right.stride + place, count // 2))
            for column, place, count in self.parts(inner, right, numbers)
        }
        for row in range(inner.rows):
            unit = e.let(left(row, step))
            for column, weights in loaded.items():
                count = int(str(weights.ty.dtype).partition("x")[2])
                value = self._wide(e, e.splat(unit, count // 2))
                inner.set(row, column, inner.get(row, column, count) + value * weights, count)

    @staticmethod
    def _wide(e: Emitter, units: Any) -> Any:
        """The numbers of so many units, as int32. LLVM makes one instruction of that and the product."""
        lanes = 2 * int(str(units.ty.dtype).partition("x")[2])
        numbers = e.let(tirx.reinterpret(f"int16x{lanes}", units))
        return tirx.Cast(f"int32x{lanes}", numbers)

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums`` + the product of the low halves + that of the high halves."""
        return sums + folded(e, self._wide(e, left) * self._wide(e, right), lanes)

    @property
    def rate(self) -> float:
        return 1.0

    def parameters(self) -> dict[str, Any]:
        return {"operands": "pairs of int16", "rate": self.rate}

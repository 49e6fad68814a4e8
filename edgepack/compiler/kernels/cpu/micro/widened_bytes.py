"""The micro-kernel of quads of bytes on CPUs of ARM without dot products: widening products, pairwise sums.

SMULL multiplies 8 bytes to 16 bits each, SMLAL adds 8 more products to these, and SADALP adds neighbours of
them to 4 sums of 32 bits: 16 multiply-adds in three instructions (on 32-bit ARM VMULL, VMLAL and VPADAL). Two
products of bytes fit 16 bits but for those of two weights that are -128: the graph has products of bytes here
only where no weight is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import LeftOperand, Matrix, Tile
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.micro.int32_units import Int32Units, dot4_by_shifts
from edgepack.compiler.kernels.cpu.micro.partial_sums import Partial, PartialSums
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["WidenedBytes", "widened_rate", "widens_bytes"]

#: Sums in a vector.
LANES = 4


def widens_bytes(target: CpuTarget) -> bool:
    """Whether the CPU multiplies bytes so: one of ARM with NEON."""
    return target.lanes("int32") == LANES and has_feature(target, "neon")


def widened_rate(target: CpuTarget) -> float:
    """Multiply-adds in the time of one of float32: what the instructions do in a cycle beside what FMLA does
    (notes/inner-loops-of-integers.md)."""
    return 1.3 if target.in_order else 2.0


@dataclass(frozen=True)
class WidenedBytes(PartialSums, Int32Units):
    """Broadcasts a quad of each row, and multiplies it by quads of the columns' weights.

    Of each sum a tile has two: of the first and of the last two numbers of the quads. They are added up once,
    behind the reduction.
    """

    order = 160
    group = 4
    packed = "i1"

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> WidenedBytes | None:
        bytes_ = (types.left, types.right, types.sums) == ("int8", "int8", "int32")
        return cls(types, target) if bytes_ and widens_bytes(target) else None

    @property
    def layout(self) -> str:
        return "quads"

    def tile(self, rows: int, columns: int) -> Tile:
        """3 rows by 2 vectors of columns, which have 12 of 32 registers for sums, or 3 by 1. The others hold
        operands, and products until they are added: with 4 rows LLVM spills (benchmarks/assembly.py)."""
        most = self.target.usable_registers * 3 // 16
        if rows == 1 and self.target.in_order:
            most //= 2  # LLVM loads the weights of four steps first.
        vectors = min(-(-columns // LANES), max(1, most // min(rows, 3)))
        return Tile(min(rows, most // vectors), min(columns, vectors * LANES))

    @property
    def temporaries(self) -> int:
        return self.target.usable_registers // 2

    def add_steps(
        self, e: Emitter, inner: Partial, steps: tuple[Index, int], left: LeftOperand, right: Matrix
    ) -> None:
        """The products of two steps are added in 16 bits."""
        first, count = steps
        # 8 bytes each: of 16, the upper ones would have to be moved to a register of their own.
        loaded = {
            column: [
                self._bytes(e, e.vload(right.buffer, right.at + (first + u) * right.stride + place, 2))
                for u in range(count)
            ]
            for column, place, _ in self.parts(inner, right, LANES)
        }
        for row in range(inner.rows):
            units = [self._bytes(e, e.splat(left(row, first + u), 2)) for u in range(count)]
            for column, weights in loaded.items():
                old = inner.get(row, column, LANES)
                products = self._products(e, list(zip(units, weights, strict=True)))
                inner.set(row, column, self._pairwise(old, products), LANES)

    @staticmethod
    def _bytes(e: Emitter, units: Any) -> Any:
        """The bytes of so many units."""
        lanes = int(str(units.ty.dtype).partition("x")[2])
        return e.let(tirx.reinterpret(f"int8x{4 * lanes}", units))

    @staticmethod
    def _products(e: Emitter, factors: list[tuple[Any, Any]]) -> Any:
        """The sums of products of 8 bytes each, of int16."""
        first, *others = (tirx.Cast("int16x8", a) * tirx.Cast("int16x8", b) for a, b in factors)
        for product in others:
            first = first + product
        return e.let(first)

    def _pairwise(self, sums: Any, products: Any) -> Any:
        """4 sums, to each of which two neighbours of 8 numbers of 16 bits are added."""
        if self.target.pointer_bytes == 4:
            return tirx.call_llvm_pure_intrin("int32x4", "llvm.arm.neon.vpadals.v4i32.v8i16", sums, products)
        added = tirx.call_llvm_pure_intrin("int32x4", "llvm.aarch64.neon.saddlp.v4i32.v8i16", products)
        return sums + added

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums`` + the four products of bytes of ``left`` and ``right``."""
        if lanes != LANES:
            return dot4_by_shifts(e, (left, right), sums, lanes, self.types.left)
        a, b = self._bytes(e, left), self._bytes(e, right)
        low, high = (
            self._products(e, [(shuffle([a], half), shuffle([b], half))]) for half in (range(8), range(8, 16))
        )
        even, odd = (shuffle([low, high], range(start, 16, 2)) for start in (0, 1))
        return self._pairwise(sums, e.let(even + odd))

    @property
    def rate(self) -> float:
        return widened_rate(self.target)

    def parameters(self) -> dict[str, Any]:
        return {"operands": "quads of bytes", "rate": self.rate}

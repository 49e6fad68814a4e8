"""The micro-kernel of quads of bytes on CPUs that multiply pairs of 16 bits in general registers: SMLAD of
ARM's DSP extension (Cortex-M4, M7, M33).

SXTB16 makes two numbers of 16 bits of the bytes 0 and 2 of a word, and of the bytes 1 and 3 of the same one
turned by 8 bits. Weights are widened so as they are loaded. What a window reads is widened once, to a patch
that serves all columns (:mod:`edgepack.compiler.kernels.cpu.conv.widened_patches`), so that a step loads its
pairs as they are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, LeftOperand, Matrix, Steps, Tile
from edgepack.compiler.kernels.cpu.micro.int32_units import Int32Units
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["WordPairs", "pairs_in_words", "widened_pairs"]

#: Rows of a tile of one column: with more LLVM spills (a keyword spotter takes 5.09 million instructions with
#: 4 rows, 5.7 with 5, 5.8 with 6, and with 2 by 2 sums 5.6: benchmarks/mcu_instructions.py).
MOST_ROWS = 4

#: Rows and columns of a tile of few rows, and columns of one of a single row.
FEW_ROWS, FEW_COLUMNS, ROW_COLUMNS = 3, 2, 4


def pairs_in_words(target: CpuTarget) -> bool:
    """Whether the CPU has SXTB16 and SMLAD, and no vectors."""
    return not target.vector_bits and has_feature(target, "dsp")


def widened_pairs(e: Emitter, word: Any, base: Any = None, *, signed: bool = True) -> tuple[Any, Any]:
    """The bytes 0 and 2, and 1 and 3, of an int32, each two as pairs of int16 in an int32.

    Args:
        base: such a pair that is added to both, if not 0.
    """
    word = e.let(word)
    turned = e.let(tirx.call_llvm_pure_intrin("int32", "llvm.fshr.i32", word, word, IntImm("int32", 8)))
    kind, first = "s" if signed else "u", () if base is None else (base,)
    name = f"llvm.arm.{kind}xtb16" if base is None else f"llvm.arm.{kind}xtab16"
    low, high = (e.let(tirx.call_llvm_pure_intrin("int32", name, *first, one)) for one in (word, turned))
    return low, high


@dataclass(frozen=True)
class WordPairs(Int32Units):
    """Adds the four products of two quads to a sum by two instructions, once both are pairs."""

    order = 155
    group = 4
    packed = "i1"

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> WordPairs | None:
        bytes_ = (types.left, types.right, types.sums) == ("int8", "int8", "int32")
        return cls(types, target) if bytes_ and pairs_in_words(target) else None

    @property
    def layout(self) -> str:
        return "quads"

    def suits(self, run: int, columns: int) -> bool:
        """Always: a patch has whole quads, whatever the elements of a window's row."""
        return True

    def tile(self, rows: int, columns: int) -> Tile:
        """4 rows by 1 column: weights, and what the epilogue reads of a channel, serve 4 pixels."""
        if rows == 1:
            return Tile(1, min(columns, ROW_COLUMNS))
        if rows <= FEW_ROWS:
            return Tile(min(rows, 2), min(columns, FEW_COLUMNS))
        return Tile(min(rows, MOST_ROWS), 1)

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums`` + the four products of bytes of ``left`` and ``right``."""
        assert lanes == 1
        return self.add_pairs(widened_pairs(e, left), widened_pairs(e, right), sums)

    @staticmethod
    def add_pairs(left: tuple[Any, Any], right: tuple[Any, Any], sums: Any) -> Any:
        """``sums`` + the four products of two quads that are pairs already."""
        for a, b in zip(left, right, strict=True):
            sums = tirx.call_llvm_pure_intrin("int32", "llvm.arm.smlad", a, b, sums)
        return sums

    def add_product(
        self, e: Emitter, sums: Accumulators, left: LeftOperand, right: Matrix, steps: Steps
    ) -> None:
        """As of any micro-kernel; ``left(r, k)`` are the two pairs of quad ``k`` of row ``r`` of a patch.

        An iteration has a step of each half of the reduction. LLVM makes one instruction (LDRD) of the loads
        of two pairs only where no other pair lies next to them.
        """
        depth, half = steps.depth, steps.depth // 2

        def step(k: Index) -> None:
            start = right.at + k * right.stride
            weights = [widened_pairs(e, e.vload(right.buffer, start + c, 1)) for c in range(sums.columns)]
            for row in range(sums.rows):
                pairs = left(row, k)
                for column, weight in enumerate(weights):
                    added = self.add_pairs(pairs, weight, sums.get(row, column, 1))
                    sums.set(row, column, added, 1)

        def iteration(k: Index) -> None:
            step(k)
            step(k + half)

        if half > 1 or e.short:
            e.no_unroll_loop(half, iteration)
        elif half:
            iteration(0)
        if e.short:
            e.no_unroll_loop(depth % 2, lambda k: step(k + (depth - 1)))
        elif depth % 2:
            step(depth - 1)

    @property
    def rate(self) -> float:
        return 1.0

    def parameters(self) -> dict[str, Any]:
        return {"operands": "quads of bytes", "rate": self.rate}

"""The micro-kernel of bytes on CPUs that have neither vectors nor instructions for several numbers of a word:
RISC-V without V, Cortex-M0.

A step loads a byte of each row and of each column, which loads widen, and adds a product of 32 bits to each
sum. Rows are pixels of a *patch* (:mod:`edgepack.compiler.kernels.cpu.conv.byte_patches`), in which the bytes
of a step lie next to each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, LeftOperand, Matrix, Steps, Tile
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.cpu.micro.word_pairs import pairs_in_words
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.plan.target import CpuTarget

__all__ = ["STEPS", "SingleBytes", "single_bytes"]

#: Steps of an iteration; patches and weights have a multiple of them.
STEPS = 2


def single_bytes(target: CpuTarget) -> bool:
    """Whether the CPU multiplies bytes one by one, and is short of memory for anything wider."""
    return target.bare_metal and not target.vector_bits and not pairs_in_words(target)


@dataclass(frozen=True)
class SingleBytes(MicroKernel):
    """Multiplies a byte of each row by one of each column."""

    order = 170

    @classmethod
    def of(cls, types: ProductTypes, target: CpuTarget) -> SingleBytes | None:
        bytes_ = (types.left, types.right, types.sums) == ("int8", "int8", "int32")
        return cls(types, target) if bytes_ and single_bytes(target) else None

    @property
    def packs(self) -> bool:
        """Weights have a step more where their number is odd."""
        return True

    def tile(self, rows: int, columns: int) -> Tile:
        """4 by 4 sums, 4 weights, a factor, its product, two pointers and an end are 25 of RISC-V's 32
        registers. A single row has 8 columns."""
        if rows == 1:
            return Tile(1, min(columns, 8))
        return Tile(min(rows, 4), min(columns, 4))

    def multiply_add(self, e: Emitter, left: Any, right: Any, sums: Any, lanes: int) -> Any:
        """``sums`` + ``left`` * ``right``, of bytes; not before what was emitted before it.

        LLVM multiplies all numbers of a step first, and spills them; a use of each sum, of which it makes no
        instruction, keeps the order.
        """
        assert lanes == 1
        new = e.let(sums + tirx.Cast("int32", left) * tirx.Cast("int32", right))
        e.add(tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.fake.use", new)))
        return new

    def add_product(
        self, e: Emitter, sums: Accumulators, left: LeftOperand, right: Matrix, steps: Steps
    ) -> None:
        """As of any micro-kernel, in a loop that LLVM does not unroll further, of a multiple of ``STEPS``."""

        def iteration(k: Index) -> None:
            self._steps(e, sums, (e.let(k * STEPS), STEPS), left, right)

        e.no_unroll_loop(steps.depth // STEPS, iteration)

    @property
    def rate(self) -> float:
        return 1.0

    def parameters(self) -> dict[str, Any]:
        return {"operands": "bytes"}

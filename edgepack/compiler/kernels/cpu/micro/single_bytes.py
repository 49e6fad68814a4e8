"""The micro-kernel of bytes on CPUs that have neither vectors nor instructions for several numbers of a word:
RISC-V without V, Cortex-M0.

A step loads a byte of each row and of each column, which loads widen, and adds a product of 32 bits to each
sum. Rows are pixels of a *patch* (:mod:`edgepack.compiler.kernels.cpu.conv.byte_patches`), in which the bytes
of a step lie next to each other.

Loads of ARMv6-M extend no sign, and its multiplication overwrites a factor. Weights are *raised* by 128
there, and each one is the factor that is overwritten, of a tile of one row; 128 times the sum of the row is
subtracted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.contract import Array
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, LeftOperand, Matrix, Steps, Tile
from edgepack.compiler.kernels.cpu.micro.micro_kernel import MicroKernel
from edgepack.compiler.kernels.cpu.micro.word_pairs import pairs_in_words
from edgepack.compiler.kernels.product_types import ProductTypes
from edgepack.plan.target import CpuTarget

__all__ = ["SingleBytes", "single_bytes"]

#: Steps of an iteration; patches and weights have a multiple of them. And of one whose loads reach as far.
STEPS, RAISED_STEPS = 2, 8

#: What is added to weights.
RAISED = 128


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
    def raised(self) -> int:
        """What is added to weights, which are uint8 then."""
        return 0 if self.target.loads_signed_bytes else RAISED

    @property
    def steps(self) -> int:
        """Steps of an iteration."""
        return RAISED_STEPS if self.raised else STEPS

    @property
    def right_unit(self) -> str:
        return "uint8" if self.raised else "int8"

    def pack_units(self, weights: Array) -> Array:
        return (weights.astype(np.int16) + self.raised).astype(self.right_unit)

    @property
    def layout(self) -> str:
        return "raised" if self.raised else ""

    @property
    def packs(self) -> bool:
        """Weights have a step more where their number is odd."""
        return True

    def tile(self, rows: int, columns: int) -> Tile:
        """4 by 4 sums, 4 weights, a factor, its product, two pointers and an end are 25 of RISC-V's 32
        registers. A single row has 8 columns. Of ARMv6-M's 8, 1 by 2 sums, a weight, a number of the patch,
        two pointers and a counter are 7; with 4 columns LLVM spills sums."""
        if self.raised:
            return Tile(1, min(columns, 2))
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
            first = e.let(k * self.steps)
            if self.raised:
                self._one_by_one(e, sums, first, left, right)
            else:
                self._steps(e, sums, (first, self.steps), left, right)

        e.no_unroll_loop(steps.depth // self.steps, iteration)

    def _one_by_one(
        self, e: Emitter, sums: Accumulators, first: Index, left: LeftOperand, right: Matrix
    ) -> None:
        """The steps of an iteration, each weight loaded where it is multiplied."""
        for step in range(self.steps):
            number = e.let(left(0, first + step))
            for column in range(sums.columns):
                weight = e.vload(right.buffer, right.at + (first + step) * right.stride + column, 1)
                sums.set(0, column, self.multiply_add(e, number, weight, sums.get(0, column, 1), 1), 1)

    @property
    def rate(self) -> float:
        return 1.0

    def parameters(self) -> dict[str, Any]:
        return {"operands": "bytes"}

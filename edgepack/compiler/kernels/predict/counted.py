"""Instructions of an implementation on a CPU without caches, predicted from its TIR and its machine code.

How often the blocks of a kernel are executed is known from its TIR; how many instructions LLVM makes of one
of them is not: it unrolls, spills, folds addresses. So what its inner loop has for each multiplication is
read from the machine code, and the rest is counted in TIR, each kind by a constant of the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Protocol

from tvm.tirx import PrimFunc

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.predict.instructions import Instructions
from edgepack.compiler.kernels.predict.machine_code import inner_loop
from edgepack.compiler.kernels.predict.walk import KernelWalk
from edgepack.plan.costs import InstructionCosts
from edgepack.plan.target import CpuTarget

__all__ = ["Compile", "Counted", "counted", "weighted"]


class Code(Protocol):
    """Machine code of a kernel."""

    def assembly(self) -> str: ...

    def code_bytes(self) -> int: ...


#: Makes machine code of a kernel.
Compile = Callable[[PrimFunc], Code]


@dataclass(frozen=True)
class Counted:
    """What an implementation takes.

    Attributes:
        inner_instructions: that its inner loops execute, about, of all tasks.
        outer_instructions: that all else executes.
        accesses: loads and stores among them.
        codes: of its kernels.
        scratch_bytes: of RAM beside its inputs and outputs.
        rest: of the instructions, as TIR has them, those outside of inner loops.
    """

    inner_instructions: float = 0.0
    outer_instructions: float = 0.0
    accesses: float = 0.0
    codes: tuple[Code, ...] = ()
    scratch_bytes: int = 0
    rest: Instructions = field(default_factory=Instructions)

    @cached_property
    def code_bytes(self) -> int:
        """Of its kernels."""
        return sum(code.code_bytes() for code in self.codes)

    @property
    def instructions(self) -> float:
        """That all its tasks execute."""
        return self.inner_instructions + self.outer_instructions

    @property
    def cycles(self) -> float:
        """At most: each load and store takes one more than another instruction."""
        return self.instructions + self.accesses


def counted(
    implementation: Implementation, target: CpuTarget, costs: InstructionCosts, compiled: Compile
) -> Counted | None:
    """What is predicted; None where nothing can be said."""
    inner = accesses = 0.0
    rest = Instructions()
    known: dict[int, tuple[KernelWalk, Code]] = {}
    for stage in implementation.stages:
        if id(stage.function) not in known:
            known[id(stage.function)] = KernelWalk(stage.function, target), compiled(stage.function)
        walk, code = known[id(stage.function)]
        done = walk.executed(0, stage.tasks)
        outside = done.instructions + done.inner.times(-1.0)
        if done.inner.multiply_adds:
            loop = inner_loop(code.assembly())
            if loop is None:
                return None
            times = done.inner.multiply_adds / loop.products
            inner += times * loop.instructions
            accesses += times * loop.accesses
        accesses += outside.loads + outside.stores
        rest += outside
    scratch = sum(implementation.scratch) + sum(implementation.temps)
    codes = tuple(code for _, code in known.values())
    return Counted(inner, weighted(rest, costs), accesses, codes, scratch, rest)


def weighted(counts: Instructions, costs: InstructionCosts) -> float:
    """Instructions of the machine that those of TIR become."""
    return (
        costs.multiply_add * counts.multiply_adds
        + costs.arithmetic * counts.arithmetic
        + costs.load * counts.loads
        + costs.store * counts.stores
        + costs.move * counts.moves
        + costs.scalar * counts.scalars
        + costs.branch * counts.branches
    )

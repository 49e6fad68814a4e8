"""Which calls of a program the GPU computes, by which kernels."""

from __future__ import annotations

from math import prod

import tvm_ffi

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.code import SYMBOL
from edgepack.compiler.kernels.gpu.contract import FULL, GpuImplementation, HalfOperands
from edgepack.compiler.kernels.implement_gpu import implement_on_gpu
from edgepack.compiler.kernels.schedule import Given
from edgepack.compiler.planner.measured import GpuSchedules, nothing_given_on_gpu
from edgepack.compiler.planner.program import Call
from edgepack.compiler.reporter import Reporter
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Kernel

__all__ = ["GpuSelector"]


#: What the names of stages begin with that add up partial sums, or transform for a product and back.
FINISHING = ("partial_sums", "winograd")


#: What decides on a group's kernels beside its function: its outputs, what is float16, what is given.
_Wanted = tuple[int, HalfOperands, Given]


class GpuSelector:
    """Selects the GPU's kernels for calls; equal ones share kernels.

    Attributes:
        kernels: what is reported of each kernel, by symbol.
        texts: their text, by symbol.
    """

    def __init__(
        self,
        target: GpuTarget,
        prefix: str,
        reporter: Reporter,
        schedules: GpuSchedules = nothing_given_on_gpu,
    ) -> None:
        self.target, self.prefix, self.reporter, self.schedules = target, prefix, reporter, schedules
        self.kernels: dict[str, Kernel] = {}
        self.texts: dict[str, str] = {}
        self._symbols: dict[str, str] = {}
        self._known: dict[int, list[tuple[FusedGroup, _Wanted, GpuImplementation | str]]] = {}

    def select(self, call: Call, half: HalfOperands = FULL) -> str:
        """Gives the call the GPU's kernels by the rules; returns why the GPU does not serve it, or "".

        Args:
            half: what of it is float16 in memory.
        """
        self.reporter.kernel(call.fused.name)
        made = self._implementation(call.fused, half, {})
        if isinstance(made, str):
            return made
        self._give(call, made, half)
        return ""

    def apply_schedules(self, call: Call, half: HalfOperands) -> str:
        """Gives a call, whose kernels the rules chose, those of the schedules that are given for it; returns
        why these do not fit, and the rules' stay, or ""."""
        given = self.schedules(call.fused, half)
        if not given:
            return ""
        made = self._implementation(call.fused, half, given)
        if isinstance(made, str):
            return made
        self._give(call, made, half)
        return ""

    def _give(self, call: Call, made: GpuImplementation, half: HalfOperands) -> None:
        call.gpu = made
        call.symbols = tuple(self._symbol(call, made, number, half) for number in range(len(made.stages)))

    def _implementation(self, fused: FusedGroup, half: HalfOperands, given: Given) -> GpuImplementation | str:
        """Kernels for a group, or why there are none."""
        key = tvm_ffi.structural_hash(fused.function)
        wanted = fused.outputs, half, given
        for known, as_wanted, before in self._known.get(key, []):
            if as_wanted == wanted and tvm_ffi.structural_equal(known.function, fused.function):
                return before
        made = self._made(fused, half, given)
        self._known.setdefault(key, []).append((fused, wanted, made))
        return made

    def _made(self, fused: FusedGroup, half: HalfOperands, given: Given) -> GpuImplementation | str:
        try:
            return implement_on_gpu(fused, self.target, half, given)
        except RuleError as error:
            return str(error)

    def _symbol(self, call: Call, made: GpuImplementation, number: int, half: HalfOperands) -> str:
        """The name of a stage's kernel: that of an equal one, or a new one."""
        stage = made.stages[number]
        if stage.text not in self._symbols:
            symbol = f"{self.prefix}g{len(self.texts)}_{made.rules[number]}"
            self._symbols[stage.text] = symbol
            self.texts[symbol] = stage.text.replace(SYMBOL, symbol)
            moved = sum(
                prod(int(d) for d in b.shape) * DTYPE_BYTES["float16" if i in half.params else str(b.dtype)]
                for i, b in enumerate(call.fused.function.params)
            )
            # All is counted at one kernel: the last one, but not one that finishes what a product left.
            last = number == max(i for i, rule in enumerate(made.rules) if not rule.startswith(FINISHING))
            self.kernels[symbol] = Kernel(
                symbol,
                len(stage.operands),
                call.fused.operators,
                f"{self.target.api}.{made.rules[number]}",
                {**made.parameters, **(stage.schedule.printed() if stage.schedule else {})},
                made.flops if last else 0,
                moved if last else 0,
                backend=self.target.api,
            )
        return self._symbols[stage.text]

"""Which calls of a program the GPU computes, by which kernels."""

from __future__ import annotations

from math import prod

import tvm_ffi

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.gpu.code import SYMBOL
from edgepack.compiler.kernels.gpu.contract import FULL, GpuImplementation, HalfOperands
from edgepack.compiler.kernels.implement_gpu import implement_on_gpu
from edgepack.compiler.kernels.schedule import Schedules, nothing_given
from edgepack.compiler.planner.program import Call
from edgepack.compiler.reporter import Reporter
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Kernel

__all__ = ["GpuSelector"]


#: What the names of stages begin with that add up partial sums, or transform for a product and back.
FINISHING = ("partial_sums", "winograd")


class GpuSelector:
    """Selects the GPU's kernels for calls; equal ones share kernels.

    Attributes:
        kernels: what is reported of each kernel, by symbol.
        texts: their text, by symbol.
    """

    def __init__(
        self, target: GpuTarget, prefix: str, reporter: Reporter, schedules: Schedules = nothing_given
    ) -> None:
        self.target, self.prefix, self.reporter, self.schedules = target, prefix, reporter, schedules
        self.kernels: dict[str, Kernel] = {}
        self.texts: dict[str, str] = {}
        self._symbols: dict[str, str] = {}
        self._known: dict[int, list[tuple[FusedGroup, HalfOperands, GpuImplementation | str]]] = {}

    def select(self, call: Call, half: HalfOperands = FULL) -> str:
        """Gives the call the GPU's kernels; returns why the GPU does not serve it, or "".

        Args:
            half: what of it is float16 in memory.
        """
        self.reporter.kernel(call.fused.name)
        made = self._implementation(call.fused, half)
        if isinstance(made, str):
            return made
        call.gpu = made
        call.symbols = tuple(self._symbol(call, made, number, half) for number in range(len(made.stages)))
        return ""

    def _implementation(self, fused: FusedGroup, half: HalfOperands) -> GpuImplementation | str:
        """Kernels for a group, or why there are none."""
        key = tvm_ffi.structural_hash(fused.function)
        for known, as_half, before in self._known.get(key, []):
            same = (known.outputs, as_half) == (fused.outputs, half)
            if same and tvm_ffi.structural_equal(known.function, fused.function):
                return before
        made = self._made(fused, half)
        self._known.setdefault(key, []).append((fused, half, made))
        return made

    def _made(self, fused: FusedGroup, half: HalfOperands) -> GpuImplementation | str:
        try:
            return implement_on_gpu(fused, self.target, half, self.schedules((fused,)))
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
                made.parameters,
                made.flops if last else 0,
                moved if last else 0,
                backend=self.target.api,
            )
        return self._symbols[stage.text]

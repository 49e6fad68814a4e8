"""Which kernels compute the calls of a program: one implementation for each different group of nodes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm_ffi

from edgepack.compiler.graph.lower import Group
from edgepack.compiler.kernels.contract import Implementation, RuleError, Stage
from edgepack.compiler.kernels.registry import implement, implement_pair, with_prefetch
from edgepack.compiler.planner.program import Call, Program
from edgepack.compiler.reporter import Reporter
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import Kernel

__all__ = ["Chooser"]

#: Groups that one call does, what was chosen for them, and the symbols of its kernels.
_Made = tuple[tuple[Group, ...], Implementation, tuple[str, ...]]


class Chooser:
    """One implementation for each different group; equal groups share kernels."""

    def __init__(self, program: Program, target: CpuTarget, prefix: str, reporter: Reporter) -> None:
        self.target, self.prefix, self.reporter = target, prefix, reporter
        self.functions: dict[str, Any] = {}
        self.kernels: dict[str, Kernel] = {}
        self.warnings: list[str] = []
        self._made: dict[tuple[Any, ...], list[_Made]] = {}
        self._fetching: dict[tuple[tuple[str, ...], int], tuple[Implementation, tuple[str, ...]]] = {}
        self._constant = self._constant_params(program)

    @staticmethod
    def _constant_params(program: Program) -> dict[str, frozenset[int]]:
        """For each group, the parameters that are constant at all its calls."""
        found: dict[str, frozenset[int]] = {}
        for call in program.calls:
            here = frozenset(i for i, a in enumerate(call.arguments) if a.kind == "constant")
            found[call.group.name] = found.get(call.group.name, here) & here
        return found

    def choose(self, call: Call) -> None:
        groups = (call.group,) if call.before is None else (call.before, call.group)
        constants = tuple(self._constant[g.name] for g in groups)
        key = tuple(
            (tvm_ffi.structural_hash(g.function), repr(g.anchor), c, g.pitch)
            for g, c in zip(groups, constants, strict=True)
        )
        for known, implementation, symbols in self._made.get(key, []):
            if all(
                tvm_ffi.structural_equal(k.function, g.function) for k, g in zip(known, groups, strict=True)
            ):
                call.implementation, call.symbols = implementation, symbols
                return
        self.reporter.kernel(call.group.name)
        if len(groups) == 1:
            implementation = implement(call.group, self.target, constants[0], self.warn)
        else:
            implementation = implement_pair(*groups, self.target, constants, self.warn)
        call.implementation = implementation
        operators = tuple(operator for g in groups for operator in g.operators)
        call.symbols = self.add(implementation, operators, _bytes_moved(groups))
        self._made.setdefault(key, []).append((groups, implementation, call.symbols))

    def fetch(self, call: Call) -> None:
        """Makes the call's kernels fetch what it should for a later call."""
        assert call.ahead is not None
        assert call.implementation is not None
        key = (call.symbols, call.ahead.nbytes)
        if key not in self._fetching:
            implementation = with_prefetch(call.implementation, call.ahead.nbytes, self.warn)
            if implementation is None:
                call.ahead = None
                return
            self._fetching[key] = (implementation, self._add_fetching(implementation, call.symbols))
        call.implementation, call.symbols = self._fetching[key]

    def _add_fetching(self, implementation: Implementation, symbols: tuple[str, ...]) -> tuple[str, ...]:
        """Symbols of the stages: those that fetch nothing are the kernels that there are."""
        before = self.kernels[symbols[-1]]
        return tuple(
            self._add_stage(implementation, stage, before.ops, before.bytes_moved)
            if any(operand.kind == "prefetch" for operand in stage.operands)
            else symbol
            for stage, symbol in zip(implementation.stages, symbols, strict=True)
        )

    def serves(self, call: Call, group: Group) -> bool:
        """Chooses for the call as if it had another group; False if no rule serves that."""
        before, call.group = call.group, group
        try:
            self.choose(call)
        except RuleError:
            call.group = before
            return False
        return True

    def serves_both(self, call: Call) -> bool:
        """Chooses for a call of two groups; False if two kernels serve them better."""
        try:
            self.choose(call)
        except RuleError:
            return False
        return True

    def add(
        self, implementation: Implementation, operators: tuple[str, ...], bytes_moved: int
    ) -> tuple[str, ...]:
        """Gives each stage a symbol."""
        return tuple(
            self._add_stage(implementation, stage, operators, bytes_moved) for stage in implementation.stages
        )

    def _add_stage(
        self, implementation: Implementation, stage: Stage, operators: tuple[str, ...], bytes_moved: int
    ) -> str:
        symbol = f"{self.prefix}k{len(self.kernels)}_{implementation.rule.replace('.', '_')}"
        last = stage is implementation.stages[-1]  # a transform stands before what it is for
        self.functions[symbol] = stage.function
        self.kernels[symbol] = Kernel(
            symbol,
            len(stage.operands),
            operators,
            implementation.rule,
            implementation.parameters,
            implementation.flops if last else 0,
            bytes_moved if last else 0,
        )
        return symbol

    def warn(self, text: str) -> None:
        self.warnings.append(text)
        self.reporter.warning(text)


def _bytes_moved(groups: Sequence[Group]) -> int:
    """By a kernel that does groups one after the other: what lies between them is not moved."""

    def nbytes(buffer: Any) -> int:
        return prod(int(d) for d in buffer.shape) * DTYPE_BYTES[str(buffer.dtype)]

    between = sum(nbytes(group.function.params[-1]) for group in groups[:-1])
    return sum(nbytes(b) for group in groups for b in group.function.params) - 2 * between

"""Which kernels compute the calls of a program: one implementation for each different fused group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, prod

import tvm_ffi
from tvm.tirx import Buffer, PrimFunc

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError, Stage
from edgepack.compiler.kernels.estimate import bytes_moved, estimated_cycles, work_of
from edgepack.compiler.kernels.registry import implement, implement_pair, with_prefetch
from edgepack.compiler.planner.group_splitter import SubGroup
from edgepack.compiler.planner.measured import NOTHING_MEASURED, Measured
from edgepack.compiler.planner.program import Call, Program
from edgepack.compiler.reporter import Reporter
from edgepack.plan.branch import Branch
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import Kernel

__all__ = ["KernelSelector"]

#: What equal fused groups agree on: a hash of the function, the anchor, the constant parameters, the row
#: stride, the parameters that are stored as float16, those in the caller's memory, the type to which products
#: round their operands, the parameters that are stored as narrower integers, those that share words, whether
#: tasks are rows.
_Key = tuple[
    int,
    str,
    frozenset[int],
    int | None,
    frozenset[int],
    frozenset[int],
    str,
    frozenset[tuple[int, str]],
    frozenset[tuple[int, int, int]],
    bool,
]

#: Fused groups that one call computes, what was selected for them, and the symbols of its kernels.
_Selected = tuple[tuple[FusedGroup, ...], Implementation, tuple[str, ...]]


@dataclass(frozen=True)
class _Tried:
    """What the rules said of a fused group.

    Attributes:
        implementation: None where no rule serves it, or no fast one.
        fast_only: whether only fast rules were asked.
        refused: why there is none.
        warnings: what the user is told if it is selected.
    """

    fused: FusedGroup
    implementation: Implementation | None
    fast_only: bool
    refused: str
    warnings: Sequence[str]

    def answers(self, fused: FusedGroup, fast_only: bool) -> bool:
        """Whether it says what the rules would say of this group, of the same key."""
        known = self.implementation is not None or fast_only or not self.fast_only
        return known and bool(tvm_ffi.structural_equal(self.fused.function, fused.function))


class KernelSelector:
    """Selects one implementation for each different fused group; equal ones share kernels.

    Attributes:
        measured: what was measured of the model and its kernels, which decides with the rules.
        functions: TIR of each kernel, by symbol.
        kernels: what is reported of each kernel, by symbol.
        warnings: what the user is told.
    """

    def __init__(
        self,
        program: Program,
        target: CpuTarget,
        prefix: str,
        reporter: Reporter,
        measured: Measured = NOTHING_MEASURED,
    ) -> None:
        self.target, self.prefix, self.reporter, self.measured = target, prefix, reporter, measured
        self.functions: dict[str, PrimFunc] = {}
        self.kernels: dict[str, Kernel] = {}
        self.warnings: list[str] = []
        self._selected: dict[tuple[_Key, ...], list[_Selected]] = {}
        self._tried: dict[_Key, list[_Tried]] = {}
        self._prefetching: dict[tuple[tuple[str, ...], int], tuple[Implementation, tuple[str, ...]]] = {}
        self._constants = self._constant_params(program)

    @staticmethod
    def _constant_params(program: Program) -> dict[str, frozenset[int]]:
        """For each fused group, the parameters that are constant at all its calls."""
        found: dict[str, frozenset[int]] = {}
        for call in (call for one in program.programs() for call in one.calls):
            here = frozenset(i for i, a in enumerate(call.arguments) if a.kind == "constant")
            found[call.fused.name] = found.get(call.fused.name, here) & here
        return found

    def select(self, call: Call, *, fast_only: bool = False) -> None:
        """Selects the call's kernels. RuleError if no rule serves it, or no fast one."""
        groups = call.fused_groups
        constants = tuple(self._constants[g.name] for g in groups)
        key = tuple(self._key(group) for group in groups)
        for known, implementation, symbols in self._selected.get(key, []):
            if all(
                tvm_ffi.structural_equal(k.function, g.function) for k, g in zip(known, groups, strict=True)
            ):
                call.implementation, call.symbols = implementation, symbols
                return
        self.reporter.kernel(call.fused.name)
        if call.first is None:
            tried = self._try(call.fused, key[0], fast_only)
            if tried.implementation is None:
                raise RuleError(tried.refused)
            implementation = tried.implementation
            for warning in tried.warnings:
                self.warn(warning)
        else:
            given = self.measured.schedules(groups)
            implementation = implement_pair(call.first, call.fused, self.target, constants, self.warn, given)
        call.implementation = implementation
        operators = tuple(operator for g in groups for operator in g.operators)
        call.symbols = self.add(implementation, operators, _bytes_moved(groups))
        self._selected.setdefault(key, []).append((groups, implementation, call.symbols))

    def _key(self, fused: FusedGroup) -> _Key:
        hashed = tvm_ffi.structural_hash(fused.function)
        constants = self._constants[fused.name]
        memory = fused.float16_params, fused.callers_params
        kinds = *memory, fused.rounded_to, fused.narrow_params, fused.word_params, fused.by_rows
        return hashed, repr(fused.anchor), constants, fused.row_stride, *kinds

    def _try(self, fused: FusedGroup, key: _Key, fast_only: bool) -> _Tried:
        """Asks the rules, once: those of a group of hundreds of operators take seconds."""
        for tried in self._tried.get(key, []):
            if tried.answers(fused, fast_only):
                return tried
        warnings: list[str] = []
        found, refused = None, ""
        try:
            found = implement(
                fused,
                self.target,
                key[2],
                warnings.append,
                fast_only=fast_only,
                given=self.measured.schedules((fused,)),
            )
        except RuleError as error:
            refused = str(error)
            for warning in warnings:  # of rules that failed: their groups are taken apart, which costs time
                self.warn(warning)
        made = _Tried(fused, found, fast_only, refused, warnings)
        self._tried.setdefault(key, []).append(made)
        return made

    def implementation(self, fused: FusedGroup) -> Implementation | None:
        """What the rules make of a group; None where none serves it."""
        return self._try(fused, self._key(fused), fast_only=False).implementation

    def constants_of(self, fused: FusedGroup) -> frozenset[int]:
        """The parameters of a fused group that are constant at all its calls."""
        return self._constants[fused.name]

    def register(self, whole: FusedGroup, part: SubGroup) -> None:
        """Makes a part of a group known, by its name: which of its parameters are constant."""
        constants = {whole.function.params[i] for i in self._constants[whole.name]}
        found = frozenset(i for i, buffer in enumerate(part.reads) if buffer in constants)
        self._constants[part.fused.name] = found

    def cycles(self, fused: FusedGroup, *, fast_only: bool = False) -> float:
        """How long a group would take, estimated; infinite where no rule serves it, or no fast one."""
        found = self._try(fused, self._key(fused), fast_only).implementation
        return inf if found is None else estimated_cycles(found, work_of(fused.function), self.target)

    def try_select(self, call: Call, *, fast_only: bool = False) -> bool:
        """Selects the call's kernels; False if no rule serves it, or no fast one."""
        try:
            self.select(call, fast_only=fast_only)
        except RuleError:
            return False
        return True

    def try_select_as(self, call: Call, fused: FusedGroup) -> bool:
        """Gives the call another fused group and selects its kernels; False, and no change, if no rule serves
        that."""
        before, call.fused = call.fused, fused
        if self.try_select(call):
            return True
        call.fused = before
        return False

    def add_prefetch(self, call: Call) -> None:
        """Makes the call's kernels fetch :attr:`Call.prefetch`, which is taken back where they cannot."""
        assert call.prefetch is not None
        assert call.implementation is not None
        key = (call.symbols, call.prefetch.nbytes)
        if key not in self._prefetching:
            implementation = with_prefetch(call.implementation, call.prefetch.nbytes, self.warn)
            if implementation is None:
                call.prefetch = None
                return
            self._prefetching[key] = (implementation, self._add_prefetching(implementation, call.symbols))
        call.implementation, call.symbols = self._prefetching[key]

    def _add_prefetching(self, implementation: Implementation, symbols: tuple[str, ...]) -> tuple[str, ...]:
        """Symbols of the stages: those that fetch nothing are the kernels that there are."""
        before = self.kernels[symbols[-1]]
        return tuple(
            self._add_stage(implementation, stage, before.ops, before.bytes_moved)
            if any(operand.kind == "prefetch" for operand in stage.operands)
            else symbol
            for stage, symbol in zip(implementation.stages, symbols, strict=True)
        )

    def add(
        self, implementation: Implementation, operators: tuple[str, ...], bytes_moved: int
    ) -> tuple[str, ...]:
        """Gives each stage a symbol, the same one to those that share a function."""
        symbols: dict[int, str] = {}
        for stage in implementation.stages:
            if id(stage.function) not in symbols:
                added = self._add_stage(implementation, stage, operators, bytes_moved)
                symbols[id(stage.function)] = added
        return tuple(symbols[id(stage.function)] for stage in implementation.stages)

    def _add_stage(
        self, implementation: Implementation, stage: Stage, operators: tuple[str, ...], bytes_moved: int
    ) -> str:
        symbol = f"{self.prefix}k{len(self.kernels)}_{implementation.rule.replace('.', '_')}"
        # A transform stands before what it is for.
        runs = sum(s.function is stage.function for s in implementation.stages)
        last = stage.function is implementation.stages[-1].function
        if implementation.c_function is None and implementation.cascade is None:
            self.functions[symbol] = stage.function
        self.kernels[symbol] = Kernel(
            symbol,
            len(stage.operands),
            operators,
            implementation.rule,
            implementation.chosen,
            implementation.flops // runs if last else 0,
            bytes_moved // runs if last else 0,
            implementation.c_function,
            cascade=implementation.cascade,
        )
        return symbol

    def replace(self, symbols: tuple[str, ...], implementation: Implementation) -> None:
        """Gives kernels of those symbols another schedule, by the same rule, with as many functions."""
        for symbol, stage in zip(symbols, implementation.stages, strict=True):
            if symbol in self.functions:
                self.functions[symbol] = stage.function
            self.kernels[symbol] = replace(self.kernels[symbol], parameters=implementation.chosen)
        for known in self._selected.values():
            known[:] = [
                (groups, implementation if same == symbols else made, same) for groups, made, same in known
            ]

    def add_branch(self, branch: Branch, operator: str) -> str:
        """The symbol of what decides where a run goes on, which is a function of the runtime."""
        for symbol, kernel in self.kernels.items():
            if kernel.branch == branch and kernel.ops == (operator,):
                return symbol
        symbol = f"{self.prefix}k{len(self.kernels)}_{branch.kind}"
        self.kernels[symbol] = Kernel(symbol, branch.pointers, (operator,), "branch", branch=branch)
        return symbol

    def warn(self, text: str) -> None:
        """Tells the user, now and in the plan."""
        if text not in self.warnings:
            self.warnings.append(text)
            self.reporter.warning(text)


def _bytes_moved(groups: Sequence[FusedGroup]) -> int:
    """By a kernel that computes fused groups one after the other: what lies between them is not moved."""

    def nbytes(buffer: Buffer) -> int:
        return prod(int(d) for d in buffer.shape) * DTYPE_BYTES[str(buffer.dtype)]

    between = sum(nbytes(group.function.params[-1]) for group in groups[:-1])
    return sum(bytes_moved(group.function) for group in groups) - 2 * between

"""Which kernels compute a fused group on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from types import MappingProxyType
from typing import Any

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Operand, RuleError
from edgepack.compiler.kernels.cpu.generic.lowering import count_flops
from edgepack.compiler.kernels.gpu.attention import AttentionSchedule, attention
from edgepack.compiler.kernels.gpu.attention_nests import Attention, find_attention
from edgepack.compiler.kernels.gpu.contract import FULL, GpuImplementation, GpuStage, HalfOperands
from edgepack.compiler.kernels.gpu.fused_rows import FusedRows, find_fused_rows
from edgepack.compiler.kernels.gpu.group_schedule import GROUP, GroupSchedule
from edgepack.compiler.kernels.gpu.kernel import Kernel
from edgepack.compiler.kernels.gpu.loop_nests import LoopNest, LoopNests, find_loop_nests
from edgepack.compiler.kernels.gpu.rows import RowsSchedule, rows
from edgepack.compiler.kernels.gpu.rule import checked
from edgepack.compiler.kernels.gpu.winograd import WINOGRAD, GpuWinogradSchedule, winograd
from edgepack.compiler.kernels.registry import GPU_RULES
from edgepack.compiler.kernels.schedule import Given, Schedule, ScheduleError
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.opt_level import ALL, TILED

__all__ = ["ATTENTION", "PART_SCHEDULES", "ROWS", "implement_on_gpu"]

#: The names under which schedules are given of what several nests are.
ATTENTION, ROWS = "attention", "rows"

#: The class of what is decided about a part, by the rule that computes it.
PART_SCHEDULES: Mapping[str, type[Schedule]] = {
    ATTENTION: AttentionSchedule,
    ROWS: RowsSchedule,
    WINOGRAD: GpuWinogradSchedule,
    **{rule.name: rule.schedule for rule in GPU_RULES},
}

#: What one kernel computes, or the several of Winograd's form.
_Part = FusedRows | Attention | LoopNest


def implement_on_gpu(
    fused: FusedGroup,
    target: GpuTarget,
    half: HalfOperands = FULL,
    given: Given = MappingProxyType({}),
) -> GpuImplementation:
    """A fused group's kernels: one for each of its nests, or for several that share their rows, or several
    for a nest.

    Args:
        half: what is float16 in memory.
        given: schedules in place of those that would be proposed: one of the whole group (``GROUP``), or by
            rule of all parts that it computes, None where that rule is not to compute any.

    Raises:
        ScheduleError: what is given does not fit.
        RuleError: no kernel of a GPU serves it; the CPU has to compute it.
    """
    return _Group(fused, target, half, given).implemented()


@dataclass(frozen=True)
class _Made:
    """A part's kernels.

    Attributes:
        rule: what names the part in a schedule, and ``schedule`` what was decided.
        stages: its kernels, and ``names`` of the rules that made them.
        filtered: bytes of what lies between the kernels of Winograd's form.
        parameters: for reports.
    """

    rule: str
    schedule: Schedule
    stages: tuple[GpuStage, ...]
    names: tuple[str, ...]
    filtered: tuple[int, int] = (0, 0)
    parameters: Mapping[str, Any] = field(default_factory=dict)


class _Group:
    """Makes the kernels of a group.

    Attributes:
        whole: the schedule of the whole group, where one is given.
    """

    def __init__(self, fused: FusedGroup, target: GpuTarget, half: HalfOperands, given: Given) -> None:
        self.fused, self.target, self.half, self.given = fused, target, half, given
        self.nests = find_loop_nests(fused)
        whole = given.get(GROUP)
        self.whole = whole.parts if isinstance(whole, GroupSchedule) else None

    def implemented(self) -> GpuImplementation:
        parts = self._whole_parts()
        if self.whole is not None and len(self.whole) != len(parts):
            raise ScheduleError(f"{len(parts)} parts, not {len(self.whole)}")
        self.nests = _stored(self.nests, parts)
        made = [self._made(part, number) for number, part in enumerate(parts)]
        stages = [stage for one in made for stage in one.stages]
        kernel = self._kernel()
        temps = [prod(int(d) for d in b.shape) * DTYPE_BYTES[kernel.stored(b)] for b in self.nests.temps]
        partial = max(stage.partial_bytes for stage in stages)
        filtered = (max(one.filtered[0] for one in made), max(one.filtered[1] for one in made))
        kept, moved = _without_empty((*temps, partial, *filtered), stages)
        return GpuImplementation(
            tuple(name for one in made for name in one.names),
            moved,
            kept,
            {name: value for one in made for name, value in one.parameters.items()},
            count_flops(self.fused.function),
            GroupSchedule(tuple((one.rule, one.schedule) for one in made)),
        )

    def _kernel(self) -> Kernel:
        return Kernel(self.fused, self.nests, self.target.most_parameters, self.half)

    # What its parts are ------------------------------------------------------------------------------------

    def _allows(self, name: str, number: int) -> bool:
        """Whether a rule may compute the part of a number, which what is given may exclude."""
        if self.whole is not None:
            return number < len(self.whole) and self.whole[number][0] == name
        return name not in self.given or self.given[name] is not None

    def _given_to(self, name: str, number: int) -> Schedule | None:
        """What is given for the part of a number, if that rule computes it."""
        return self.whole[number][1] if self.whole is not None else self.given.get(name)

    def _whole_parts(self) -> list[_Part]:
        nests = self.nests.nests
        found = find_attention(self.nests) if self.target.opt_level >= ALL else None
        if found is None:
            return self._parts(nests)
        others = [nest for nest in nests if nest not in found.nests]
        at = nests.index(found.result) + 1 - len(found.nests)
        before = self._parts(others[:at])
        if not self._serves(found, len(before)):
            return self._parts(nests)
        return [*before, found, *self._parts(others[at:], len(before) + 1)]

    def _parts(self, among: Sequence[LoopNest], first: int = 0) -> list[_Part]:
        """Some of the nests in order, those that one kernel computes together as a run.

        Args:
            first: the number of the first part of them.
        """
        if self.target.opt_level < TILED:
            return list(among)
        params = list(self.fused.function.params)
        parts: list[_Part] = []
        for part in find_fused_rows(self.nests, params[len(params) - self.fused.outputs :], among):
            if isinstance(part, LoopNest) or self._serves(part, first + len(parts)):
                parts.append(part)
            else:
                parts += [row_stage.nest for row_stage in part.stages]
        return parts

    def _serves(self, part: FusedRows | Attention, number: int) -> bool:
        """Whether a run, or attention, can be one kernel, the part of a number. ScheduleError where what is
        given does not fit."""
        name = ATTENTION if isinstance(part, Attention) else ROWS
        if not self._allows(name, number):
            return False
        try:
            self._fused(part, self._given_to(name, number))
        except ScheduleError:
            raise
        except RuleError:
            return False
        return True

    # Kernels -----------------------------------------------------------------------------------------------

    def _made(self, part: _Part, number: int) -> _Made:
        if self.whole is None:
            return self._chosen(part)
        rule, schedule = self.whole[number]
        try:
            return self._by(part, rule, schedule)
        except ScheduleError:
            raise
        except RuleError as error:  # the rule would not have chosen it
            raise ScheduleError(f"{rule}: {error}") from error

    def _by(self, part: _Part, rule: str, schedule: Schedule) -> _Made:
        """A part by the rule that is named."""
        if isinstance(part, FusedRows | Attention):
            if rule != (ATTENTION if isinstance(part, Attention) else ROWS):
                raise ScheduleError(f"its parts are others than {rule}")
            return _single(rule, self._fused(part, schedule))
        if rule == WINOGRAD:
            if self.target.opt_level < ALL:
                raise ScheduleError("Winograd's form is not used at this level of optimisation")
            return self._winograd(part, checked(schedule, GpuWinogradSchedule))
        found = next((one for one in GPU_RULES if one.name == rule), None)
        if found is None or found.level > self.target.opt_level:
            raise ScheduleError(f"no part is computed by {rule}")
        return _single(rule, found.implement(self._kernel(), part, self.target, schedule))

    def _chosen(self, part: _Part) -> _Made:
        """A part by the first rule that serves it, with what is given for that rule."""
        if isinstance(part, FusedRows | Attention):
            name = ATTENTION if isinstance(part, Attention) else ROWS
            return _single(name, self._fused(part, self.given.get(name)))
        if self.target.opt_level >= ALL and self._allows(WINOGRAD, 0):
            try:
                given = self.given.get(WINOGRAD)
                return self._winograd(part, checked(given, GpuWinogradSchedule))
            except ScheduleError:
                raise
            except RuleError:
                pass
        refused: list[str] = []
        for rule in GPU_RULES:
            if rule.level > self.target.opt_level or not self._allows(rule.name, 0):
                continue
            try:
                stage = rule.implement(self._kernel(), part, self.target, self.given.get(rule.name))
                return _single(rule.name, stage)
            except ScheduleError:
                raise
            except RuleError as error:
                refused.append(str(error))
        raise RuleError(refused[-1] if refused else "no rule is left for it")

    def _fused(self, part: FusedRows | Attention, given: Schedule | None) -> GpuStage:
        """Several nests in one kernel."""
        if isinstance(part, Attention):
            own = None if given is None else checked(given, AttentionSchedule)
            return attention(self._kernel(), part, self.target, own)
        of_rows = None if given is None else checked(given, RowsSchedule)
        return rows(self._kernel(), part, self.target, of_rows)

    def _winograd(self, nest: LoopNest, given: GpuWinogradSchedule) -> _Made:
        """A nest in Winograd's form. RuleError where it is none, or where that does not pay and nothing is
        given."""
        form = winograd(self.fused, self.nests, nest, self.target, self.half, given)
        text = f"F({form.m}x{form.m}, 3x3)"
        return _Made(WINOGRAD, form.schedule, form.stages, form.rules, form.scratch, {"winograd": text})


def _single(rule: str, stage: GpuStage) -> _Made:
    """A part that is one kernel, or that with the one that adds up partial sums."""
    assert stage.schedule is not None
    if stage.last is None:
        return _Made(rule, stage.schedule, (stage,), (rule,))
    return _Made(rule, stage.schedule, (stage, stage.last), (rule, "partial_sums"))


def _without_empty(
    temps: Sequence[int], stages: Sequence[GpuStage]
) -> tuple[tuple[int, ...], tuple[GpuStage, ...]]:
    """The temps that have bytes, and the stages with their new numbers."""
    kept = [i for i, nbytes in enumerate(temps) if nbytes]
    places = {Operand("temp", old): Operand("temp", new) for new, old in enumerate(kept)}
    moved = tuple(
        replace(stage, operands=tuple(places.get(o, o) for o in stage.operands)) for stage in stages
    )
    return tuple(temps[i] for i in kept), moved


def _stored(nests: LoopNests, parts: Sequence[_Part]) -> LoopNests:
    """Without the tensors that only one kernel reads and writes."""
    row_stages = [row_stage for part in parts if isinstance(part, FusedRows) for row_stage in part.stages]
    inside = {row_stage.nest.result.target for row_stage in row_stages if not row_stage.stored}
    for part in parts:
        if isinstance(part, Attention):
            inside |= {nest.result.target for nest in part.nests if nest is not part.result}
    return replace(nests, temps=tuple(b for b in nests.temps if b not in inside))

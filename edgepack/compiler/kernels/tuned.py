"""Schedules from files of a tuner, in place of what the rules would propose."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.gpu.contract import HalfOperands
from edgepack.compiler.kernels.gpu.group_schedule import GROUP, GroupSchedule
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.implement_gpu import PART_SCHEDULES
from edgepack.compiler.kernels.registry import PAIR_RULES, RULES
from edgepack.compiler.kernels.rule import PairRule, Rule
from edgepack.compiler.kernels.schedule import PLANNED, Given, Schedule, ScheduleError
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.target import CpuTarget
from edgepack.plan.tuned import AHEAD, APART, TunedChoice, weights_of

__all__ = ["TunedGpuSchedules", "TunedSchedules", "given_for", "rule_of"]


def rule_of(made: Implementation) -> Rule | PairRule | None:
    """The rule that made an implementation with a schedule, which may have a longer name (``pool2d.max``);
    None of one without."""
    every: list[Rule | PairRule] = [*RULES, *PAIR_RULES]
    named = [r for r in every if type(made.schedule) is r.schedule and made.rule.startswith(r.name)]
    return max(named, key=lambda rule: len(rule.name), default=None)


def given_for(rule: Rule | PairRule, schedule: Schedule) -> Given:
    """What makes a rule serve a group by a schedule: rules that would be asked before it are not."""
    if isinstance(rule, PairRule):
        return {rule.name: schedule}
    others = [one.name for one in RULES if one.order < rule.order and one.kind == "anchor"]
    return {**dict.fromkeys((*others, *(one.name for one in PAIR_RULES))), rule.name: schedule}


class TunedSchedules:
    """What is given for the fused groups of one target.

    Args:
        choices: of any kinds of CPU; those of others are left out.
        warn: is told once, in one sentence, of choices that this version does not know.
    """

    def __init__(
        self, choices: Sequence[TunedChoice], target: CpuTarget, warn: Callable[[str], None]
    ) -> None:
        self.gains: dict[str, float] = {}
        self._given: dict[str, Given] = {}
        self._ahead: dict[str, float] = {}
        rules: dict[str, Rule | PairRule] = {rule.name: rule for rule in RULES}
        rules |= {rule.name: rule for rule in PAIR_RULES}
        stale: list[str] = []
        for choice in choices:
            if choice.cpu != target.cpu_kind:
                continue
            try:
                self._take(choice, rules)
            except (ScheduleError, TypeError) as error:
                stale.append(str(error))
                continue
            self.gains[choice.group] = choice.gain
        _warn_of_stale(stale, warn)

    def _take(self, choice: TunedChoice, rules: Mapping[str, Rule | PairRule]) -> None:
        """ScheduleError or TypeError for a choice that this version does not know."""
        if choice.rule == APART:
            self._given[choice.group] = dict.fromkeys(rule.name for rule in PAIR_RULES)
            return
        if choice.rule == AHEAD:
            self._ahead[choice.group] = _part(choice.schedule)
            return
        rule = rules.get(choice.rule)
        if rule is None or rule.schedule is None:
            raise ScheduleError(f"there is no rule {choice.rule} with schedules")
        if planned := PLANNED & choice.schedule.keys():
            raise ScheduleError(f"{min(planned)} of {choice.rule} is no choice of a tuner")
        self._given[choice.group] = given_for(rule, rule.schedule.from_json(choice.schedule))

    def __call__(self, groups: Sequence[FusedGroup]) -> Given:
        return self._given.get(group_key(groups), {}) if self._given else {}

    def ahead(self, groups: Sequence[FusedGroup]) -> float:
        """Which part of what the planner would have fetched ahead of the weights of groups that one call
        computes is fetched."""
        return self._ahead.get(weights_of(group_key(groups)), 1.0) if self._ahead else 1.0


class TunedGpuSchedules:
    """What is given for the fused groups that a GPU computes.

    Args:
        choices: of any kinds; those of other ones than this GPU's are left out.
        warn: is told once, in one sentence, of choices that this version does not know.
    """

    def __init__(
        self, choices: Sequence[TunedChoice], target: GpuTarget, warn: Callable[[str], None]
    ) -> None:
        self.gains: dict[str, float] = {}
        self._given: dict[str, GroupSchedule] = {}
        stale: list[str] = []
        for choice in choices:
            if choice.cpu != target.gpu_kind:
                continue
            try:
                schedule = GroupSchedule.of_rules(choice.rule, choice.schedule, PART_SCHEDULES)
            except (ScheduleError, TypeError) as error:
                stale.append(str(error))
                continue
            self._given[choice.group] = schedule
            self.gains[choice.group] = choice.gain
        _warn_of_stale(stale, warn)

    def __call__(self, fused: FusedGroup, half: HalfOperands) -> Given:
        found = self._given.get(group_key([fused], half)) if self._given else None
        return {} if found is None else {GROUP: found}


def _part(schedule: Mapping[str, Any]) -> float:
    """Of :data:`AHEAD`. ScheduleError where it says something else."""
    percent = schedule.get("percent")
    if type(percent) is not int or not 0 <= percent <= 100 or len(schedule) > 1:
        raise ScheduleError(f"{dict(schedule)} does not say how much is fetched ahead")
    return percent / 100


def _warn_of_stale(stale: Sequence[str], warn: Callable[[str], None]) -> None:
    if stale:
        warn(
            f"{len(stale)} tuned schedules are of another version of edgepack and are ignored "
            f"({stale[0]}); `edgepack tune` measures anew"
        )

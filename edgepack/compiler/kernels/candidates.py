"""Schedules that a tuner may try for a fused group: the neighbours of one, and other rules' own.

A neighbour differs in one field; what else is decided is left as it is, or decided anew by the rule. Where
all were tried the neighbours of neighbours come. Those that do not fit the group, and those that make the
same schedule as another one, are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import zip_longest
from typing import Any, Literal, get_args, get_origin, get_type_hints

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError, is_the_machines
from edgepack.compiler.kernels.predict.implementation import predicted_cycles
from edgepack.compiler.kernels.registry import PAIR_RULES, RULES
from edgepack.compiler.kernels.rule import PairRule, Rule
from edgepack.compiler.kernels.schedule import PLANNED, Schedule, ScheduleError
from edgepack.compiler.kernels.tuned import rule_of
from edgepack.plan.target import CpuTarget
from edgepack.plan.tuned import schedule_digest

__all__ = ["Candidate", "each_candidate", "made_by", "pair_candidates", "plain_schedule"]

#: What a rule's own choice is not asked for again: it declines where its cost model says so.
SEEDS: dict[str, tuple[dict[str, Any], ...]] = {
    "conv2d.winograd": (
        *({"outputs": [m, m], "form": form} for m in (4, 2) for form in ("fused", "split")),
        *({"outputs": outputs} for outputs in ([1, 4], [4, 1], [1, 2], [2, 1])),
    ),
    "conv2d.chained": ({"unrolled": True}, {"unrolled": False}),
    "conv2d.scaled": ({"matrix": False},),
}


@dataclass(frozen=True)
class Candidate:
    """A rule and a schedule of its, nothing of it open but what has no meaning.

    Attributes:
        cycles: that are predicted; 0 where nothing is.
    """

    rule: str
    schedule: dict[str, Any]
    cycles: float

    @property
    def digest(self) -> str:
        """What names it among those of a group that were tried."""
        return schedule_digest(self.rule, self.schedule)


def plain_schedule(schedule: Schedule) -> dict[str, Any]:
    """A schedule as JSON, but for what the planner decides."""
    return {name: value for name, value in schedule.to_json().items() if name not in PLANNED}


def each_candidate(
    groups: Sequence[FusedGroup],
    base: Implementation,
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
    tried: Collection[str] = (),
) -> Iterator[Candidate]:
    """Candidates, by turns the nearest neighbours of what is computed by now and those of other rules; where
    all of these were tried, neighbours of the neighbours.

    Making one, and predicting its cycles, takes 0.02 to 0.2 seconds.

    Args:
        groups: one, or the two that one call computes.
        base: what is computed by now.
        constants: of each group, the parameters that are constant at every call.
        tried: digests of schedules that are none any more.
    """
    own = rule_of(base)
    if own is None or base.schedule is None:
        return
    known = {schedule_digest(own.name, plain_schedule(base.schedule)), *tried}
    near = list(neighbours(base.schedule, target))
    for proposals in (
        _mixed(((own, one) for one in near), _others_own(own) if len(groups) == 1 else ()),
        ((own, one) for one in _two_steps(base.schedule, near, target)),
    ):
        found = False
        for one in _made(proposals, groups, target, constants, known):
            found = True
            yield one
        if found:
            return


def pair_candidates(
    groups: Sequence[FusedGroup],
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
    tried: Collection[str] = (),
) -> Iterator[Candidate]:
    """Kernels for two groups that the rules compute one after the other; arguments as for
    :func:`each_candidate`."""
    proposals = (
        (rule, rule.schedule.from_json(seed))
        for rule in PAIR_RULES
        if rule.schedule is not None
        for seed in SEEDS.get(rule.name, ())
    )
    return _made(proposals, groups, target, constants, set(tried))


Proposal = tuple[Rule | PairRule, Schedule]


def _made(
    proposals: Iterable[Proposal],
    groups: Sequence[FusedGroup],
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
    known: set[str],
) -> Iterator[Candidate]:
    """What becomes of proposals, but for those that do not fit, and those of the digests that are known, to
    which all are added."""
    for rule, schedule in proposals:
        proposed = schedule_digest(rule.name, plain_schedule(schedule))
        if proposed in known:
            continue
        known.add(proposed)
        made = made_by(groups, rule, schedule, target, constants)
        if made is None or rule_of(made) is not rule or made.schedule is None:
            continue
        plain = plain_schedule(made.schedule)
        digest = schedule_digest(rule.name, plain)
        if digest not in known or digest == proposed:
            yield Candidate(rule.name, plain, predicted_cycles(made, target))
        known.add(digest)


def _mixed(first: Iterable[Proposal], second: Iterable[Proposal]) -> Iterator[Proposal]:
    """By turns one of each."""
    for pair in zip_longest(first, second):
        yield from (one for one in pair if one is not None)


def _others_own(own: Rule | PairRule) -> Iterator[Proposal]:
    """What other rules would propose."""
    for rule in RULES:
        if rule.name != own.name and rule.kind == "anchor" and rule.schedule is not None:
            for seed in SEEDS.get(rule.name, ({},)):
                yield rule, rule.schedule.from_json(seed)


def _two_steps(schedule: Schedule, near: Sequence[Schedule], target: CpuTarget) -> Iterator[Schedule]:
    """The neighbours of neighbours, which leave nothing open: those of the nearest first."""
    whole = [one for one in near if None not in _open(one, schedule)]
    further: dict[int, list[Schedule]] = {}
    for steps in range(2 * len(whole)):
        for first in range(min(steps + 1, len(whole))):
            if first not in further:
                found = neighbours(whole[first], target)
                further[first] = [one for one in found if None not in _open(one, schedule)]
            if steps - first < len(further[first]):
                yield further[first][steps - first]


def _open(one: Schedule, base: Schedule) -> list[Any]:
    """The values of a schedule's fields that are decided in another one."""
    return [getattr(one, by.name) for by in fields(base) if getattr(base, by.name) is not None]


def neighbours(schedule: Schedule, target: CpuTarget) -> Iterator[Schedule]:
    """Schedules that differ in one field: the others open where the rule may decide them anew, then as they
    are."""
    kind = type(schedule)
    hints = get_type_hints(kind)
    opened = {one.name: None for one in fields(kind) if one.default is None}
    rounds: list[list[tuple[str, Any]]] = []
    for one in fields(kind):
        value = getattr(schedule, one.name)
        if value is not None and one.name not in PLANNED:
            rounds.append([(one.name, other) for other in _others(value, hints[one.name], target)])
    for number in range(max(map(len, rounds), default=0)):
        for values in rounds:
            if number < len(values):
                name, value = values[number]
                yield kind(**{**opened, name: value})
                yield replace(schedule, **{name: value})


def _others(value: Any, hint: Any, target: CpuTarget) -> list[Any]:
    """Values near one of a field, the nearest first."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [n for n in dict.fromkeys((value * 2, value // 2, value + 1, value - 1, value * 4)) if n > 0]
    if isinstance(value, tuple):
        return list(dict.fromkeys(_near_tuples(value, target)))
    choices = next((get_args(one) for one in (hint, *get_args(hint)) if get_origin(one) is Literal), ())
    return [one for one in choices if one != value]


def _near_tuples(value: tuple[int, ...], target: CpuTarget) -> Iterator[tuple[int, ...]]:
    """Each number of a tuple a little larger or smaller; of a register tile (rows, columns) also one more and
    the other less, as many accumulators having room in the registers."""
    lanes = max(1, target.lanes("float32"))
    steps: list[Callable[[int], int]] = [
        lambda n: n + 1,
        lambda n: n - 1,
        lambda n: n * 2,
        lambda n: n // 2,
        lambda n: n + lanes,
        lambda n: n - lanes,
        lambda n: n + 2,
        lambda n: n - 2,
    ]
    if len(value) == 2:
        rows, columns = value
        for more, wide in ((rows * 2, columns // 2), (rows // 2, columns * 2), (rows - 2, columns + lanes)):
            if more > 0 and wide > 0:
                yield more, wide
        for more in range(1, 15):
            for wide in (lanes, 2 * lanes, 3 * lanes, 4 * lanes):
                accumulators = more * wide // lanes
                if abs(accumulators - rows * columns // lanes) <= 2 and (more, wide) != value:
                    yield more, wide
    for step in steps:
        for position, number in enumerate(value):
            changed = step(number)
            if changed > 0 and changed != number:
                yield (*value[:position], changed, *value[position + 1 :])


def made_by(
    groups: Sequence[FusedGroup],
    rule: Rule | PairRule,
    schedule: Schedule,
    target: CpuTarget,
    constants: Sequence[frozenset[int]],
) -> Implementation | None:
    """What a rule makes by a schedule; None where it does not fit, or where the rule fails."""
    try:
        if isinstance(rule, PairRule):
            first, second = groups
            return rule.implement(first, second, target, constants, schedule)
        (fused,) = groups
        refused = rule.level > target.opt_level or (fused.by_rows and not rule.heeds_rows)
        if refused or (fused.row_stride is not None and not rule.heeds_row_stride):
            return None
        return rule.implement(fused, target, constants[0], schedule)
    except (RuleError, ScheduleError):
        return None
    except Exception as error:
        if is_the_machines(error):
            raise
        return None

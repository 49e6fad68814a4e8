"""Schedules of a stranger's tuned file: legal JSON of any numbers. What a rule does not refuse computes what
the model does; none takes down or holds up what reads it."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.schedule import PLANNED, Schedule
from edgepack.compiler.kernels.tuned import TunedSchedules, given_for
from edgepack.plan.tuned import TunedChoice
from tests.compiler.kernels.test_schedule import CASES, SCHEDULED, TARGET, served
from workbench.compiled import Compiled

#: Numbers of which some fit, and the ends of what a file may hold.
NUMBERS = [1, 1, 2, 2, 3, 4, 5, 7, 8, 12, 16, 24, 32, 48, 64, 100, 128, 196, 1000, 10**6, 2**31, 2**62]
#: Tasks, and bytes of buffers, beyond which no schedule of these small layers can have a use.
MOST_TASKS, MOST_BYTES = 100_000, 64 << 20


def _drawn(draw: random.Random, own: Any, hint: Any) -> Any:
    """A value of a field's type: near the rule's own, or of any size."""
    literal = next((get_args(one) for one in (hint, *get_args(hint)) if get_origin(one) is Literal), ())
    if literal:
        return draw.choice([*literal, None])
    if bool in (hint, *get_args(hint)):
        return draw.choice([True, False, None])
    if isinstance(own, tuple) or any(get_origin(one) is tuple for one in (hint, *get_args(hint))):
        return tuple(_number(draw, one) for one in own or (4, 16))
    return None if draw.random() < 0.2 else _number(draw, own)


def _number(draw: random.Random, own: int | None) -> int:
    if own is None or draw.random() < 0.5:
        return draw.choice(NUMBERS)
    return max(1, own * draw.randint(1, 4) // draw.randint(1, 4) + draw.choice([0, 0, 1, -1]))


def schedules_of_strangers(own: Schedule, seeds: range) -> list[Schedule]:
    """Schedules with some fields drawn, the others as the rule has them or open."""
    kind = type(own)
    hints = get_type_hints(kind)
    found: dict[Schedule, None] = {}
    for seed in seeds:
        draw = random.Random(seed)
        names = [one.name for one in fields(kind) if one.name not in PLANNED and draw.random() < 0.4]
        changed = {name: _drawn(draw, getattr(own, name), hints[name]) for name in names}
        found[replace(own if draw.random() < 0.6 else kind(), **changed)] = None
    return list(found)


def those_that_fit(name: str, seeds: range) -> list[Schedule]:
    """Of a rule's case, those that are not refused; their kernels are of bounded size."""
    implement, proposed = served(name)
    assert proposed.schedule is not None
    found = []
    for schedule in schedules_of_strangers(proposed.schedule, seeds):
        try:
            made = implement(schedule)
        except RuleError:
            continue
        assert max(stage.tasks for stage in made.stages) <= MOST_TASKS, schedule
        assert sum(made.scratch) + sum(made.temps) <= MOST_BYTES, schedule
        found.append(schedule)
    return found


@pytest.mark.parametrize("name", CASES)
def test_whatever_a_schedule_says_it_is_refused_or_of_bounded_size(name: str) -> None:
    assert those_that_fit(name, range(20))


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_whatever_a_schedule_says_it_is_refused_or_right(name: str, tmp_path: Path) -> None:
    found = those_that_fit(name, range(1000, 1400))
    for start in range(0, len(found), 12):
        part = {str(number): schedule for number, schedule in enumerate(found[start : start + 12])}
        given = {number: given_for(SCHEDULED[name], schedule) for number, schedule in part.items()}
        compiled = Compiled(dict.fromkeys(part, CASES[name][0]), tmp_path / str(start), TARGET, given=given)
        for number, schedule in part.items():
            try:
                assert not compiled.plan(number).warnings
                compiled.check(number)
            except AssertionError as error:
                raise AssertionError(f"{schedule}: {error}") from error


@pytest.mark.parametrize(
    ("rule", "schedule", "said"),
    [
        ("conv2d.igemm", {"prefetch_bytes": 4096}, "prefetch_bytes of conv2d.igemm is no choice of a tuner"),
        ("conv2d.winograd", {"outputs": [2, 2], "prefetch_bytes": 0}, "is no choice of a tuner"),
        ("conv2d.igemm", {"register_tile": [4.0, 16]}, "is no register_tile of GemmSchedule"),
        ("conv2d.igemm", {"row_blocks": True}, "is no row_blocks of GemmSchedule"),
        ("conv2d.igemm", {"row_blocks": -1}, "is no row_blocks of GemmSchedule"),
        ("conv2d.igemm", {"register_tile": [[4], [16]]}, "is no register_tile of GemmSchedule"),
        ("conv2d.igemm", {"__class__": "x"}, "has no field __class__"),
        ("conv2d.igemm", {"matrix": "yes"}, "is no matrix of GemmSchedule"),
        ("ahead", {"percent": 101}, "does not say how much is fetched ahead"),
        ("ahead", {"percent": True}, "does not say how much is fetched ahead"),
        ("no such rule", {}, "there is no rule no such rule with schedules"),
        ("elementwise", {}, "there is no rule elementwise with schedules"),
    ],
)
def test_a_choice_that_no_tuner_makes_is_ignored_with_a_warning(
    rule: str, schedule: Mapping[str, Any], said: str
) -> None:
    """What the planner decides is no choice: it alone has memory for what a kernel would fetch ahead."""
    told: list[str] = []
    found = TunedSchedules([TunedChoice(TARGET.cpu_kind, "a", rule, schedule, 1.5)], TARGET, told.append)
    assert not found.gains
    (warning,) = told
    assert said in warning and "are ignored" in warning

"""Schedules: as JSON and back, which fit a group, and that what is given is what is made."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import onnx
import pytest

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import WinogradSchedule
from edgepack.compiler.kernels.registry import RULES
from edgepack.compiler.kernels.rule import Rule
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from workbench.compiled import groups_of, plan_of, target_with
from workbench.models.single import conv

TARGET = target_with("512x32", threads=2)
SCHEDULED = {rule.name: rule for rule in RULES if rule.schedule is not None}

#: By rule: a model that it serves, and fields that do not fit that model, each with what is said of it.
Misfit = tuple[dict[str, Any], str]
CASES: dict[str, tuple[onnx.ModelProto, list[Misfit]]] = {
    "conv2d.winograd": (
        conv((1, 64, 28, 28), 64, (3, 3), pads=(1, 1, 1, 1)),
        [
            ({"outputs": (3, 3)}, "there are no tiles of 3x3 outputs of such a convolution"),
            ({"outputs": (1, 5)}, "there are no tiles of 1x5 outputs of such a convolution"),
            ({"outputs": 4}, "4 is no outputs of WinogradSchedule"),
            ({"register_tile": (8, 40)}, "a register tile of 8x40, of 64 columns in vectors of 16"),
            ({"register_tile": (12, 64)}, "a register tile of 12x64 in 32 registers of 16"),
            ({"form": "both"}, "'both' is no form of WinogradSchedule"),
            ({"block": 1000}, "1000 blocks of"),
            ({"parts": 1000}, "1000 parts of"),
        ],
    ),
}
MISFITS = [(name, *misfit) for name, (_, misfits) in CASES.items() for misfit in misfits]


def served(name: str) -> tuple[Rule, FusedGroup, frozenset[int], Implementation]:
    """A rule, the group of its case, the group's constants, and what the rule makes of it."""
    rule = SCHEDULED[name]
    for fused, constants in groups_of(CASES[name][0], TARGET):
        try:
            return rule, fused, constants, rule.implement(fused, TARGET, constants)
        except RuleError:
            continue
    raise AssertionError(f"{name} serves nothing")


def scripts(made: Implementation) -> Iterator[str]:
    return (stage.function.script() for stage in made.stages)


def test_every_class_of_schedules_has_a_case() -> None:
    assert set(CASES) == set(SCHEDULED)


@pytest.mark.parametrize("name", CASES)
def test_what_is_proposed_makes_the_same_kernels_when_it_is_given(name: str) -> None:
    rule, fused, constants, proposed = served(name)
    assert proposed.schedule is not None and rule.schedule is not None
    stored = json.loads(json.dumps(proposed.schedule.to_json()))
    schedule = rule.schedule.from_json(stored)
    assert schedule == proposed.schedule
    given = rule.implement(fused, TARGET, constants, schedule)
    assert given.schedule == proposed.schedule
    assert given.chosen == proposed.chosen
    assert list(scripts(given)) == list(scripts(proposed))


@pytest.mark.parametrize(("name", "changed", "text"), MISFITS)
def test_what_does_not_fit_is_refused_with_a_sentence(name: str, changed: dict[str, Any], text: str) -> None:
    rule, fused, constants, proposed = served(name)
    assert proposed.schedule is not None
    with pytest.raises(ScheduleError, match=text):
        rule.implement(fused, TARGET, constants, replace(proposed.schedule, **changed))


@pytest.mark.parametrize("name", CASES)
def test_fields_of_other_versions_are_refused(name: str) -> None:
    schedule = SCHEDULED[name].schedule
    assert schedule is not None
    with pytest.raises(ScheduleError, match="has no field colour, flavour"):
        schedule.from_json({"flavour": 1, "colour": 2})
    for one in fields(schedule):
        with pytest.raises(ScheduleError, match=f"is no {one.name} of {schedule.__name__}"):
            schedule.from_json({one.name: {"some": "thing"}})


def test_a_schedule_of_another_rule_is_refused() -> None:
    class Other(Schedule):
        pass

    rule, fused, constants, _ = served("conv2d.winograd")
    with pytest.raises(ScheduleError, match=r"Other is no schedule of conv2d\.winograd"):
        rule.implement(fused, TARGET, constants, Other())


def test_a_rule_that_is_given_none_does_not_serve() -> None:
    model = CASES["conv2d.winograd"][0]
    rules = {
        kernel.rule for kernel in plan_of(model, target=TARGET, given={"conv2d.winograd": None}).plan.kernels
    }
    assert "conv2d.igemm" in rules
    assert not any("winograd" in rule for rule in rules)


def test_one_that_does_not_fit_is_told_and_the_cost_model_decides() -> None:
    model = CASES["conv2d.winograd"][0]
    plan = plan_of(model, target=TARGET, given={"conv2d.winograd": WinogradSchedule(outputs=(1, 5))}).plan
    (warning,) = plan.warnings
    assert "a schedule of conv2d.winograd was given that does not fit: there are no tiles of 1x5" in warning
    assert plan.kernels == plan_of(model, target=TARGET).plan.kernels

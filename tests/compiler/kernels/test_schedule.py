"""Schedules: as JSON and back, which fit a group, and that what is given is what is made."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import onnx
import pytest

from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.conv.gemm_schedule import GemmSchedule
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import WinogradSchedule
from edgepack.compiler.kernels.registry import PAIR_RULES, RULES
from edgepack.compiler.kernels.rule import PairRule
from edgepack.compiler.kernels.schedule import Schedule, ScheduleError
from workbench.compiled import Compiled, groups_of, plan_of, target_with
from workbench.models.builder import Graph
from workbench.models.single import conv, pool

TARGET = target_with("512x32", threads=2)
SCHEDULED = {rule.name: rule for rule in (*RULES, *PAIR_RULES) if rule.schedule is not None}


def expanded() -> onnx.ModelProto:
    """A convolution and a depthwise one behind it, with a large tensor between them."""
    g = Graph("expanded", seed=3)
    y = g.op("Relu", g.op("Conv", g.input("x", (1, 24, 64, 64)), g.weight(96, 24, 1, 1)))
    y = g.op("Conv", y, g.weight(96, 1, 3, 3), group=96, pads=(1, 1, 1, 1))
    g.op("Relu", y, name="y")
    g.output("y")
    return g.model()


def squeezed() -> onnx.ModelProto:
    """A squeeze-and-excitation block between two convolutions."""
    g = Graph("squeezed", seed=3)
    y = g.op("Relu", g.conv(g.input("x", (1, 24, 40, 40)), 24, 32, 1, bias=True))
    g.op("Relu", g.conv(g.squeeze_excite(y, 32, 8, "Relu", "Sigmoid"), 32, 96, 1, bias=True), name="y")
    g.output("y")
    return g.model()


def _product() -> onnx.ModelProto:
    g = Graph("product")
    g.output(g.op("Identity", g.linear(g.input("x", [48, 256]), 256, 96), name="y"))
    return g.model()


def attended() -> onnx.ModelProto:
    """The scores of 100 queries, and the values that they weigh."""
    g = Graph("attended", seed=3)
    query, key, value = (g.input(name, (2, 4, 100, 32)) for name in ("query", "key", "value"))
    scores = g.op("MatMul", query, g.op("Transpose", key, perm=[0, 1, 3, 2]))
    g.op("MatMul", g.op("Softmax", g.op("Mul", scores, g.const(0.2)), axis=-1), value, name="y")
    g.output("y")
    return g.model()


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
    "conv2d.depthwise": (
        conv((1, 83, 6, 5), 83, (3, 3), pads=(1, 1, 1, 1), group=83),
        [
            ({"lanes": 12, "block": 4}, "12 lanes of a vector: no power of 2"),
            ({"lanes": 128, "block": 1}, "128 lanes of a vector, of 83"),
            ({"columns": 6}, "6 columns of a step, of 5"),
            ({"columns": 0}, "0 is no columns of SlidingSchedule"),
            ({"block": 7}, "7 vectors of a task, of 6"),
            ({"block": 5}, "5 vectors of a task: the last one of 6 would overlap another task's"),
            ({"block": 1}, "1 vectors of a task: the last one of 6 would overlap another task's"),
            ({"row_parts": 7}, "7 parts of the rows, of 6"),
            ({"unrolled": 1}, "1 is no unrolled of SlidingSchedule"),
        ],
    ),
    "pool2d": (
        pool("MaxPool", (2, 37, 13, 27), kernel_shape=(4, 3), strides=(2, 2)),
        [({"columns": 14}, "14 columns of a step, of 13")],
    ),
    "conv2d.grouped": (
        conv((1, 64, 14, 14), 64, (3, 3), pads=(1, 1, 1, 1), group=16),
        [
            ({"lanes": 6}, "vectors of 6 lanes for groups of 4"),
            ({"lanes": 32}, "vectors of 32 lanes for groups of 4"),
            ({"columns": 15}, "15 columns of a step, of 14"),
        ],
    ),
    "attention": (
        attended(),
        [
            ({"lanes": 12}, "vectors of 12 queries: no power of 2 up to 16"),
            ({"lanes": 32}, "vectors of 32 queries: no power of 2 up to 16"),
            ({"block": 24}, "blocks of 24 queries, of 100 in vectors of 16"),
            ({"block": 112}, "blocks of 112 queries, of 100 in vectors of 16"),
        ],
    ),
    "conv2d.scaled": (
        squeezed(),
        [({"register_tile": (7, 40)}, "a register tile of 7x40"), ({"row_blocks": 1000}, "1000 blocks of")],
    ),
    "conv2d.chained": (expanded(), [({"tasks": 65}, "65 tasks of"), ({"columns": 65}, "65 columns of")]),
    "conv2d.igemm": (
        conv((1, 64, 28, 28), 96, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        [
            ({"register_tile": (7, 40)}, "a register tile of 7x40, of 96 columns in vectors of 16"),
            ({"thread_rows": 3}, "196 rows are no 3 equal parts"),
            ({"weight_stationary": False, "passes": 2}, "2 passes over the rows of a product that"),
            ({"k_blocks": 2}, "2 slices of a reduction of 576 steps in 3 rows of a window"),
            ({"row_blocks": 1000}, "1000 blocks of"),
            ({"passes": 1, "thread_rows": 2, "row_blocks": 3}, "3 blocks of .* tiles in 2 parts"),
        ],
    ),
    "matmul.packed": (
        _product(),
        [
            ({"k_blocks": 3}, "3 slices of a reduction of 256 steps in 1 rows of a window"),
            ({"register_tile": (4, 8)}, "a register tile of 4x8, of 96 columns in vectors of 16"),
        ],
    ),
}
MISFITS = [(name, *misfit) for name, (_, misfits) in CASES.items() for misfit in misfits]


def served(name: str) -> tuple[Callable[..., Implementation], Implementation]:
    """What makes kernels of the groups of a rule's case and a schedule, and what it makes without one."""
    rule, groups = SCHEDULED[name], groups_of(CASES[name][0], TARGET)
    calls = [partial(rule.implement, fused, TARGET, constants) for fused, constants in groups]
    if isinstance(rule, PairRule):
        pairs = pairwise(groups)
        calls = [partial(rule.implement, a, b, TARGET, (of_a, of_b)) for (a, of_a), (b, of_b) in pairs]
    for call in calls:
        with suppress(RuleError):
            return call, call()
    raise AssertionError(f"{name} serves nothing")


def scripts(made: Implementation) -> Iterator[str]:
    return (stage.function.script() for stage in made.stages)


def test_every_class_of_schedules_has_a_case() -> None:
    assert set(CASES) == set(SCHEDULED)


@pytest.mark.parametrize("name", CASES)
def test_what_is_proposed_makes_the_same_kernels_when_it_is_given(name: str) -> None:
    implement, proposed = served(name)
    assert proposed.schedule is not None
    stored = json.loads(json.dumps(proposed.schedule.to_json()))
    schedule = type(proposed.schedule).from_json(stored)
    assert schedule == proposed.schedule
    assert type(schedule) is SCHEDULED[name].schedule
    given = implement(schedule)
    assert given.schedule == proposed.schedule
    assert given.chosen == proposed.chosen
    assert list(scripts(given)) == list(scripts(proposed))


@pytest.mark.parametrize(("name", "changed", "text"), MISFITS)
def test_what_does_not_fit_is_refused_with_a_sentence(name: str, changed: dict[str, Any], text: str) -> None:
    implement, proposed = served(name)
    assert proposed.schedule is not None
    with pytest.raises(ScheduleError, match=text):
        implement(replace(proposed.schedule, **changed))


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

    implement, _ = served("conv2d.winograd")
    with pytest.raises(ScheduleError, match=r"Other is no schedule of conv2d\.winograd"):
        implement(Other())


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
    assert "rule conv2d.winograd was given a schedule that does not fit (there are no tiles of 1x5" in warning
    assert plan.kernels == plan_of(model, target=TARGET).plan.kernels


#: What can be decided otherwise, by rule: each makes other kernels that compute the same.
OTHERS: dict[str, list[GemmSchedule]] = {
    "conv2d.igemm": [
        GemmSchedule(weight_stationary=True, passes=2, thread_rows=1, row_blocks=4),
        GemmSchedule(weight_stationary=False, thread_rows=2, row_blocks=6),
        GemmSchedule(register_tile=(3, 32), k_blocks=3),
    ],
    "matmul.packed": [
        GemmSchedule(register_tile=(5, 16), k_blocks=4, row_blocks=2),
        GemmSchedule(weight_stationary=True, passes=2, thread_rows=2),
    ],
}


@pytest.mark.parametrize("name", OTHERS)
def test_products_are_the_same_however_they_are_divided(name: str, tmp_path: Path) -> None:
    model, seen = CASES[name][0], set()
    for number, schedule in enumerate(OTHERS[name]):
        given = {"m": {name: schedule, "conv2d.winograd": None}}
        compiled = Compiled({"m": model}, tmp_path / str(number), TARGET, given=given)
        kernel = next(kernel for kernel in compiled.plan("m").kernels if kernel.rule == name)
        seen.add(str(kernel.parameters))
        assert not compiled.plan("m").warnings
        compiled.check("m")
    assert len(seen) == len(OTHERS[name])

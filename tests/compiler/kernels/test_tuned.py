"""Schedules that a tuner may try, and those that it found: all compute the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.tuned import TunedSchedules
from edgepack.compiler.planner.tuning import MOST, Asked, write_choices
from edgepack.plan.tuned import TunedChoice, schedule_digest
from workbench.compiled import groups_of, plan_of
from workbench.executor import Executor, host_target
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime

TARGET = replace(host_target(), threads=1)

#: Candidates of each group that are tried together, one in each plan.
TRIED = 3


def network() -> onnx.ModelProto:
    """A layer of each rule that has schedules."""
    g = Graph("network")
    x = g.op("Relu", g.conv(g.input("x", [1, 16, 14, 18]), 16, 32, 3, bias=True))
    x = g.op("Relu", g.conv(x, 32, 32, 5, groups=32, stride=2, bias=True))
    x = g.conv(x, 32, 48, 1, bias=True)
    x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Relu", g.conv(x, 48, 48, 3, groups=3, stride=2, bias=True))
    g.output(g.gemm(g.op("Flatten", g.op("GlobalAveragePool", x)), 48, 40))
    return g.model()


def test_candidates_compute_what_the_model_does(tmp_path: Path) -> None:
    model, file = network(), tmp_path / "choices.json"
    plan_of(
        model, "m", TARGET, selected=lambda program, selector: write_choices(program, selector, Asked(file))
    )
    groups: list[dict[str, Any]] = json.loads(file.read_text())
    for one in groups:
        _check_that_candidates_differ(one)
    rules = {one["rule"] for one in groups}
    assert rules >= {"conv2d.igemm", "conv2d.depthwise", "pool2d", "matmul.packed"}
    plans = {"base": plan_of(model, "base", TARGET)}
    for number in range(TRIED):
        taken = [
            TunedChoice(TARGET.cpu_kind, one["group"], other["rule"], other["schedule"], 1.5)
            for one in groups
            for other in one["candidates"][number : number + 1]
        ]
        assert len(taken) >= len(groups) - 1
        schedules = TunedSchedules(taken, TARGET, pytest.fail)
        plans[f"t{number}"] = plan_of(model, f"t{number}", TARGET, schedules=schedules)
        # Each of them is by what was asked for.
        said = {(k.rule, json.dumps(k.parameters, sort_keys=True)) for k in plans[f"t{number}"].plan.kernels}
        before = {(k.rule, json.dumps(k.parameters, sort_keys=True)) for k in plans["base"].plan.kernels}
        assert said != before
    executor = Executor(plans, tmp_path / "kernels")
    inputs = random_inputs(model, 5)
    (expected,) = run_onnxruntime(model, inputs)
    for name in plans:
        (found,) = executor.run(name, list(inputs.values()), seed=2)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=name)


def test_what_was_tried_is_no_candidate_and_further_ones_are(tmp_path: Path) -> None:
    """Those that differ in one field come first, behind them those that differ in two, or by two steps; each
    of two parts has candidates for half of the groups."""
    model = pointwise(24)
    file = tmp_path / "choices.json"

    def candidates(**asked: Any) -> tuple[dict[str, Any], list[str]]:
        plan_of(model, "m", TARGET, selected=lambda *found: write_choices(*found, Asked(file, **asked)))
        (group,) = [one for one in json.loads(file.read_text()) if "conv2d" in one["rule"]]
        return group, [schedule_digest(one["rule"], one["schedule"]) for one in group["candidates"]]

    group, first = candidates()
    assert 0 < len(first) < MOST and group["cycles"] > 0
    group, second = candidates(tried={group["group"]: first, "another": []})
    assert second and not set(first) & set(second)
    own = group["schedule"]
    differ = [sum(one["schedule"].get(n) != value for n, value in own.items()) for one in group["candidates"]]
    assert min(differ) >= 1 and max(differ) >= 2
    _, all_but_one = candidates(tried={group["group"]: first[1:]})
    assert all_but_one == first[:1], "two steps only where no single one is left"
    parts = [candidates(part=part, parts=2) for part in range(2)]
    assert sorted(len(digests) for _, digests in parts) == [0, len(first)]
    assert {group["cycles"] > 0 for group, _ in parts} == {True, False}


def _check_that_candidates_differ(group: dict[str, Any]) -> None:
    texts = [json.dumps([other["rule"], other["schedule"]], sort_keys=True) for other in group["candidates"]]
    own = json.dumps([group["rule"], group["schedule"]], sort_keys=True)
    assert len(set(texts)) == len(texts) > 0 and own not in texts
    assert "prefetch_bytes" not in own


def pointwise(channels: int, dtype: str = "float32", *, stride: int = 1, name: str = "x") -> onnx.ModelProto:
    g = Graph("pointwise", seed=channels)
    x = g.conv(g.op("Relu", g.input(name, [1, 16, 12, 12])), 16, channels, 1, stride=stride, bias=True)
    g.output(g.op("Relu", x, name="y"))
    return g.model()


def test_a_key_is_the_same_wherever_the_group_is() -> None:
    def key(model: onnx.ModelProto) -> str:
        (found,) = [group_key([g]) for g, _ in groups_of(model, TARGET) if g.anchor is not None]
        return found

    first = key(pointwise(24))
    assert first == key(pointwise(24, name="another"))
    assert first.startswith("conv2d+add+") and "float32[1,12,12,16]" in first
    assert "T." not in first and len({first, key(pointwise(32)), key(pointwise(24, stride=2))}) == 3


def test_a_choice_keeps_rules_from_serving_that_would_be_asked_before() -> None:
    """A 3x3 window is Winograd's by the rules."""
    g = Graph("window")
    g.output(g.op("Relu", g.conv(g.input("x", [1, 32, 24, 24]), 32, 32, 3), name="y"))
    model = g.model()
    (group,) = [group for group, _ in groups_of(model, TARGET) if group.anchor is not None]
    (before,) = [k.rule for k in plan_of(model, target=TARGET).plan.kernels if "conv2d" in k.rule]
    choice = TunedChoice(TARGET.cpu_kind, group_key([group]), "conv2d.igemm", {}, 1.1)
    schedules = TunedSchedules([choice], TARGET, pytest.fail)
    (after,) = [
        k.rule for k in plan_of(model, target=TARGET, schedules=schedules).plan.kernels if "conv2d" in k.rule
    ]
    assert before.startswith("conv2d.winograd") and after == "conv2d.igemm"


def test_choices_of_another_version_are_ignored_with_one_warning() -> None:
    kind = TARGET.cpu_kind
    told: list[str] = []
    found = TunedSchedules(
        [
            TunedChoice(kind, "a", "conv2d.igemm", {"register_tile": [4, 16]}, 1.2),
            TunedChoice(kind, "b", "conv2d.igemm", {"tile": [4, 16]}, 1.2),
            TunedChoice(kind, "c", "conv2d.igemm", {"register_tile": "wide"}, 1.2),
            TunedChoice(kind, "d", "a rule that was", {}, 1.2),
            TunedChoice("another kind", "e", "nothing", {}, 1.2),
        ],
        TARGET,
        told.append,
    )
    assert found.gains == {"a": 1.2}
    (text,) = told
    assert text.startswith("3 tuned schedules are of another version") and "no field tile" in text

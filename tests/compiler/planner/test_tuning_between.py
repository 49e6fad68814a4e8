"""What a tuner may decide between kernels: one kernel for two groups or two, and what is fetched ahead."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.preferred_forms import preferred_forms
from edgepack.compiler.kernels.tuned import TunedSchedules
from edgepack.compiler.plan_for import plan_for
from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.tuning import Asked, write_choices
from edgepack.compiler.reporter import Reporter
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from edgepack.plan.tuned import AHEAD, APART, TunedChoice, schedule_digest
from workbench.compiled import lowered_model, plan_of, target_with
from workbench.executor import Executor, host_target
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime

#: What lies between the two convolutions fits the caches, and does not.
LARGE = replace(host_target(), threads=1, l2_bytes=1 << 20)
SMALL = replace(LARGE, l2_bytes=16 * 1024)


def block() -> onnx.ModelProto:
    """An expansion and the depthwise convolution behind it."""
    g = Graph("block")
    x = g.op("Relu", g.conv(g.input("x", [1, 8, 80, 12]), 8, 24, 1, bias=True))
    g.output(g.op("Relu", g.conv(x, 24, 24, 3, groups=24, bias=True)))
    return g.model()


def squeezed(shape: tuple[int, ...] = (1, 16, 30, 20)) -> onnx.ModelProto:
    """A squeeze-and-excitation block before a projection."""
    g = Graph("squeezed")
    x = g.op("Relu", g.conv(g.input("x", list(shape)), 16, 24, 1, bias=True))
    g.output(g.conv(g.squeeze_excite(x, 24, 4, "Relu", "Sigmoid"), 24, 40, 1, bias=True))
    return g.model()


def classifier() -> onnx.ModelProto:
    """Convolutions that multiply for long, and a fully connected layer that waits for its weights."""
    g = Graph("classifier")
    x = g.op("Relu", g.conv(g.input("x", [1, 64, 14, 14]), 64, 256, 1, bias=True))
    x = g.op("Relu", g.conv(x, 256, 256, 1, bias=True))
    g.output(g.gemm(g.op("Flatten", g.op("GlobalAveragePool", x)), 256, 1000))
    return g.model()


def choices(
    model: onnx.ModelProto, target: CpuTarget, file: Path, taken: TunedSchedules | None = None, **asked: Any
) -> list[dict[str, Any]]:
    names = [f"node{i}" for i in range(40)]
    plan_of(
        model,
        target=target,
        schedules=taken,
        selected=lambda *found: write_choices(*found, Asked(file, **asked), names),
    )
    found: list[dict[str, Any]] = json.loads(file.read_text())
    return found


def built(model: onnx.ModelProto, name: str, target: CpuTarget, *taken: TunedChoice) -> Built:
    schedules = TunedSchedules(taken, target, pytest.fail)
    return plan_of(model, name, target, schedules=schedules, ahead=schedules.ahead)


def rules(plan: Built) -> list[str]:
    return [kernel.rule for kernel in plan.plan.kernels if "conv2d" in kernel.rule]


def test_factors_may_be_in_the_weights_or_not(tmp_path: Path) -> None:
    model, small, kind = squeezed(), squeezed((1, 16, 6, 6)), LARGE.cpu_kind
    (scaled,) = [one for one in choices(model, LARGE, tmp_path / "a") if one["rule"] == "conv2d.scaled"]
    assert APART in {one["rule"] for one in scaled["candidates"]}
    other = next(one for one in scaled["candidates"] if one["rule"] == "conv2d.scaled")
    pairs = [one for one in choices(small, LARGE, tmp_path / "b") if "nodes" in one]
    (pair,) = [one for one in pairs if one["candidates"] and one["candidates"][0]["rule"] == "conv2d.scaled"]
    plans = {
        "apart": built(model, "apart", LARGE, TunedChoice(kind, scaled["group"], APART, {}, 1.2)),
        "other": built(
            model, "other", LARGE, TunedChoice(kind, scaled["group"], other["rule"], other["schedule"], 1.2)
        ),
        "small": built(
            small, "small", LARGE, TunedChoice(kind, pair["group"], "conv2d.scaled", {"matrix": False}, 1.2)
        ),
    }
    assert ["conv2d.scaled" in rules(plan) for plan in plans.values()] == [False, True, True]
    executor = Executor(plans, tmp_path / "kernels")
    for name, one in (("apart", model), ("other", model), ("small", small)):
        inputs = random_inputs(one, 3)
        (expected,), (found,) = (
            run_onnxruntime(one, inputs),
            executor.run(name, list(inputs.values()), seed=1),
        )
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_two_groups_may_have_one_kernel_or_one_kernel_become_two(tmp_path: Path) -> None:
    model, kind = block(), LARGE.cpu_kind
    assert kind != SMALL.cpu_kind
    (pair,) = [one for one in choices(model, LARGE, tmp_path / "a") if "nodes" in one]
    assert pair["rule"] == APART and " then " in pair["group"] and len(pair["nodes"]) == 1
    assert {one["rule"] for one in pair["candidates"]} == {"conv2d.chained"}
    together = [
        TunedChoice(kind, pair["group"], one["rule"], one["schedule"], 1.2) for one in pair["candidates"]
    ]
    (chained,) = [one for one in choices(model, SMALL, tmp_path / "b") if one["rule"] == "conv2d.chained"]
    assert chained["group"] == pair["group"]
    assert chained["candidates"][0] == {"rule": APART, "schedule": {}, "cycles": 0.0}
    board = load_device("cortex-m4").cpu_target()
    assert not [one for one in choices(model, board, tmp_path / "c") if "nodes" in one], "it has no caches"
    two = TunedChoice(SMALL.cpu_kind, pair["group"], APART, {}, 1.2)
    plans = {
        "two": built(model, "two", LARGE),
        "one": built(model, "one", SMALL),
        "apart": built(model, "apart", SMALL, two),
        **{f"t{i}": built(model, f"t{i}", LARGE, one) for i, one in enumerate(together)},
    }
    for name, plan in plans.items():
        assert len(rules(plan)) == (2 if name in {"two", "apart"} else 1), name
    inputs = random_inputs(model, 3)
    (expected,) = run_onnxruntime(model, inputs)
    executor = Executor(plans, tmp_path / "kernels")
    for name in plans:
        (found,) = executor.run(name, list(inputs.values()), seed=1)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4, err_msg=name)


def test_what_was_tried_is_no_candidate_of_a_pair(tmp_path: Path) -> None:
    model, file = block(), tmp_path / "choices"
    (pair,) = [one for one in choices(model, LARGE, file) if "nodes" in one]
    tried = [schedule_digest(one["rule"], one["schedule"]) for one in pair["candidates"]]
    left = choices(model, LARGE, file, tried={pair["group"]: tried})
    assert left and not [one for one in left if "nodes" in one]
    apart = {pair["group"]: [schedule_digest(APART, {})]}
    (chained,) = [one for one in choices(model, SMALL, file, tried=apart) if "chained" in one["rule"]]
    assert APART not in {one["rule"] for one in chained["candidates"]}
    parts = [choices(model, LARGE, file, part=part, parts=3) for part in range(3)]
    assert sum(any("nodes" in one for one in part) for part in parts) == 1


def fetched(plan: Built) -> int:
    """Bytes that are fetched ahead."""
    return sum(int(kernel.parameters.get("ahead", 0)) for kernel in plan.plan.kernels)


def test_of_weights_less_may_be_fetched_ahead(tmp_path: Path) -> None:
    target = target_with("512x32", l2_bytes=128 * 1024, l3_bytes=8 << 20, threads=1)
    model, kind = classifier(), target.cpu_kind
    (weights,) = [one for one in choices(model, target, tmp_path / "a") if "nodes" in one]
    assert weights["group"].startswith("weights of matmul") and weights["rule"] == AHEAD
    assert weights["schedule"] == {"percent": 100} and len(weights["nodes"]) > 1
    percents = [one["schedule"]["percent"] for one in weights["candidates"]]
    assert percents == [0, 50]
    nothing, half = (
        fetched(built(model, "m", target, TunedChoice(kind, weights["group"], AHEAD, {"percent": p}, 1.1)))
        for p in percents
    )
    assert nothing == 0 < half < fetched(built(model, "m", target))


@pytest.mark.parametrize("schedule", [{}, {"percent": 101}, {"percent": -1}, {"percent": 0.5}, {"part": 1}])
def test_what_does_not_say_how_much_is_of_another_version(schedule: dict[str, Any]) -> None:
    told: list[str] = []
    taken = TunedSchedules([TunedChoice(LARGE.cpu_kind, "a", AHEAD, schedule, 1.1)], LARGE, told.append)
    assert not taken.gains and "fetched ahead" in told[0]


def test_reports_say_what_was_decided_between_kernels(tmp_path: Path) -> None:
    def said(model: onnx.ModelProto, target: CpuTarget, *taken: TunedChoice) -> dict[str, str | None]:
        imported, lowered = lowered_model(model, {}, preferred_forms(target))
        tuned = [one.to_json() for one in taken]
        plan = plan_for(target, lowered, imported, Reporter(), named, tuned=tuned).plan
        return {kernel.rule: kernel.parameters.get("tuned") for kernel in plan.kernels}

    named = {"name": "m", "symbol_prefix": "m_"}
    (chained,) = [one for one in choices(block(), SMALL, tmp_path / "a") if one["rule"] == "conv2d.chained"]
    group = chained["group"]
    apart = said(block(), SMALL, TunedChoice(SMALL.cpu_kind, group, APART, {}, 1.25))
    assert {rule: gain for rule, gain in apart.items() if "conv2d" in rule} == dict.fromkeys(
        ("conv2d.igemm", "conv2d.depthwise"), "1.25x"
    )
    one = said(block(), LARGE, TunedChoice(LARGE.cpu_kind, group, "conv2d.chained", {"unrolled": True}, 1.5))
    assert one["conv2d.chained"] == "1.50x"
    # No schedule that fits: it is not by this choice that there are two.
    wide = TunedChoice(LARGE.cpu_kind, group, "conv2d.chained", {"lanes": 3}, 1.5)
    assert set(said(block(), LARGE, wide).values()) == {None}
    target = target_with("512x32", l2_bytes=128 * 1024, l3_bytes=8 << 20, threads=1)
    (weights,) = [one for one in choices(classifier(), target, tmp_path / "b") if "nodes" in one]
    less = said(
        classifier(), target, TunedChoice(target.cpu_kind, weights["group"], AHEAD, {"percent": 0}, 1.1)
    )
    assert less["matmul.packed"] == "1.10x"

"""Schedules that a tuner may try for a GPU's kernels: all compute the same, and stay within the device."""

from __future__ import annotations

import json
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgepack
from edgepack.compiler.backends import nvrtc
from edgepack.compiler.backends.cuda import without_spills
from edgepack.compiler.backends.metal import metal_source
from edgepack.compiler.backends.nvrtc import Nvrtc
from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.gpu.contract import HalfOperands
from edgepack.compiler.kernels.gpu.group_schedule import GROUP, GroupSchedule
from edgepack.compiler.kernels.group_key import group_key
from edgepack.compiler.kernels.implement_gpu import PART_SCHEDULES
from edgepack.compiler.kernels.schedule import Given
from edgepack.compiler.kernels.tuned import TunedGpuSchedules
from edgepack.compiler.planner import tuning_gpu
from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.build_gpu import SelectedOnGpu
from edgepack.compiler.planner.tuning_gpu import write_gpu_choices
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile, write_tuned
from edgepack.plan.gpu_speed import GpuSpeed
from edgepack.plan.gpu_target import GpuTarget, Precision
from edgepack.plan.tuned import TunedChoice
from edgepack.plan.types import Launch
from edgepack.registry import RUNNERS
from tests.support.opencl import OpenClExecutor, driver
from workbench.compiled import FREE_COPIES, assert_close, plan_of
from workbench.executor import host_target
from workbench.models import save
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.gpu import attention, causal_attention, convolution, masked_attention, products, rows

Groups = list[dict[str, Any]]


def target(api: str = "opencl", **fields: Any) -> GpuTarget:
    return GpuTarget(api, host_target(), **{"speed": FREE_COPIES, **fields})  # type: ignore[arg-type]


def network() -> onnx.ModelProto:
    """A layer of each rule: products, deep ones too, windows, sums, rows, attention and Winograd's form."""
    g = Graph("network", seed=11)
    x = g.op("Relu", g.conv(g.input("x", [1, 12, 12, 16]), 12, 32, 3, bias=True))
    x = g.op("Relu", g.conv(x, 32, 32, 3, groups=32, bias=True))
    y = g.op("Softmax", g.op("Reshape", x, g.const([1, 4, 16, 96])), axis=-1)
    z = g.op("MatMul", y, g.op("Transpose", y, perm=[0, 1, 3, 2]))
    z = g.op("MatMul", g.op("Softmax", z, axis=-1), y)
    z = g.op("MatMul", g.op("Reshape", z, g.const([12, 512])), g.weight(512, 24))
    g.output(g.op("ReduceMax", z, axes=[0], keepdims=0, name="y"))
    return g.model()


def groups_of(
    model: onnx.ModelProto, on: GpuTarget, folder: Path, *, candidates: bool = True
) -> tuple[Groups, Built]:
    """What a tuner is told of a model's groups, and the plan by the rules."""
    file = folder / "choices.json"

    def write(selected: SelectedOnGpu) -> None:
        keys = [
            group_key([call.fused], selected.half.of_call(call))
            for call in selected.program.calls
            if call.gpu is not None
        ]
        write_gpu_choices(selected, file, keys if candidates else ["no such group"])

    built = plan_of(model, "base", on, selected=write)
    return json.loads(file.read_text()), built


def choices(on: GpuTarget, groups: Groups, number: int) -> list[TunedChoice]:
    """The candidate of a number of each group that has so many."""
    return [
        TunedChoice(on.gpu_kind, one["group"], other["rule"], other["schedule"], 1.5)
        for one in groups
        for other in one["candidates"][number : number + 1]
    ]


def tuned(model: onnx.ModelProto, on: GpuTarget, groups: Groups, number: int, name: str) -> Built:
    """The plan with the candidate of a number for each group, all of which fit."""
    schedules = TunedGpuSchedules(choices(on, groups, number), on, pytest.fail)
    built = plan_of(model, name, on, schedules=schedules)
    assert not [text for text in built.plan.warnings if "does not fit" in text]
    return built


def check_launches(built: Built, on: GpuTarget) -> None:
    """All of them are of the device's size."""
    for step in built.plan.steps:
        if isinstance(step, Launch):
            assert prod(step.threads) <= on.group_size, step.kernel
            assert step.local_bytes <= on.local_bytes, step.kernel
            assert max(step.groups[1:]) <= 65535 and min(step.groups) >= 1, step.kernel


def check(model: onnx.ModelProto, plans: dict[str, Built], folder: Path, on: GpuTarget) -> None:
    """Every plan's results against ONNX Runtime's."""
    executor = OpenClExecutor(plans, folder / "kernels", driver(folder / "pocl"))
    inputs = random_inputs(model, 3)
    expected = run_onnxruntime(model, inputs)
    names = [output.name for output in model.graph.output]
    rounded = "float16" if on.precision == "fp16" else None
    for name, built in plans.items():
        check_launches(built, on)
        results = executor.run(name, [np.asarray(inputs[spec.name]) for spec in built.plan.inputs])
        got = dict(zip((spec.name for spec in built.plan.outputs), results, strict=True))
        try:
            assert_close(model, got, dict(zip(names, expected, strict=True)), rounded)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from error


def test_candidates_compute_what_the_model_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first ones of each group; the slow tests try all."""
    on = target(least_groups=4)
    monkeypatch.setattr(tuning_gpu, "MOST", 3)
    groups, base = groups_of(network(), on, tmp_path)
    assert {one["rule"] for one in groups} >= {"contraction", "window", "rows", "attention", "element"}
    rules = {other["rule"] for one in groups for other in one["candidates"]}
    assert rules >= {"winograd", "contraction", "contraction+rows+contraction", "attention", "window"}
    for one in groups:
        texts = [json.dumps(other, sort_keys=True) for other in one["candidates"]]
        assert len(set(texts)) == len(texts) > 0
        assert {"rule": one["rule"], "schedule": one["schedule"], "cycles": 0.0} not in one["candidates"]
    found = tuned(network(), on, groups, 1, "base")
    assert not set(found.gpu_kernels.values()) & set(base.gpu_kernels.values())
    check(network(), {"drawn": found}, tmp_path, on)


@pytest.mark.parametrize(
    "on",
    [
        target("cuda", capabilities=(80,), local_bytes=48 << 10, precision="fp16"),
        target("cuda", capabilities=(87,), local_bytes=48 << 10, precision="tf32"),
        target("metal", family=7),
        target(group_size=64, local_bytes=8192),
    ],
    ids=["tensor cores", "tf32", "simdgroups", "small"],
)
def test_a_schedule_that_is_given_again_makes_the_same_kernels(on: GpuTarget, tmp_path: Path) -> None:
    for model in (attention(), rows()):
        groups, base = groups_of(model, on, tmp_path, candidates=False)
        own = [{**one, "candidates": [{"rule": one["rule"], "schedule": one["schedule"]}]} for one in groups]
        again = tuned(model, on, own, 0, "base")
        assert again.gpu_kernels == base.gpu_kernels


def test_what_is_given_for_other_units_does_not_fit() -> None:
    """The rules choose, and it is said."""
    plain, units = target(), target("metal", family=7)
    model = convolution()
    kept: list[tuple[str, str]] = []

    def remember(selected: SelectedOnGpu) -> None:
        for call in selected.program.calls:
            if call.gpu is not None:
                key = group_key([call.fused], selected.half.of_call(call))
                kept.append((key, call.gpu.schedule.rule))

    plan_of(model, "m", units, selected=remember)
    taken = [TunedChoice(plain.gpu_kind, key, rule, {}, 1.2) for key, rule in kept]
    assert any(choice.rule == "simdgroup_matrix" for choice in taken)
    built = plan_of(model, "m", plain, schedules=TunedGpuSchedules(taken, plain, pytest.fail))
    (said,) = [text for text in built.plan.warnings if "does not fit" in text]
    assert "no matrices of SIMD-groups" in said
    assert built.gpu_kernels == plan_of(model, "m", plain).gpu_kernels


@pytest.mark.parametrize(
    ("rule", "schedule", "reason"),
    [
        ("contraction", {"tile": [100, 64]}, "a tile of 100x64"),
        ("contraction", {"tile": [128, 256]}, "numbers of a work item"),
        ("contraction", {"tile": [64, 64], "grid": [32, 16]}, "512 work items"),
        ("contraction", {"depth": 12}, "12 terms"),
        ("contraction", {"split_k": 60}, "not shared by 60"),
        ("winograd", {"outputs": 3}, "no tiles of 3x3"),
        ("winograd", {"outputs": 2, "threads": 512}, "512 work items"),
        ("reduction", {"lanes": 3}, "powers of two"),
        ("reduction", {"lanes": 256, "threads": 64}, "256 lanes of 64"),
        ("window", {"elements": 5}, "no small window"),
        ("element+rows", {}, "1 parts, not 2"),
        ("attention", {}, "no part is computed by attention"),
    ],
)
def test_schedules_that_do_not_fit_are_refused(rule: str, schedule: dict[str, Any], reason: str) -> None:
    g = Graph("one", seed=2)
    g.output(g.op("Conv", g.input("x", [1, 64, 20, 20]), g.weight(32, 64, 3, 3), name="y"))
    on = target()

    def given(fused: FusedGroup, half: HalfOperands) -> Given:
        if "conv" not in fused.title:
            return {}
        return {GROUP: GroupSchedule.of_rules(rule, schedule, PART_SCHEDULES)}

    (said,) = [t for t in plan_of(g.model(), "m", on, schedules=given).plan.warnings if "does not fit" in t]
    assert reason in said and "the GPU's rules have chosen one" in said


def test_choices_of_another_version_are_ignored_with_one_warning() -> None:
    kind = target().gpu_kind
    told: list[str] = []
    found = TunedGpuSchedules(
        [
            TunedChoice(kind, "a", "contraction+rows", {"0.depth": 8, "1.lanes": 4}, 1.2),
            TunedChoice(kind, "b", "contraction", {"rows": 8}, 1.2),
            TunedChoice(kind, "c", "contraction+rows", {"2.lanes": 4}, 1.2),
            TunedChoice(kind, "d", "contraction", {"tile": "wide"}, 1.2),
            TunedChoice(kind, "e", "a rule that was", {}, 1.2),
            TunedChoice("another kind", "f", "nothing", {}, 1.2),
        ],
        target(),
        told.append,
    )
    assert found.gains == {"a": 1.2}
    (text,) = told
    assert text.startswith("4 tuned schedules are of another version") and "no field rows" in text


@pytest.mark.parametrize("other", [{"least_groups": 96}, {"precision": "fp16"}, {"group_size": 64}])
def test_another_gpu_is_another_kind(other: dict[str, Any]) -> None:
    kinds = {target().gpu_kind, target(**other).gpu_kind, target("metal").gpu_kind}
    kinds |= {target("cuda", capabilities=(80,)).gpu_kind, target("cuda", capabilities=(75, 80)).gpu_kind}
    assert len(kinds) == 5
    slower = GpuSpeed(bandwidth=10, peak=100, launch=1, copy=1, link=1)
    assert target(speed=slower).gpu_kind not in kinds


#: Models, and GPUs that OpenCL's driver stands for, of which all candidates are tried.
SWEPT = {
    "network": network,
    "attention": attention,
    "masked": masked_attention,
    "causal": causal_attention,
    "convolution": convolution,
    "products": products,
    "rows": rows,
}
GPUS = {
    "plain": target(least_groups=4),
    "half": target(least_groups=8, precision="fp16"),
    "small": target(group_size=64, local_bytes=8192, least_groups=4),
}


@pytest.mark.slow
@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("name", SWEPT)
def test_all_candidates(name: str, gpu: str, tmp_path: Path) -> None:
    model, on = SWEPT[name](), GPUS[gpu]
    groups, base = groups_of(model, on, tmp_path)
    most = max(len(one["candidates"]) for one in groups)
    plans = {f"t{n}": tuned(model, on, groups, n, f"t{n}") for n in range(most)}
    check(model, {"base": base, **plans}, tmp_path, on)


@pytest.mark.slow
@pytest.mark.skipif(nvrtc.find_nvrtc() is None, reason="NVRTC is not installed: edgepack[cuda]")
@pytest.mark.parametrize("precision", ["fp32", "tf32", "fp16"])
@pytest.mark.parametrize("name", SWEPT)
def test_cuda_takes_all_candidates(name: str, precision: Precision, tmp_path: Path) -> None:
    """NVRTC compiles each, and none needs more registers or shared memory than its group can have; as they
    are packed, none spills."""
    on = target("cuda", capabilities=(80,), local_bytes=48 << 10, least_groups=32, precision=precision)
    model = SWEPT[name]()
    groups, _ = groups_of(model, on, tmp_path)
    most = max(len(one["candidates"]) for one in groups)
    texts: dict[str, str] = {}
    threads: dict[str, int] = {}
    for number in range(most):
        built = tuned(model, on, groups, number, f"t{number}")
        check_launches(built, on)
        texts |= built.gpu_kernels
        steps = [step for step in built.plan.steps if isinstance(step, Launch)]
        threads |= {step.kernel: prod(step.threads) for step in steps}
    _, taken = without_spills(texts, on.capabilities[0], Nvrtc())
    assert taken.keys() == texts.keys()
    for symbol, one in taken.items():
        assert one.registers * threads[symbol] <= 65536, (symbol, one)
        assert one.shared <= 48 << 10 and one.spilled == 0, (symbol, one)


@pytest.mark.slow
@pytest.mark.parametrize("on", [target("metal", family=7), target("metal", family=7, precision="fp16")])
@pytest.mark.parametrize("name", SWEPT)
def test_metal_has_text_for_all_candidates(name: str, on: GpuTarget, tmp_path: Path) -> None:
    """Within the group's size and shared memory; the text is not compiled."""
    model = SWEPT[name]()
    groups, _ = groups_of(model, on, tmp_path)
    for number in range(max(len(one["candidates"]) for one in groups)):
        built = tuned(model, on, groups, number, "t")
        check_launches(built, on)
        text = metal_source(built.gpu_kernels)
        assert all(f"void {symbol}(" in text for symbol in built.gpu_kernels)


#: What OpenCL has not: a device that extends another one, the shim of its driver, and the rule of its units.
UNITS = {
    "tensor cores": (
        "extends: cuda-desktop\ngpu: {capabilities: [80]}\n",
        "fp16",
        "cuda-shim",
        "tensor_core",
    ),
    "TF32": ("extends: cuda-desktop\ngpu: {capabilities: [80]}\n", "tf32", "cuda-shim", "tensor_core"),
    "SIMD-groups": ("extends: macos-arm64-metal\n", "fp32", "metal-shim", "simdgroup_matrix"),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", range(0, 24, 4))
@pytest.mark.parametrize("units", UNITS)
def test_candidates_of_matrix_units_on_a_shim(units: str, number: int, tmp_path: Path) -> None:
    """The bundle's own program and kernels, as C++ on the CPU, with each access checked."""
    text, precision, runner, rule = UNITS[units]
    (tmp_path / "device.yaml").write_text(text, encoding="utf-8")
    device = load_device(tmp_path / "device.yaml")
    ok, _, hint = RUNNERS.find(runner).available(device)
    if not ok or (device.gpu.api == "cuda" and nvrtc.find_nvrtc() is None):
        pytest.skip(hint or "NVRTC is not installed: edgepack[cuda]")
    on = device.gpu_target(device.cpu_target(), precision)
    assert on is not None
    groups, _ = groups_of(attention(), on, tmp_path)
    file = tmp_path / "tuned.json"
    write_tuned(file, TunedFile(tuple(choices(on, groups, number))))
    model = save(attention(), tmp_path, "attention.onnx")
    bundle = edgepack.pack(
        model, tmp_path / "device.yaml", tmp_path / "out", precision=precision, tuned=[file]
    )
    kernels = bundle.manifest.code(on.api).kernels
    assert number or [one for one in kernels if rule in one.rule and "tuned" in one.parameters]
    checked = bundle.verify(runner=runner).variants
    assert ("ok", "") in [(one.status, one.missing) for one in checked if one.name == on.api]

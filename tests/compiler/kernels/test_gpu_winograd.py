"""Winograd's form of convolutions on GPUs: through the OpenCL driver of the system (PoCL), and where it is
chosen."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.gpu.winograd import WINOGRAD, GpuWinogradSchedule
from edgepack.compiler.kernels.schedule import Given
from edgepack.plan.gpu_speed import GpuSpeed
from edgepack.plan.gpu_target import GpuTarget
from edgepack.plan.types import Launch
from tests.support.opencl import OpenClExecutor, driver
from workbench.compiled import assert_close, plan_of
from workbench.executor import host_target
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime

#: Pads, groups, channels, height and width: tiles that reach beyond the image and that do not, pads on all
#: sides and on some, none, and groups.
SHAPES: dict[str, dict[str, Any]] = {
    "odd": {"pads": [1, 0, 2, 1], "batch": 2, "size": (11, 13)},
    "even": {"size": (16, 12)},
    "groups": {"groups": 2, "size": (9, 10)},
    "unpadded": {"pads": [0, 0, 0, 0], "batch": 3, "size": (14, 11)},
}


def convolution(
    *,
    channels: int = 24,
    outputs: int = 40,
    groups: int = 1,
    batch: int = 1,
    size: tuple[int, int] = (12, 12),
    pads: list[int] | None = None,
    **attributes: Any,
) -> onnx.ModelProto:
    """A convolution by 3x3 with a bias, a tensor that is added, and an activation."""
    pads = pads or [1, 1, 1, 1]
    g = Graph("winograd", seed=5)
    x = g.input("x", (batch, channels, *size))
    weights = g.weight(outputs, channels // groups, 3, 3), g.weight(outputs)
    y = g.op("Conv", x, *weights, pads=pads, group=groups, **attributes)
    y = g.op("Add", y, g.input("other", (1, outputs, 1, 1)))
    g.op("Relu", y, name="y")
    g.output("y")
    return g.model()


def target(**fields: Any) -> GpuTarget:
    return GpuTarget(fields.pop("api", "opencl"), host_target(), **fields)


def rules(model: onnx.ModelProto, on: GpuTarget) -> list[str]:
    """Of the launches of a plan, in order, but for those that only move."""
    plan = plan_of(model, "m", on).plan
    names = {kernel.symbol: kernel.rule.partition(".")[2] for kernel in plan.kernels}
    found = [names[step.kernel] for step in plan.steps if isinstance(step, Launch)]
    return [rule for rule in found if rule != "element"]


def check(models: dict[str, onnx.ModelProto], folder: Path, on: GpuTarget, m: int) -> None:
    """Every model has Winograd's form, with tiles of m x m, and ONNX Runtime's results."""
    given: Given = {WINOGRAD: GpuWinogradSchedule(outputs=m)}
    built = {name: plan_of(model, f"m{i}", on, given=given) for i, (name, model) in enumerate(models.items())}
    executor = OpenClExecutor(built, folder / "kernels", driver(folder / "pocl"))
    for name, model in models.items():
        assert f"opencl.winograd{m}_output" in {k.rule for k in built[name].plan.kernels}, name
        inputs, plan = random_inputs(model, 3), built[name].plan
        results = executor.run(name, [np.asarray(inputs[spec.name]) for spec in plan.inputs])
        rounded = "float16" if on.precision == "fp16" else None
        assert_close(model, {"y": results[0]}, {"y": run_onnxruntime(model, inputs)[0]}, rounded)


@pytest.mark.parametrize(("m", "names"), [(4, ["odd"]), (2, ["groups"])])
def test_results(m: int, names: list[str], tmp_path: Path) -> None:
    check({name: convolution(**SHAPES[name]) for name in names}, tmp_path, target(), m)


@pytest.mark.slow
@pytest.mark.parametrize("group_size", [64, 256])
@pytest.mark.parametrize(("m", "precision"), [(4, "fp32"), (2, "fp32"), (2, "fp16")])
def test_results_of_all_shapes(m: int, precision: str, group_size: int, tmp_path: Path) -> None:
    """With groups that share the terms of the products too."""
    models = {name: convolution(**shape) for name, shape in SHAPES.items()}
    models["deep"] = convolution(channels=300, size=(13, 13))
    on = target(precision=precision, group_size=group_size, least_groups=96)
    check(models, tmp_path, on, m)


def test_tiles_that_there_are_not_are_refused() -> None:
    """The user is told why, and the rules choose."""
    given: Given = {WINOGRAD: GpuWinogradSchedule(outputs=5)}
    plan = plan_of(convolution(), "m", target(), given=given).plan
    warnings = plan.warnings
    assert "opencl.contraction" in {kernel.rule for kernel in plan.kernels}
    assert any("there are no tiles of 5x5 outputs" in warning for warning in warnings)


def test_it_is_chosen_where_it_pays() -> None:
    """Small convolutions, windows of other sizes or strides, weights that are inputs, and where tensor cores
    multiply float16, it is not; nor are large params made larger unasked."""
    late = convolution(channels=256, outputs=256, size=(14, 14))
    assert rules(late, target()) == ["winograd2_input", "contraction", "winograd2_output"]
    assert rules(late, target(precision="fp16"))[0] == "winograd2_input"
    large = convolution(channels=128, outputs=128, size=(56, 56))
    assert rules(large, target())[0] == "winograd4_input"
    slow = GpuSpeed(bandwidth=10, peak=1000, launch=5, copy=10, link=10)
    assert rules(large, target(speed=slow)) == ["contraction"]
    apple = target(api="metal", family=7)
    assert rules(large, apple) == ["winograd4_input", "simdgroup_matrix", "winograd4_output"]
    assert rules(large, target(api="metal", family=7, precision="fp16")) == ["simdgroup_matrix"]
    assert rules(large, target(api="cuda", capabilities=(87,), precision="fp16")) == ["tensor_core"]
    assert rules(convolution(), target()) == ["contraction"]
    for other in ({"strides": [2, 2]}, {"dilations": [2, 2], "pads": [2, 2, 2, 2]}):
        assert "winograd4_input" not in rules(
            convolution(channels=128, outputs=128, size=(56, 56), **other), target()
        )
    asked: dict[str, Any]
    for asked in ({"strict_math": True}, {"optimize": "size"}):
        assert rules(large, GpuTarget("opencl", replace(host_target(), **asked))) == ["contraction"]

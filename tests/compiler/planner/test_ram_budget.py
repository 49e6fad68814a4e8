"""Layers that are computed by rows, so that a plan takes less RAM: results are the same, and no row is
computed twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.ram_budget import OTHER_BYTES
from edgepack.config.device import load_device
from edgepack.plan.cascade import Cascade
from workbench.compiled import plan_of
from workbench.executor import Executor, host_target
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.quantise import quantise


def separable() -> onnx.ModelProto:
    """Depthwise and pointwise convolutions with strides, as in MobileNet; pairs of them are one kernel."""
    g = Graph("separable")
    x = g.op("Relu", g.conv(g.input("x", [1, 3, 33, 30]), 3, 16, 3, stride=2, bias=True))
    for cin, cout, stride in ((16, 24, 2), (24, 24, 1), (24, 40, 2)):
        x = g.op("Relu", g.conv(x, cin, cin, 3, groups=cin, stride=stride, bias=True))
        x = g.op("Relu", g.conv(x, cin, cout, 1, bias=True))
    g.output(g.op("GlobalAveragePool", x, name="y"))
    return g.model()


def residual() -> onnx.ModelProto:
    """Sums of a block and of what it reads, directly and by a convolution, windows of several sizes."""
    g = Graph("residual")
    x = g.op("Relu", g.conv(g.input("x", [1, 3, 28, 28]), 3, 16, 5, bias=True))
    y = g.op("Relu", g.conv(x, 16, 16, 3, bias=True))
    x = g.op("Relu", g.op("Add", x, g.conv(y, 16, 16, 3, bias=True)))
    y = g.op("Relu", g.conv(x, 16, 24, 3, stride=2, bias=True))
    x = g.op("Add", g.conv(x, 16, 24, 1, stride=2, bias=True), g.conv(y, 24, 24, 3, dilation=2, bias=True))
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 1, 1, 0])
    x = g.op("Relu", g.conv(x, 24, 16, 3, stride=2))
    g.output(g.op("GlobalAveragePool", x, name="y"))
    return g.model()


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "separable": separable,
    "residual, int8": lambda: quantise(residual(), "u8s8"),
}
#: The other way round.
MORE: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual": residual,
    "separable, int8": lambda: quantise(separable(), "u8s8"),
}
ALONE = replace(host_target(), threads=1)


def cascades(built: Built) -> list[Cascade]:
    return [kernel.cascade for kernel in built.plan.kernels if kernel.cascade is not None]


@pytest.mark.parametrize("name", [*MODELS, *(pytest.param(name, marks=pytest.mark.slow) for name in MORE)])
def test_results_by_rows_are_those_of_whole_tensors(name: str, tmp_path: Path) -> None:
    model = (MODELS | MORE)[name]()
    plans = {
        "whole": plan_of(model, "whole", target=ALONE),
        "by rows": plan_of(model, "rows", target=replace(ALONE, ram_bytes=1)),
    }
    executor = Executor(plans, tmp_path)
    for seed in (3, 4):
        inputs = random_inputs(model, seed)
        arrays = list(inputs.values())
        (whole,), (rows,) = executor.run("whole", arrays), executor.run("by rows", arrays, poison=0x55)
        if "int8" in name:
            np.testing.assert_array_equal(whole, rows)
        else:  # tiles of other shapes may round otherwise
            (expected,) = run_onnxruntime(model, inputs)
            np.testing.assert_allclose(rows, expected, rtol=1e-4, atol=1e-5)
    _check_what_is_said(plans["whole"], plans["by rows"])
    for cascade in cascades(plans["by rows"]):
        _check_rows(cascade)


def _check_what_is_said(whole: Built, rows: Built) -> None:
    """The arena is smaller, and the user is told what that costs."""
    before, after = whole.plan.arena.nbytes, rows.plan.arena.nbytes
    assert not cascades(whole) and not any("at a time" in text for text in whole.plan.warnings)
    assert cascades(rows) and after < 0.8 * before
    (told,) = [text for text in rows.plan.warnings if "at a time" in text]
    assert f"{after / 1024:.1f} KiB instead of {before / 1024:.1f} KiB" in told
    assert "more than" in told  # one byte is not enough
    assert type(rows.plan).from_json(rows.plan.to_json()) == rows.plan


def _check_rows(cascade: Cascade) -> None:
    """Each row is computed once."""
    done = [0] * len(cascade.layers)
    assert len(done) > 1
    for visit in cascade.visits():
        assert visit.begin == done[visit.layer] < visit.end
        done[visit.layer] = visit.end
    assert done[-1] == cascade.layers[-1].rows


def test_what_would_be_copied_to_lines_for_matrices_is_by_rows_of_vectors() -> None:
    target = replace(load_device("linux-x86_64-amx").cpu_target(), threads=1)
    model = quantise(residual(), "u8s8")
    whole = plan_of(model, "matrices", target=target)
    rows = plan_of(model, "rows", target=replace(target, ram_bytes=1))
    assert any("tiles" in str(kernel.parameters) for kernel in whole.plan.kernels)
    _check_what_is_said(whole, rows)


def test_no_more_is_by_rows_than_the_budget_needs() -> None:
    model = residual()
    whole = plan_of(model, "a", target=ALONE).plan
    tensors = sum(spec.nbytes for spec in (*whole.inputs, *whole.outputs))
    enough = tensors + whole.arena.nbytes + OTHER_BYTES
    assert plan_of(model, "a", target=replace(ALONE, ram_bytes=enough)).plan == whole
    fewer = plan_of(model, "a", target=replace(ALONE, ram_bytes=enough - 1))
    fewest = plan_of(model, "a", target=replace(ALONE, ram_bytes=1))
    assert fewest.plan.arena.nbytes < fewer.plan.arena.nbytes < whole.arena.nbytes
    assert sum(c.moved() for c in cascades(fewer)) < sum(c.moved() for c in cascades(fewest))
    assert all("more than" not in text for text in fewer.plan.warnings)

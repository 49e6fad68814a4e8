"""Microcontrollers: a budget of RAM that whole tensors do not fit, and the firmware that keeps to it."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path

import onnx
import pytest

import edgepack
from edgepack.errors import CheckFailedError, ConfigError
from tests.compiler.planner.test_ram_budget import residual, separable
from workbench.models import save
from workbench.models.quantise import quantise

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual": lambda: quantise(residual(), "s8s8"),
    "floats": separable,
}
SLOW = [
    *(("residual", device) for device in ("cortex-m55", "cortex-m0plus", "esp32-c3")),
    ("floats", "cortex-m4"),
    ("floats", "cortex-m55"),
]


@pytest.mark.parametrize(
    ("name", "device"), [("residual", "cortex-m4"), *(pytest.param(*s, marks=pytest.mark.slow) for s in SLOW)]
)
def test_firmware_with_less_ram_computes_the_same(name: str, device: str, tmp_path: Path) -> None:
    model = MODELS[name]()
    path = save(model, tmp_path, f"{name}.onnx")
    whole = edgepack.check(path, device)
    shapes = (
        [d.dim_value for d in v.type.tensor_type.shape.dim] for v in (*model.graph.input, *model.graph.output)
    )
    budget = sum(4 * prod(shape) for shape in shapes) + int(0.8 * whole.arena_bytes) + 1024
    bundle = edgepack.pack(path, device, tmp_path / "bundle", ram_budget=budget)
    manifest = bundle.manifest
    assert manifest.footprint is not None and manifest.footprint.ram <= budget
    assert manifest.options.ram_budget == budget
    assert manifest.memory.arena < 0.8 * whole.arena_bytes
    (cascade,) = [kernel for kernel in manifest.kernels if kernel.rule == "cascade"]
    assert cascade.parameters["layers"] > 1
    result = bundle.verify()
    assert result.ok, result
    counted = bundle.bench().instructions
    assert counted is not None and len(counted.steps) == len(manifest.steps)


def test_a_budget_that_no_rows_fit_is_refused_with_the_table(tmp_path: Path) -> None:
    path = save(separable(), tmp_path, "separable.onnx")
    with pytest.raises(CheckFailedError, match=r"needs at least .* of RAM where 2048 B are allowed"):
        edgepack.pack(path, "cortex-m4", tmp_path / "bundle", ram_budget="2 KiB")
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("device", "budget", "sentence"),
    [
        ("host", 4096, "for microcontrollers, and host has an operating system"),
        ("cortex-m4", "a lot", "'a lot' is not a size"),
        ("cortex-m4", "0", "leaves no RAM"),
        ("cortex-m4", -3, "ram_budget of pack is a number of bytes above 0"),
    ],
)
def test_a_budget_that_is_none_is_one_sentence(
    device: str, budget: int | str, sentence: str, tmp_path: Path
) -> None:
    path = save(separable(), tmp_path, "separable.onnx")
    for function in (edgepack.check, edgepack.pack):
        with pytest.raises(ConfigError) as caught:
            function(path, device, ram_budget=budget)
        assert sentence.replace("pack", function.__name__) in str(caught.value)

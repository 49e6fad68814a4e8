"""Dilated convolutions whose phases are plain ones, which have Winograd's form."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import onnx
import pytest

from workbench.compiled import Compiled, plan_of, target_with
from workbench.models.builder import Graph


def dilated(pixels: tuple[int, int], dilation: int, *, channels: int = 48, pads: int = 0) -> onnx.ModelProto:
    g = Graph("dilated", seed=4)
    x, weights = g.input("x", (2, channels, *pixels)), g.weight(40, channels, 3, 3)
    options = {"dilations": [dilation] * 2, "pads": [pads or dilation] * 4}
    g.op("Relu", g.op("Conv", x, weights, g.weight(40), **options), name="y")
    g.output("y")
    return g.model()


#: Rules of what only a plain convolution may have.
SQUARES = {"conv2d.winograd2", "conv2d.winograd4"}

MODELS = {
    "two": dilated((20, 24), 2),
    "three, and pixels that are no multiple": dilated((31, 26), 3),
    "four": dilated((32, 32), 4),
}


@pytest.mark.parametrize("registers", ["128x16", "512x32"])
def test_phases_are_right(registers: str, tmp_path: Path) -> None:
    compiled = Compiled(MODELS, tmp_path, target_with(registers))
    for name in MODELS:
        compiled.check(name)
        assert {kernel.rule for kernel in compiled.plan(name).kernels} & SQUARES, name


@pytest.mark.parametrize(
    "model",
    [dilated((20, 24), 2, channels=8), dilated((20, 24), 2, pads=1), dilated((7, 7), 6)],
    ids=["few channels", "other padding", "small phases"],
)
def test_what_saves_too_little_stays_whole(model: onnx.ModelProto) -> None:
    rules = {kernel.rule for kernel in plan_of(model, target=target_with("512x32")).plan.kernels}
    assert any(rule.startswith("conv2d") for rule in rules)
    assert not rules & SQUARES


@pytest.mark.parametrize("options", [{"optimize": "size"}, {"strict_math": True}, {"vector_bits": 0}])
def test_only_where_winograd_may_be(options: dict[str, object]) -> None:
    target = replace(target_with("512x32"), **options)  # type: ignore[arg-type]
    rules = [kernel.rule for kernel in plan_of(MODELS["two"], target=target).plan.kernels]
    assert not any("winograd" in rule for rule in rules)

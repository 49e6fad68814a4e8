"""Winograd's filtering along lines: signals and windows of any size, dilated or not, with strides across."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.conv.winograd_filters import FILTERS, LineFilter
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import WinogradSchedule
from edgepack.compiler.kernels.schedule import Given
from workbench.compiled import Compiled, plan_of, target_with
from workbench.models.evaluate import random_inputs, run_in_float64
from workbench.models.single import conv, gelu, silu

#: Largest error relative to the largest output; docs/internals/kernels.md states it.
ERROR = 3e-6

MODELS: dict[str, onnx.ModelProto] = {
    "three": conv((2, 13, 37), 33, (3,), pads=(1, 1), activation=silu, residual=True),
    "dilated": conv((1, 8, 61), 16, (3,), pads=(5, 5), dilations=(5,)),
    "causal": conv((1, 8, 61), 20, (2,), pads=(4, 0), dilations=(4,)),
    "four, valid": conv((1, 8, 40), 20, (4,)),
    "five": conv((2, 12, 43), 40, (5,), pads=(2, 2), activation=gelu),
    "seven": conv((1, 16, 45), 24, (7,), pads=(3, 3), residual=True),
    "eleven, dilated": conv((2, 5, 64), 24, (11,), pads=(15, 15), dilations=(3,)),
    "sixteen": conv((1, 5, 64), 7, (16,), pads=(3, 7)),
    "row": conv((2, 16, 9, 17), 24, (1, 7), pads=(0, 3, 0, 3)),
    "column": conv((2, 16, 17, 9), 24, (7, 1), pads=(3, 0, 3, 0), activation=silu, residual=True),
    "dilated column": conv((1, 16, 17, 9), 24, (3, 1), pads=(2, 0, 2, 0), dilations=(2, 1)),
    "5x5": conv((2, 16, 11, 17), 24, (5, 5), pads=(2, 2, 2, 2), activation=silu),
    "7x7": conv((1, 8, 19, 17), 24, (7, 7), pads=(3, 3, 3, 3), residual=True),
    "3x5": conv((2, 8, 9, 11), 40, (3, 5), pads=(1, 0, 1, 0)),
    "7x3, valid": conv((1, 8, 19, 17), 24, (7, 3)),
    "3x3 dilated": conv((2, 8, 19, 17), 24, (3, 3), pads=(4, 4, 4, 4), dilations=(4, 4)),
    "stride down": conv((1, 8, 19, 17), 24, (3, 3), pads=(1, 1, 1, 1), strides=(2, 1)),
    "stride along": conv((2, 8, 19, 20), 24, (5, 3), pads=(1, 1, 1, 1), strides=(1, 3)),
    "strides leave lines out": conv((1, 8, 19, 17), 24, (1, 4), pads=(0, 1, 2, 1), strides=(5, 1)),
    "groups": conv((1, 36, 45), 60, (8,), pads=(3, 4), group=3),
    "groups of images": conv((2, 32, 9, 13), 72, (5, 3), pads=(2, 1, 2, 1), group=2, activation=gelu),
    "asymmetric": conv((1, 8, 19, 17), 24, (4, 2), pads=(0, 3, 2, 0), dilations=(2, 3)),
    "one tile": conv((1, 3, 2), 4, (5,), pads=(4, 4)),
}


def _given(model: onnx.ModelProto, which: int, form: str) -> Given:
    """The first or the last of the tiles of a model's convolution, fused or split."""
    node = next(node for node in model.graph.node if node.op_type == "Conv")
    weights = next(one for one in model.graph.initializer if one.name == node.input[1])
    strides = next(a.ints for a in node.attribute if a.name == "strides")
    tiles = []
    for rank, along in enumerate(zip(reversed(weights.dims[2:]), reversed(strides), strict=True)):
        taps, stride = along
        filters = FILTERS.get(taps, FILTERS[4]) if taps > 1 and stride == 1 else ()
        tiles += [(f.m, 1) if rank else (1, f.m) for f in filters]
    schedule = WinogradSchedule(outputs=tiles[which], form="split" if form == "split" else "fused")
    return {"conv2d.winograd": schedule}


#: Which of the sides and filters, form and register file.
Way = tuple[int, str, str]
WAYS: tuple[Way, ...] = ((0, "fused", "512x32"), (-1, "split", "256x16"), (-1, "small blocks", "128x16"))
#: In the slow tests alone: a way, and of the others every second model each.
SLOW = {(WAYS[2], name) for name in MODELS} | {
    (way, name) for turn, way in enumerate(WAYS[:2]) for name in list(MODELS)[turn::2]
}


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Way, str], Compiled]:
    """What has a way and a model, compiled when first asked for."""

    @cache
    def compiled(way: Way, slow: bool) -> Compiled:
        which, form, registers = way
        l2_bytes = 32 * 1024 if form == "small blocks" else 1024 * 1024
        target = target_with(registers, threads=2, l2_bytes=l2_bytes)
        models = {name: model for name, model in MODELS.items() if ((way, name) in SLOW) == slow}
        given = {name: _given(model, which, form) for name, model in models.items()}
        return Compiled(models, tmp_path_factory.mktemp("lines"), target, given=given)

    return lambda way, name: compiled(way, (way, name) in SLOW)


@pytest.mark.parametrize(
    ("way", "name"),
    [
        pytest.param(way, name, marks=[pytest.mark.slow] * ((way, name) in SLOW), id=f"{way[1]}-{name}")
        for way in WAYS
        for name in MODELS
    ],
)
def test_convolution_is_within_the_stated_error(
    library: Callable[[Way, str], Compiled], way: Way, name: str
) -> None:
    compiled = library(way, name)
    assert any(kernel.rule.startswith("conv2d.winograd1x") for kernel in compiled.plan(name).kernels)
    inputs = random_inputs(MODELS[name], 9)
    (expected,) = run_in_float64(MODELS[name], inputs)
    got = compiled.run(name, inputs, seed=3)["y"]
    assert np.abs(got - expected).max() <= ERROR * np.abs(expected).max()


class _Numbers:
    """:class:`Transform` of numbers."""

    def add(self, x: float | None, y: float | None) -> float:
        return (x or 0.0) + (y or 0.0)

    def sub(self, x: float, y: float) -> float:
        return x - y

    def mad(self, factor: float, x: float, y: float | None) -> float:
        return self.add(factor * x, y)


@pytest.mark.parametrize("f", [f for some in FILTERS.values() for f in some], ids=lambda f: f"{f.m}x{f.r}")
def test_filter_is_exact(f: LineFilter) -> None:
    rng = np.random.default_rng(f.a)
    inputs, weights = rng.standard_normal(f.a), rng.standard_normal(f.r)
    t = _Numbers()
    products = (f.weights @ weights) * np.array(f.transform_inputs(t, list(inputs)))  # type: ignore[arg-type]
    found = f.transform_outputs(t, list(products))  # type: ignore[arg-type]
    assert found == pytest.approx([inputs[i : i + f.r] @ weights for i in range(f.m)], abs=1e-13)


@pytest.mark.parametrize(
    ("model", "rule"),
    [
        pytest.param(conv((1, 64, 512), 64, (3,), pads=(1, 1)), "conv2d.winograd1x6", id="long"),
        pytest.param(
            conv((1, 64, 256), 64, (3,), pads=(32, 32), dilations=(32,)), "conv2d.winograd1x4", id="phases"
        ),
        pytest.param(conv((1, 64, 6), 64, (5,)), "conv2d.igemm", id="few outputs"),
        pytest.param(conv((1, 64, 512), 64, (3,), strides=(2,)), "conv2d.igemm", id="strides"),
        pytest.param(
            conv((1, 64, 35, 35), 64, (5, 5), pads=(2, 2, 2, 2)), "conv2d.winograd1x4", id="rows of filters"
        ),
        pytest.param(
            conv((1, 64, 28, 28), 64, (3, 3), pads=(1, 1, 1, 1)), "conv2d.winograd4", id="squares save more"
        ),
        pytest.param(conv((1, 64, 512), 64, (3,), group=16), "conv2d.grouped", id="groups of few channels"),
    ],
)
def test_chosen_where_it_saves_time(model: onnx.ModelProto, rule: str) -> None:
    rules = {k.rule for k in plan_of(model, target=target_with("512x32")).plan.kernels}
    assert {found for found in rules if found.startswith("conv2d")} == {rule}

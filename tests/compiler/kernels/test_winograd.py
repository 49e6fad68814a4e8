"""Winograd convolutions: right at every border, and as far off as the documentation says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.conv import cost
from edgepack.compiler.kernels.cpu.conv.winograd_panels import split_into_panels
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import WinogradSchedule
from edgepack.compiler.kernels.schedule import Given
from edgepack.plan.target import CpuTarget
from workbench.compiled import Compiled, plan_of, target_with
from workbench.executor import Executor, host_target
from workbench.models.evaluate import random_inputs, run_in_float64
from workbench.models.single import conv, gelu, silu

#: Largest error relative to the largest output; docs/internals/kernels.md states it.
ERROR = {2: 3e-6, 3: 5e-6, 4: 5e-6}

PADS = (1, 1, 1, 1)
MODELS: dict[str, onnx.ModelProto] = {
    "same": conv((1, 16, 12, 12), 24, (3, 3), pads=PADS),
    "odd": conv((1, 13, 11, 7), 33, (3, 3), pads=PADS, activation=silu),
    "valid": conv((1, 8, 10, 13), 16, (3, 3)),
    "asymmetric": conv((1, 8, 9, 9), 16, (3, 3), pads=(0, 1, 2, 0)),
    "residual": conv((1, 16, 8, 8), 17, (3, 3), pads=PADS, residual=True),
    "batch": conv((3, 12, 9, 6), 20, (3, 3), pads=PADS, activation=gelu),
    "one tile": conv((1, 24, 2, 2), 8, (3, 3), pads=PADS),
    "wide": conv((1, 40, 7, 7), 96, (3, 3), pads=PADS),
    "many tiles": conv((1, 8, 50, 47), 18, (3, 3), pads=PADS),
    "high": conv((2, 20, 21, 5), 40, (3, 3), pads=PADS, residual=True),
    "one channel": conv((1, 1, 9, 9), 1, (3, 3), pads=PADS),
    "groups": conv((2, 24, 11, 9), 40, (3, 3), pads=PADS, group=2, activation=silu),
    "many groups": conv((1, 64, 14, 14), 64, (3, 3), pads=PADS, group=4),
    "volume": conv((2, 12, 5, 9, 7), 20, (3, 3, 3), pads=(1,) * 6, residual=True),
    "volume, strides": conv(
        (1, 8, 7, 6, 9), 16, (2, 3, 3), strides=(2, 1, 1), dilations=(3, 1, 1), pads=(2, 1, 1, 0, 0, 1)
    ),
    "planes of volumes": conv((2, 12, 3, 9, 7), 20, (1, 3, 3), pads=(0, 1, 1, 0, 1, 1), residual=True),
}


#: Tile, form and register file.
Way = tuple[int, str, str]

#: Every two of a tile, a form and a register file meet.
WAYS: tuple[Way, ...] = (
    (2, "split", "128x16"),
    (4, "split", "512x32"),
    (2, "fused", "128x16"),
    (4, "fused", "512x32"),
    (4, "small blocks", "128x16"),
    (2, "small blocks", "512x32"),
)


#: The same forms as others of these, with other tiles.
SLOW: tuple[Way, ...] = ((4, "split", "512x32"), (2, "fused", "128x16"))

#: What is tried in every way; all models in the first one.
SENTINELS = ("odd", "asymmetric", "groups", "residual", "batch", "one tile", "many tiles")
CASES = [(way, name) for way in WAYS for name in (MODELS if way == WAYS[0] else SENTINELS)]


def given(tile: int, form: str, registers: str = "") -> Given:
    """The schedule of a way."""
    staged = True if registers == "128x16" and form != "fused" else None
    schedule = WinogradSchedule(
        outputs=(tile, tile),
        form="split" if form == "split" else "fused",
        staged_input=staged,
        staged_output=staged,
    )
    return {"conv2d.winograd": schedule}


def target_of(form: str, registers: str) -> CpuTarget:
    """A target on which blocks are as small as a way's form says."""
    l2_bytes = 64 * 1024 if form == "small blocks" else 1024 * 1024
    return target_with(registers, threads=2, l2_bytes=l2_bytes)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Way], Compiled]:
    """The models of a way, compiled when first asked for."""

    @cache
    def compiled(way: Way) -> Compiled:
        models = {name: MODELS[name] for on, name in CASES if on == way}
        folder = tmp_path_factory.mktemp("winograd")
        return Compiled(models, folder, target_of(*way[1:]), given=dict.fromkeys(models, given(*way)))

    return compiled


@pytest.mark.parametrize(
    ("way", "name"),
    [
        pytest.param(
            way, name, marks=[pytest.mark.slow] * (way in SLOW), id=f"{' '.join(map(str, way))}-{name}"
        )
        for way, name in CASES
    ],
)
def test_convolution_is_within_the_stated_error(
    library: Callable[[Way], Compiled], way: Way, name: str
) -> None:
    tile, compiled = way[0], library(way)
    assert f"conv2d.winograd{tile}" in {kernel.rule for kernel in compiled.plan(name).kernels}
    inputs = random_inputs(MODELS[name], 9)
    expected = run_in_float64(MODELS[name], inputs)[0]
    got = compiled.run(name, inputs, seed=3)["y"]
    assert np.abs(got - expected).max() <= ERROR[tile] * np.abs(expected).max()


#: (m, model) of 4x4 and, over phases, of stride 2: 7x7 and 8x8 are 4x4 there, 5x5 and 6x6 are 3x3.
STRIDED: dict[str, tuple[int, onnx.ModelProto]] = {
    "stride 1": (3, conv((1, 16, 13, 12), 24, (4, 4), pads=(1, 2, 2, 1), activation=silu)),
    "first": (3, conv((1, 3, 30, 30), 24, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2))),
    "odd": (3, conv((1, 3, 29, 23), 33, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2), activation=silu)),
    "valid": (3, conv((1, 5, 21, 26), 16, (7, 7), strides=(2, 2))),
    "asymmetric": (3, conv((1, 4, 20, 19), 8, (7, 7), pads=(0, 3, 2, 1), strides=(2, 2))),
    "even taps": (3, conv((1, 2, 24, 18), 17, (8, 8), pads=(3, 3, 4, 4), strides=(2, 2))),
    "residual": (3, conv((2, 3, 17, 17), 20, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2), residual=True)),
    "one tile": (3, conv((1, 1, 8, 9), 1, (7, 7), pads=(1, 1, 0, 0), strides=(2, 2))),
    "many channels": (3, conv((1, 20, 15, 15), 40, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2))),
    "five": (4, conv((2, 3, 25, 26), 24, (5, 5), pads=(2, 2, 2, 2), strides=(2, 2), activation=gelu)),
    "five, small": (2, conv((1, 7, 13, 12), 18, (5, 5), pads=(1, 2, 2, 1), strides=(2, 2))),
    "six": (4, conv((1, 3, 22, 14), 9, (6, 6), pads=(2, 2, 2, 2), strides=(2, 2))),
}


@pytest.mark.parametrize(
    ("tile", "form", "registers"),
    [
        (2, "small blocks", "512x32"),
        (3, "split", "128x16"),
        (3, "fused", "512x32"),
        (4, "split", "128x16"),
        pytest.param(2, "split", "128x16", marks=pytest.mark.slow),
        pytest.param(3, "small blocks", "512x32", marks=pytest.mark.slow),
        pytest.param(4, "fused", "512x32", marks=pytest.mark.slow),
    ],
)
def test_a_stride_of_two_over_phases(tile: int, form: str, registers: str, tmp_path: Path) -> None:
    models = {name: model for name, (m, model) in STRIDED.items() if m == tile}
    schedules = dict.fromkeys(models, given(tile, form, registers))
    compiled = Compiled(models, tmp_path, target_of(form, registers), given=schedules)
    for name, model in models.items():
        assert f"conv2d.winograd{tile}" in {kernel.rule for kernel in compiled.plan(name).kernels}
        inputs = random_inputs(model, 9)
        expected = run_in_float64(model, inputs)[0]
        got = compiled.run(name, inputs, seed=3)["y"]
        assert np.abs(got - expected).max() <= ERROR[tile] * np.abs(expected).max(), name


def test_a_large_first_convolution_is_filtered_a_small_one_is_not() -> None:
    first = conv((1, 3, 224, 224), 64, (7, 7), pads=(3, 3, 3, 3), strides=(2, 2))
    assert "conv2d.winograd3" in _rules(first, host_target())
    assert "conv2d.winograd3" not in _rules(first, replace(host_target(), strict_math=True))
    small = conv((1, 3, 224, 224), 32, (3, 3), pads=(1, 1, 1, 1), strides=(2, 2))
    assert not any("winograd" in rule for rule in _rules(small, host_target()))


#: Tiles are cut in the last row, the last column, both, or all of them.
CUT: dict[str, onnx.ModelProto] = {
    "rows": conv((1, 16, 13, 12), 40, (3, 3), pads=PADS),
    "columns": conv((1, 24, 12, 15), 33, (3, 3), pads=PADS, activation=silu),
    "both": conv((1, 40, 7, 7), 70, (3, 3), pads=PADS, residual=True),
    "all": conv((1, 16, 9, 1), 24, (3, 3), pads=PADS),
    "batch": conv((2, 16, 7, 5), 24, (3, 3), pads=PADS),
}


@pytest.mark.parametrize("tile", [2, 4])
def test_what_only_cut_tiles_would_need_is_not_multiplied(tile: int, tmp_path: Path) -> None:
    """One thread multiplies all tiles, apart by position; what is left out is poison, not zero."""
    schedules = dict.fromkeys(CUT, given(tile, "split"))
    compiled = Compiled(CUT, tmp_path, target_with("512x32", threads=1), given=schedules)
    for name, model in CUT.items():
        inputs = random_inputs(model, 9)
        expected = run_in_float64(model, inputs)[0]
        got = compiled.run(name, inputs, seed=3)["y"]
        assert np.abs(got - expected).max() <= ERROR[tile] * np.abs(expected).max(), name


def _rules(model: onnx.ModelProto, target: CpuTarget) -> set[str]:
    return {kernel.rule for kernel in plan_of(model, target=target).plan.kernels}


def test_size_and_strict_math_keep_the_weights_as_they_are() -> None:
    model = conv((1, 64, 28, 28), 64, (3, 3), pads=PADS)
    target = host_target()
    assert any("winograd" in rule for rule in _rules(model, target))
    assert not any("winograd" in rule for rule in _rules(model, replace(target, optimize="size")))
    assert not any("winograd" in rule for rule in _rules(model, replace(target, strict_math=True)))


def test_balanced_lets_only_small_weights_grow() -> None:
    target = replace(host_target(), optimize="balanced")
    assert any("winograd" in rule for rule in _rules(conv((1, 32, 28, 28), 32, (3, 3), pads=PADS), target))
    assert not any(
        "winograd" in rule for rule in _rules(conv((1, 512, 14, 14), 512, (3, 3), pads=PADS), target)
    )


def test_few_channels_are_convolved_directly() -> None:
    """The transforms cost more than they save."""
    assert not any(
        "winograd" in rule for rule in _rules(conv((1, 3, 32, 32), 4, (3, 3), pads=PADS), host_target())
    )


def test_strict_math_calls_libm(tmp_path: Path) -> None:
    model = conv((1, 8, 6, 6), 16, (1, 1), activation=silu)
    target = replace(host_target(), strict_math=True)
    built = plan_of(model, target=target)
    assert any("expf" in function.script() for function in built.functions.values())
    assert not any("expf" in function.script() for function in plan_of(model).functions.values())
    inputs = random_inputs(model, 1)
    (got,) = Executor({"m": built}, tmp_path, target).run("m", [inputs["x"]])
    expected = run_in_float64(model, inputs)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_panels_are_shared_evenly_where_that_costs_little() -> None:
    assert split_into_panels(196, 6, 1) == [(6, 31), (5, 2)]
    assert split_into_panels(196, 6, 2) == [(6, 26), (5, 8)]
    assert split_into_panels(13, 6, 2) == [(5, 1), (4, 2)]
    assert split_into_panels(4, 6, 8) == [(4, 1)]


def test_few_column_blocks_are_shared_by_all_threads() -> None:
    """A product of one block of output channels would be one task."""
    model = conv((1, 256, 14, 14), 32, (3, 3), pads=PADS)
    plan = plan_of(model, target=replace(host_target(), threads=2), given=given(4, "split")).plan
    kernels = {kernel.symbol for kernel in plan.kernels if "winograd" in kernel.rule}
    assert all(step.tasks >= 2 for step in plan.steps if step.kernel in kernels)


def test_cost_model_prefers_larger_tiles_while_weights_are_small() -> None:
    from edgepack.compiler.kernels.cpu.conv.geometry import Conv2d

    target = host_target()
    image = Conv2d(1, 56, 56, 64, 56, 56, 64, (3, 3), (1, 1), (1, 1), 1, 1, 1, 1, 1)
    deep = Conv2d(1, 7, 7, 512, 7, 7, 512, (3, 3), (1, 1), (1, 1), 1, 1, 1, 1, 1)
    assert cost.winograd_2d_tile(image, target) == 4
    assert cost.winograd_2d_tile(deep, target) == 2


@pytest.mark.parametrize(("size", "parts"), [(13, 1), (28, 2)])
def test_weights_are_read_once_where_tiles_are_few(size: int, parts: int) -> None:
    """Of 5 blocks of columns one of two threads does 3: less time than to read 7 MB twice for 16 tiles."""
    model = conv((1, 160, size, size), 320, (3, 3), pads=PADS)
    schedule = WinogradSchedule(outputs=(4, 4), register_tile=(6, 64), form="split")
    target = target_with("512x32", threads=2)
    (kernel,) = [
        kernel
        for kernel in plan_of(model, target=target, given={"conv2d.winograd": schedule}).plan.kernels
        if "parts" in kernel.parameters
    ][-1:]
    assert kernel.parameters["parts"] == str(parts)

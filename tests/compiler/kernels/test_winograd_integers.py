"""Winograd convolutions of integers are exact, at the ends of all ranges; without a proof there are none."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.graph.filtered_integers import IntegerBounds, bounds_of
from edgepack.compiler.kernels.cpu.conv import winograd_integers
from edgepack.compiler.kernels.cpu.conv.winograd_integers import exact_tiles
from edgepack.compiler.kernels.cpu.conv.winograd_schedule import WinogradSchedule
from edgepack.compiler.kernels.schedule import Given
from edgepack.plan.target import CpuTarget
from workbench.compiled import Compiled, plan_of, target_with
from workbench.models.builder import Graph

#: By name: input's shape, output channels, padding; types and zero points of input, weights and output.
CASES: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], tuple[tuple[str, int], ...]]] = {
    "same": ((1, 16, 12, 12), 24, (1, 1, 1, 1), (("uint8", 0), ("int8", 0), ("uint8", 0))),
    "odd": ((1, 13, 11, 7), 33, (1, 1, 1, 1), (("uint8", 131), ("int8", 0), ("uint8", 117))),
    "valid": ((1, 8, 10, 13), 16, (0, 0, 0, 0), (("uint8", 255), ("int8", 0), ("uint8", 90))),
    "asymmetric": ((1, 8, 9, 9), 17, (0, 1, 2, 0), (("int8", -128), ("int8", 0), ("int8", 127))),
    "batch": ((3, 12, 9, 6), 20, (1, 1, 1, 1), (("int8", 127), ("int8", 0), ("int8", -128))),
    "one tile": ((1, 24, 2, 2), 8, (1, 1, 1, 1), (("uint8", 1), ("uint8", 122), ("uint8", 3))),
    "many tiles": ((1, 8, 50, 47), 18, (1, 1, 1, 1), (("uint8", 254), ("uint8", 128), ("uint8", 128))),
    "deep": ((1, 112, 7, 9), 12, (1, 1, 1, 1), (("uint8", 7), ("int8", 0), ("uint8", 128))),
    "two channels": ((1, 2, 9, 9), 1, (1, 1, 1, 1), (("int8", 0), ("int8", 0), ("int8", 0))),
    # Weights of 7 bits, by which x86 multiplies bytes, as they lie.
    "bytes": ((1, 12, 11, 10), 18, (1, 1, 1, 1), (("uint8", 0), ("int7", 0), ("uint8", 0))),
    "bytes, zero point": ((2, 24, 9, 7), 9, (1, 0, 1, 2), (("uint8", 255), ("int7", 0), ("uint8", 90))),
    "bytes, three channels": ((1, 3, 9, 9), 8, (1, 1, 1, 1), (("int8", 3), ("int7", 0), ("int8", 9))),
}

#: Tile, form, register file and level of x86.
Way = tuple[int, str, str, str]

WAYS: tuple[Way, ...] = (
    (4, "split", "128x16", "x86-64-v2"),
    (2, "fused", "128x16", "x86-64"),
    (4, "fused", "256x16", "x86-64-v3"),
    (2, "split", "256x16", "x86-64-v3"),
    (4, "staged", "256x16", "x86-64-v3"),
    (4, "small blocks", "512x32", "x86-64-v4"),
)
#: A tile and a form that others of these have; small blocks, which test_winograd.py has of floats.
SLOW: tuple[Way, ...] = ((2, "split", "256x16", "x86-64-v3"), (4, "small blocks", "512x32", "x86-64-v4"))

#: What is tried in every way; all cases in the first one.
SENTINELS = ("odd", "asymmetric", "many tiles", "bytes, zero point")
TRIED = [(way, name) for way in WAYS for name in (CASES if way == WAYS[0] else SENTINELS)]


def convolution(name: str) -> onnx.ModelProto:
    """QLinearConv, whose weights are a third of the least, a third of the largest, and others."""
    shape, out, pads, ((x, zx), (w, zw), (y, zy)) = CASES[name]
    g, sizes = Graph("convolution"), (out, shape[1], 3, 3)
    low, high, w = (-64, 63, "int8") if w == "int7" else (np.iinfo(w).min, np.iinfo(w).max, w)
    ends = g.rng.choice(np.array([low, high]), sizes)
    weights = np.where(g.rng.random(sizes) < 0.67, ends, g.rng.integers(low, high + 1, sizes))
    weights[0] = high  # the largest sums that there are
    scales = g.rng.uniform(0.001, 0.002, out).astype(np.float32) if zw == 0 else np.float32(0.0015)
    inputs = [
        *(g.input("x", shape, x), g.const(np.float32(0.05)), g.const(np.array(zx, x))),
        *(g.const(weights.astype(w)), g.const(scales), g.const(np.full(np.shape(scales), zw, w))),
        *(g.const(np.float32(0.08 * (9 * shape[1]) ** 0.5)), g.const(np.array(zy, y))),
        g.const(g.rng.integers(-9000, 9000, out).astype(np.int32)),
    ]
    g.output(g.op("QLinearConv", *inputs, name="y", pads=list(pads)), y)
    return g.model()


def residual() -> onnx.ModelProto:
    """QDQ: two convolutions, the second with a residual and Relu, both of an odd number of channels."""
    g = Graph("residual")
    scale, zero = g.const(np.float32(0.04)), g.const(np.uint8(11))

    def rounded(value: str) -> str:
        return g.op("DequantizeLinear", g.op("QuantizeLinear", value, scale, zero), scale, zero)

    def convolved(value: str) -> str:
        weights = g.const(g.rng.integers(-127, 128, (15, 15, 3, 3)).astype(np.int8))
        scales, zeros = g.rng.uniform(0.001, 0.002, 15).astype(np.float32), np.zeros(15, np.int8)
        filtered = g.op("DequantizeLinear", weights, g.const(scales), g.const(zeros), axis=0)
        return g.op("Conv", value, filtered, pads=[1] * 4)

    x = rounded(g.input("x", (1, 15, 10, 9)))
    first = rounded(g.op("Relu", convolved(x)))
    g.output(rounded(g.op("Relu", g.op("Add", convolved(first), x))))
    return g.model()


def behind_another() -> onnx.ModelProto:
    """A 3x3 convolution of bytes as they lie, behind a pointwise one: its padding is a zero point that no
    operator writes. All scales are powers of two, so that sums of floats are exact."""
    g = Graph("behind")

    def rounded(value: str, zero: int, scale: float) -> str:
        steps = g.const(np.float32(scale)), g.const(np.uint8(zero))
        return g.op("DequantizeLinear", g.op("QuantizeLinear", value, *steps), *steps)

    def convolved(value: str, channels: int, window: int) -> str:
        weights = g.const(g.rng.integers(-64, 64, (channels, 16, window, window)).astype(np.int8))
        filtered = g.op("DequantizeLinear", weights, g.const(np.float32(2**-8)), g.const(np.int8(0)))
        return g.op("Conv", value, filtered, pads=[window // 2] * 4)

    x = rounded(convolved(rounded(g.input("x", (2, 16, 11, 66)), 128, 2**-4), 16, 1), 201, 2**-4)
    g.output(rounded(convolved(x, 18, 3), 90, 2**-2))
    return g.model()


def given(tile: int, form: str) -> Given:
    staged = form == "staged"
    schedule = WinogradSchedule(
        outputs=(tile, tile),
        form="split" if form == "split" else "fused",
        staged_input=staged,
        staged_output=staged,
    )
    return {"conv2d.winograd": schedule}


def target_of(form: str, registers: str, level: str) -> CpuTarget:
    l2_bytes = 64 * 1024 if form == "small blocks" else 1024 * 1024
    return replace(target_with(registers, threads=2, l2_bytes=l2_bytes), cpu=level)


def defined(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What a model of one QLinearConv gives, by the operator's definition."""
    (node,) = model.graph.node
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias = (constants[n] for n in node.input[1:])
    attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    top, left, bottom, right = attributes["pads"]
    centred = np.pad(x.astype(np.int64) - x_zero, [(0, 0), (0, 0), (top, bottom), (left, right)])
    weights = w.astype(np.int64) - w_zero.reshape(-1, 1, 1, 1)
    windows = np.lib.stride_tricks.sliding_window_view(centred, (3, 3), axis=(2, 3))
    sums = np.einsum("ncyxij,ocij->noyx", windows, weights) + bias.reshape(1, -1, 1, 1)
    factor = ((x_scale * w_scale).astype(np.float32) / y_scale).astype(np.float32).reshape(1, -1, 1, 1)
    info = np.iinfo(y_zero.dtype)
    rounded = np.rint(sums.astype(np.float32) * factor).astype(np.int64) + y_zero
    return np.clip(rounded, info.min, info.max).astype(y_zero.dtype)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Way], Compiled]:
    @cache
    def compiled(way: Way) -> Compiled:
        models = {name: convolution(name) for on, name in TRIED if on == way}
        folder = tmp_path_factory.mktemp("winograd")
        schedules = dict.fromkeys(models, given(*way[:2]))
        return Compiled(models, folder, target_of(*way[1:]), given=schedules)

    return compiled


@pytest.mark.parametrize(
    ("way", "name"),
    [
        pytest.param(
            way, name, marks=[pytest.mark.slow] * (way in SLOW), id=f"{' '.join(map(str, way))}-{name}"
        )
        for way, name in TRIED
    ],
)
def test_convolutions_are_exact(library: Callable[[Way], Compiled], way: Way, name: str) -> None:
    compiled, rng, (x, _) = library(way), np.random.default_rng(5), CASES[name][3][0]
    assert f"conv2d.winograd{way[0]}" in {kernel.rule for kernel in compiled.plan(name).kernels}
    info, shape = np.iinfo(x), CASES[name][0]
    ends = rng.choice(np.array([info.min, info.max], x), shape)
    drawn = rng.integers(info.min, info.max + 1, shape).astype(x)
    for image in (ends, drawn, np.full(shape, info.max, x), np.full(shape, info.min, x)):
        expected = defined(compiled.models[name], image)
        np.testing.assert_array_equal(compiled.run(name, {"x": image}, seed=3)["y"], expected)


def test_residuals_and_odd_channels(tmp_path: Any) -> None:
    """Between quantised tensors (QDQ), with what stands behind a convolution."""
    model = residual()
    compiled = Compiled({"m": model}, tmp_path, target_of(*WAYS[2][1:]), given={"m": given(4, "fused")})
    assert [k.rule for k in compiled.plan("m").kernels].count("conv2d.winograd4") == 2
    compiled.check("m")


@pytest.mark.parametrize(
    "way", [pytest.param(WAYS[2], marks=pytest.mark.slow), *WAYS[3:5]], ids=lambda way: f"{way[0]} {way[1]}"
)
def test_what_is_read_beside_the_image_is_the_zero_point(way: Way, tmp_path: Path) -> None:
    compiled = Compiled({"m": behind_another()}, tmp_path, target_of(*way[1:]), given={"m": given(*way[:2])})
    kernels = compiled.plan("m").kernels
    assert f"conv2d.winograd{way[0]}" in {k.rule for k in kernels}
    assert not [k for k in kernels if "pad" in k.ops]
    x = np.random.default_rng(9).uniform(-8, 8, (2, 16, 11, 66)).astype(np.float32)
    (expected,), (found,) = compiled.expected("m", {"x": x}).values(), compiled.run("m", {"x": x}).values()
    np.testing.assert_array_equal(found, expected)


def test_tiles_are_exact_up_to_their_bounds() -> None:
    image, weights = (-255, 255), (-128, 127)
    for m, most in ((4, 2**25), (2, 2**29)):
        assert m in exact_tiles(IntegerBounds(image, weights, (-most, most - 1)))
        assert m not in exact_tiles(IntegerBounds(image, weights, (0, most)))
        assert m not in exact_tiles(IntegerBounds(image, weights, (-most - 1, 0)))
    few = (-1000, 1000)
    assert exact_tiles(IntegerBounds((-328, 328), (-1, 1), few)) == (2,)  # 100 * 328 exceeds 16 bits
    assert exact_tiles(IntegerBounds((-327, 327), (-1, 1), few)) == (2, 4)
    assert exact_tiles(IntegerBounds((0, 1), (-255, 255), few)) == (2,)  # and 144 * 255
    assert exact_tiles(IntegerBounds((-(2**15), 2**15 - 1), (-1, 1), few)) == ()


@pytest.mark.parametrize("m", [2, 4])
def test_the_matrices_filter(m: int) -> None:
    """A^T [(G g G^T) * (B^T d B)] A of Python's integers, for which nothing wraps around."""
    rng = np.random.default_rng(m)
    d, g = rng.integers(-255, 256, (m + 2, m + 2)), rng.integers(-128, 128, (3, 3))
    u = winograd_integers.G[m] @ g @ winograd_integers.G[m].T
    v = winograd_integers.B[m] @ d @ winograd_integers.B[m].T
    back = {2: [[1, 1, 1, 0], [0, 1, -1, -1]]}
    back[4] = [[1, 1, 1, 1, 1, 0], [0, 1, -1, 2, -2, 0], [0, 1, 1, 4, 4, 0], [0, 1, -1, 8, -8, 2]]
    times = winograd_integers.ODD[m] * 2 ** winograd_integers.SHIFT[m]
    windows = np.lib.stride_tricks.sliding_window_view(d, (3, 3))
    filtered = np.array(back[m]) @ (u * v) @ np.array(back[m]).T
    np.testing.assert_array_equal(filtered, times * np.einsum("yxij,ij->yx", windows, g))


def test_bounds_of_sums_are_those_of_the_largest_column() -> None:
    weights = np.zeros((3, 3, 2, 2), np.int8)
    weights[0, 0, :, 1], weights[1, 1, 0, 0] = (-128, 127), 3
    assert bounds_of((-5, 250), weights) == IntegerBounds((-5, 250), (-128, 127), (-32635, 32390))


def _quantised(dtype: str, channels: int, weights: np.ndarray) -> onnx.ModelProto:
    """A convolution of an input that is quantised as ``dtype``."""
    g = Graph("quantised", opset=21, ir_version=10)
    scale, zero = g.const(np.float32(0.01)), g.const(np.array(0, dtype))
    x = g.op("QuantizeLinear", g.input("x", (1, channels, 14, 14)), scale, zero)
    w = g.op("DequantizeLinear", g.const(weights), scale, g.const(np.int8(0)))
    y = g.op("Conv", g.op("DequantizeLinear", x, scale, zero), w, pads=[1] * 4)
    g.output(g.op("QuantizeLinear", y, g.const(np.float32(90)), g.const(np.uint8(0)), name="y"), "uint8")
    return g.model()


def test_sums_that_might_be_too_large_are_of_smaller_tiles_or_direct() -> None:
    rng = np.random.default_rng(4)
    largest = np.full((32, 512, 3, 3), 127, np.int8)
    usual = np.clip(np.rint(rng.normal(0, 30, largest.shape)), -127, 127).astype(np.int8)
    few = rng.integers(-9, 10, (32, 64, 3, 3)).astype(np.int8)
    found = []
    for model in (
        _quantised("uint8", 512, largest),
        _quantised("uint8", 512, usual),
        _quantised("int16", 64, few),
    ):
        kernels = plan_of(model, target=target_of(*WAYS[2][1:])).plan.kernels
        found += [(k.rule, k.parameters.get("operands")) for k in kernels if k.rule.startswith("conv2d")]
    pairs = "pairs of int16"
    assert found == [("conv2d.winograd2", pairs), ("conv2d.winograd4", pairs), ("conv2d.igemm", pairs)]


def test_it_rounds_nothing_and_takes_memory() -> None:
    """So strict math has it, and a small bundle has not."""
    weights = np.random.default_rng(6).integers(-99, 100, (64, 64, 3, 3)).astype(np.int8)
    found = {}
    for options in ({"strict_math": True}, {"optimize": "balanced"}, {"optimize": "size"}):
        target = replace(target_of(*WAYS[2][1:]), **options)
        kernels = plan_of(_quantised("uint8", 64, weights), target=target).plan.kernels
        found[str(options)] = [k.rule for k in kernels if k.rule.startswith("conv2d")]
    rules = [["conv2d.winograd4"], ["conv2d.winograd4"], ["conv2d.igemm"]]
    assert list(found.values()) == rules

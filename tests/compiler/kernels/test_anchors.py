"""Convolutions, poolings and matrix products of odd shapes, for every shape of register file."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from workbench.compiled import SWEPT, Library, assert_close, on_register_files, target_with
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs
from workbench.models.single import Body, conv, gelu, pool, silu, transposed


def _relu(g: Graph, x: str) -> str:
    return g.op("Relu", x)


def _hardswish_tanh(g: Graph, x: str) -> str:
    return g.op("Tanh", g.op("HardSwish", x))


def _tanh_gelu(g: Graph, x: str) -> str:
    """GELU as exporters write it out: x is read four times, and to the power of three."""
    cube = g.op("Mul", g.op("Pow", x, g.const(3.0)), g.const(0.044715))
    tanh = g.op("Tanh", g.op("Mul", g.op("Add", x, cube), g.const(0.7978845608)))
    return g.op("Mul", g.op("Mul", x, g.const(0.5)), g.op("Add", tanh, g.const(1.0)))


def _powers(g: Graph, x: str) -> str:
    """To constants, whole and not, and to a vector of exponents."""
    base = g.op("Add", g.op("Abs", x), g.const(0.1))
    by_channel = g.op("Pow", base, g.uniform(*_spread(33), low=-2, high=2))
    return g.op("Add", g.op("Pow", x, g.const(5.0)), g.op("Mul", by_channel, g.op("Pow", base, g.const(1.7))))


def _spread(channels: int) -> tuple[int, int, int]:
    return channels, 1, 1


def _conditions(g: Graph, x: str) -> str:
    """Comparisons, their negations, what they choose, and themselves as numbers."""
    high = g.op("Not", g.op("Less", x, g.const(0.5)))
    inside = g.op("And", g.op("Greater", x, g.const(-0.5)), g.op("Not", high))
    chosen = g.op("Where", inside, g.op("Mul", x, g.const(3.0)), g.op("Floor", x))
    counted = g.op("Add", chosen, g.op("Cast", high, to=onnx.TensorProto.FLOAT))
    return g.op("Where", g.op("IsNaN", x), g.const(7.0), counted)


def _mish(g: Graph, x: str) -> str:
    return g.op("Mul", x, g.op("Tanh", g.op("Softplus", x)))


def beside(shape: tuple[int, int, int, int], operator: str, **attributes: object) -> onnx.ModelProto:
    """An operator that keeps the shape, and its input normalised beside it, summed: MobileOne, NFNet."""
    g = Graph("beside", seed=3)
    x = g.op("Relu", g.input("x", shape))
    weights = [g.weight(shape[1], shape[1], 3, 3)] if operator == "Conv" else []
    scale, mean = (g.uniform(*_spread(shape[1]), low=0.5, high=2) for _ in range(2))
    scaled = g.op("Sigmoid", g.op("Mul", g.op("Sub", x, mean), scale))
    y = g.op(operator, x, *weights, pads=(1, 1, 1, 1), **attributes)
    g.op("Relu", g.op("Add", g.op("Mul", y, g.const(0.2)), scaled), name="y")
    g.output("y")
    return g.model()


def dense(rows: tuple[int, ...], depth: int, columns: int, activation: Body | None = None) -> onnx.ModelProto:
    g = Graph("dense", seed=3)
    x = g.input("x", (*rows, depth))
    y = g.op("Add", g.op("MatMul", x, g.weight(depth, columns, std=depth**-0.5)), g.weight(columns, std=1.0))
    y = activation(g, y) if activation else y
    g.op("Identity", y, name="y")
    g.output("y")
    return g.model()


def computed(shape: tuple[int, ...], out: int, kernel: tuple[int, ...], group: int = 1) -> onnx.ModelProto:
    """A convolution whose weights are an input of the model."""
    g = Graph("computed", seed=3)
    w = g.input("w", (out, shape[1] // group, *kernel))
    y = g.op("Conv", g.input("x", shape), w, pads=[1] * 2 * len(kernel), group=group)
    g.op("Relu", y, name="y")
    g.output("y")
    return g.model()


def of_type(dtype: str, *, constant: bool) -> onnx.ModelProto:
    """A product of another element type."""
    g = Graph("of_type", seed=3)
    values = (8 * g.rng.standard_normal((37, 61))).astype(dtype)
    right = g.const(values) if constant else g.input("b", values.shape, dtype)
    g.op("Add", g.op("MatMul", g.input("a", (23, 37), dtype), right), g.const(np.array(3, dtype)), name="y")
    g.output("y", dtype)
    return g.model()


def batched(left: tuple[int, ...], right: tuple[int, ...]) -> onnx.ModelProto:
    g = Graph("batched", seed=3)
    product = g.op("MatMul", g.input("a", left), g.input("b", right))
    g.op("Mul", product, g.const(0.125), name="y")
    g.output("y")
    return g.model()


MODELS: dict[str, tuple[str, onnx.ModelProto]] = {
    "1x1": ("conv2d.igemm", conv((1, 24, 7, 9), 40, (1, 1), activation=_relu)),
    "1x1 stride 2": ("conv2d.igemm", conv((1, 16, 9, 7), 20, (1, 1), strides=(2, 2))),
    "1x1 padded": ("conv2d.igemm", conv((1, 8, 5, 5), 12, (1, 1), pads=(1, 0, 2, 1))),
    "3x3 same": ("conv2d.igemm", conv((1, 13, 11, 10), 33, (3, 3), pads=(1, 1, 1, 1), activation=silu)),
    "3x3 stride 2": ("conv2d.igemm", conv((1, 12, 15, 19), 48, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    "3x3 residual": ("conv2d.igemm", conv((1, 16, 8, 8), 17, (3, 3), pads=(1, 1, 1, 1), residual=True)),
    "7x7 on RGB": ("conv2d.igemm", conv((1, 3, 21, 17), 24, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3))),
    "5x3 asymmetric": ("conv2d.igemm", conv((1, 5, 9, 12), 7, (5, 3), strides=(1, 2), pads=(0, 2, 3, 1))),
    "padding beyond the kernel": ("conv2d.igemm", conv((1, 4, 3, 3), 6, (2, 2), pads=(3, 3, 3, 3))),
    "dilated": ("conv2d.igemm", conv((1, 6, 14, 13), 18, (3, 3), dilations=(2, 3), pads=(2, 3, 2, 3))),
    "grouped": (
        "conv2d.igemm",
        conv((1, 24, 9, 8), 40, (3, 3), group=4, pads=(1, 1, 1, 1), activation=gelu),
    ),
    "grouped 1x1": ("conv2d.igemm", conv((1, 30, 5, 6), 60, (1, 1), group=3)),
    "powers behind": ("conv2d.igemm", conv((1, 13, 6, 5), 33, (1, 1), activation=_powers)),
    "conditions behind": (
        "conv2d.igemm",
        conv((1, 12, 7, 5), 19, (3, 3), strides=(2, 2), activation=_conditions),
    ),
    "Mish behind": (
        "conv2d.depthwise",
        conv((1, 35, 9, 11), 35, (3, 3), group=35, pads=(1, 1, 1, 1), activation=_mish),
    ),
    "its input beside": ("conv2d.igemm", beside((1, 19, 7, 6), "Conv")),
    "its input beside a pool": (
        "pool2d.average",
        beside((1, 21, 9, 8), "AveragePool", kernel_shape=(3, 3), count_include_pad=1),
    ),
    "tanh-GELU behind a product": ("matmul.packed", dense((23,), 37, 61, _tanh_gelu)),
    "batch of 3": ("conv2d.igemm", conv((3, 10, 6, 7), 21, (3, 3), pads=(1, 1, 1, 1), activation=_relu)),
    "one output channel": ("conv2d.igemm", conv((1, 19, 6, 6), 1, (3, 3), pads=(1, 1, 1, 1))),
    "one pixel": ("conv2d.igemm", conv((1, 33, 1, 1), 70, (1, 1), activation=_hardswish_tanh)),
    "depth multiplier": ("conv2d.grouped", conv((1, 6, 8, 8), 12, (3, 3), group=6, pads=(1, 1, 1, 1))),
    "groups of 4": (
        "conv2d.grouped",
        conv((1, 28, 9, 11), 28, (3, 3), group=7, pads=(1, 1, 1, 1), activation=silu, residual=True),
    ),
    "groups of 4 with stride": (
        "conv2d.grouped",
        conv((2, 44, 12, 31), 44, (3, 5), group=11, strides=(2, 2), pads=(0, 2, 1, 1), activation=_relu),
    ),
    "groups of 2 to 4": ("conv2d.grouped", conv((1, 18, 19, 5), 36, (2, 3), group=9, pads=(1, 0, 1, 2))),
    "mostly padding": ("conv2d.igemm", conv((2, 6, 9, 8), 18, (3, 3), dilations=(6, 5), pads=(6, 5, 6, 5))),
    "taps that read padding only": (
        "conv2d.igemm",
        conv((1, 6, 7, 9), 18, (3, 3), dilations=(8, 4), pads=(8, 4, 8, 4)),
    ),
    "groups of 2, dilated": (
        "conv2d.grouped",
        conv((1, 34, 13, 14), 34, (3, 3), group=17, dilations=(2, 3), pads=(2, 3, 2, 3)),
    ),
    "groups of 2, wider than the image": (
        "conv2d.grouped",
        conv((1, 6, 2, 3), 6, (7, 7), group=3, pads=(3, 3, 3, 3)),
    ),
    "groups of 2, 1x1": ("conv2d.grouped", conv((3, 20, 3, 5), 20, (1, 1), group=10)),
    # Of 8 lanes or more, or one group of several vectors.
    "groups of 8": (
        "conv2d.",
        conv((1, 40, 10, 17), 40, (3, 3), group=5, pads=(1, 1, 1, 1), activation=gelu),
    ),
    "groups of 8 with stride": (
        "conv2d.",
        conv((1, 24, 9, 14), 24, (3, 3), group=3, strides=(2, 2), pads=(1, 1, 1, 1)),
    ),
    "groups of 16": ("conv2d.", conv((2, 48, 7, 7), 48, (3, 3), group=3, pads=(1, 1, 1, 1))),
    "depthwise": (
        "conv2d.depthwise",
        conv((1, 35, 9, 11), 35, (3, 3), group=35, pads=(1, 1, 1, 1), activation=_relu),
    ),
    "depthwise stride 2": (
        "conv2d.depthwise",
        conv((1, 24, 12, 15), 24, (5, 5), group=24, strides=(2, 2), pads=(2, 2, 2, 2)),
    ),
    "depthwise dilated": (
        "conv2d.depthwise",
        conv((2, 18, 13, 12), 18, (3, 3), group=18, dilations=(3, 2), pads=(3, 2, 3, 2)),
    ),
    "depthwise asymmetric": (
        "conv2d.depthwise",
        conv((1, 20, 12, 12), 20, (3, 3), group=20, strides=(2, 2), pads=(0, 0, 1, 1)),
    ),
    "depthwise wider than the image": (
        "conv2d.depthwise",
        conv((1, 17, 2, 3), 17, (7, 7), group=17, pads=(3, 3, 3, 3)),
    ),
    "max pool": (
        "pool2d.max",
        pool("MaxPool", (1, 19, 11, 12), kernel_shape=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
    ),
    "max pool ceil": (
        "pool2d.max",
        pool("MaxPool", (1, 8, 10, 9), kernel_shape=(3, 2), strides=(2, 2), ceil_mode=1),
    ),
    "average pool": (
        "pool2d.average",
        pool("AveragePool", (2, 21, 9, 8), kernel_shape=(3, 3), strides=(1, 2), pads=(1, 1, 1, 1)),
    ),
    "average pool with padding": (
        "pool2d.average",
        pool("AveragePool", (1, 16, 9, 8), kernel_shape=(2, 3), pads=(1, 1, 0, 1), count_include_pad=1),
    ),
    "signal": (
        "conv2d.igemm",
        conv((1, 24, 50), 40, (3,), dilations=(4,), pads=(8, 0), activation=_relu),
    ),
    "signal residual": ("conv2d.igemm", conv((2, 9, 31), 20, (5,), strides=(2,), pads=(2, 1), residual=True)),
    "signal of one channel": ("conv2d.igemm", conv((1, 1, 90), 24, (10,), strides=(5,))),
    "signal in groups": ("conv2d.igemm", conv((1, 36, 30), 36, (9,), group=3, pads=(4, 4), activation=gelu)),
    "signal in groups of 4": ("conv2d.grouped", conv((1, 28, 33), 28, (3,), group=7, pads=(1, 1))),
    "signal, depthwise": (
        "conv2d.depthwise",
        conv((1, 24, 90), 24, (7,), group=24, pads=(6, 0), activation=silu),
    ),
    "signal, max pool": ("pool2d.max", pool("MaxPool", (1, 19, 33), kernel_shape=[10], strides=[2])),
    "signal, average pool": (
        "pool2d.average",
        pool("AveragePool", (2, 19, 33), kernel_shape=[3], strides=[2], pads=[1, 1]),
    ),
    "volume": (
        "conv2d.igemm",
        conv(
            (2, 12, 7, 9, 8), 20, (3, 2, 3), strides=(2, 1, 2), dilations=(1, 2, 1), pads=(1, 0, 2, 0, 1, 1)
        ),
    ),
    "volume residual": ("conv2d.igemm", conv((1, 9, 4, 5, 6), 17, (3, 3, 3), pads=(1,) * 6, residual=True)),
    "volume, planes": (
        "conv2d.igemm",
        conv((2, 12, 5, 7, 6), 20, (1, 3, 3), pads=(0, 1, 1, 0, 1, 1), residual=True, activation=_relu),
    ),
    "volume, depth alone": (
        "conv2d.igemm",
        conv((2, 12, 5, 7, 6), 20, (3, 1, 1), pads=(1, 0, 0, 1, 0, 0), residual=True),
    ),
    "volume, strides alone": ("conv2d.igemm", conv((2, 12, 5, 7, 6), 20, (1, 1, 1), strides=(2, 2, 2))),
    "volume in groups": ("conv2d.grouped", conv((1, 24, 5, 7, 9), 24, (3, 3, 3), group=6, pads=(1,) * 6)),
    "volume, depthwise": (
        "conv2d.depthwise",
        conv((2, 20, 5, 7, 9), 20, (3, 3, 3), group=20, strides=(2, 1, 1), pads=(0, 1, 1, 2, 1, 1)),
    ),
    "volume, max pool": (
        "pool2d.max",
        pool("MaxPool", (1, 19, 7, 6, 9), kernel_shape=[3, 3, 3], strides=[2, 2, 2], pads=[1] * 6),
    ),
    "volume, average pool": (
        "pool2d.average",
        pool("AveragePool", (2, 9, 7, 9, 8), kernel_shape=[3, 2, 3], strides=[2, 1, 2], pads=[1] * 6),
    ),
    "transposed signal": ("conv2d.igemm", transposed((2, 24, 20), 12, (16,), strides=[8], pads=[4, 4])),
    "transposed, depthwise": (
        "conv2d.depthwise",
        transposed((1, 12, 5, 6), 12, (4, 4), strides=[2, 2], pads=[1, 1, 1, 1], group=12),
    ),
    "transposed, in groups": (
        "conv2d.igemm",
        transposed((1, 12, 5, 6), 24, (3, 4), strides=[2, 3], pads=[3, 0, 0, 1], group=3),
    ),
    "transposed, dilated": (
        "conv2d.igemm",
        transposed((1, 9, 5, 6), 8, (3, 3), strides=[1, 2], pads=[1, 1, 4, 1], dilations=[2, 2]),
    ),
    "transposed volume": (
        "conv2d.igemm",
        transposed((1, 12, 3, 5, 6), 8, (3, 3, 3), strides=[2, 1, 2], pads=[1] * 6, output_padding=[1, 0, 1]),
    ),
    "wide windows": (
        "pool2d.max",
        pool("MaxPool", (1, 19, 25, 30), kernel_shape=[3, 21], strides=[1, 2], pads=[1, 10, 1, 9]),
    ),
    "signal, wider windows": (
        "pool2d.average",
        pool("AveragePool", (2, 9, 150), kernel_shape=[70], strides=[3], pads=[30, 5]),
    ),
    "computed weights": ("conv2d.igemm", computed((1, 7, 6, 9), 83, (3, 2))),
    "computed weights in groups": ("conv2d.igemm", computed((2, 12, 5, 6), 57, (3, 3), 3)),
    "computed weights, depthwise": ("conv2d.depthwise", computed((1, 35, 6, 7), 35, (3, 3), 35)),
    "computed weights of a signal": ("conv2d.igemm", computed((1, 9, 30), 17, (5,))),
    "matrix": ("matmul.packed", dense((23,), 37, 61, gelu)),
    "matrix of float64": ("matmul.packed", of_type("float64", constant=True)),
    "matrix of int32": ("matmul.packed", of_type("int32", constant=True)),
    "two matrices of int32": ("matmul.batched", of_type("int32", constant=False)),
    "one row": ("matmul.packed", dense((1,), 129, 1000)),
    "two rows": ("matmul.packed", dense((2,), 64, 50, silu)),
    "tokens": ("matmul.packed", dense((2, 5, 7), 33, 65)),
    "attention": ("matmul.batched", batched((2, 3, 17, 24), (2, 3, 24, 19))),
    "broadcast batch": ("matmul.batched", batched((5, 1, 9, 8), (3, 8, 10))),
    "two matrices": ("matmul.batched", batched((6, 15), (15, 33))),
}


#: One of each rule, and those that have had defects of their own on one register file only.
SENTINELS = (
    "3x3 residual",
    "5x3 asymmetric",
    "grouped",
    "one pixel",
    "groups of 4",
    "groups of 8",
    "depthwise",
    "max pool",
    "average pool",
    "signal",
    "volume",
    "matrix",
    "attention",
    "computed weights in groups",
    "conditions behind",
    "its input beside",
)
#: Of signals, volumes and transposed convolutions, which become what the others are, these are only on the
#: widest one.
RELATIVES = tuple(name for name in MODELS if name.startswith(("signal", "volume", "transposed")))
#: Taps of theirs lie in the padding.
PADDED = ("3x3 same", "dilated", "padding beyond the kernel", "depthwise dilated")
ON_REGISTER_FILES = list(
    dict.fromkeys(
        (SWEPT[-1] if name in RELATIVES and name not in SENTINELS else registers, name)
        for registers, name in on_register_files(MODELS, SENTINELS, both=PADDED)
    )
)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    """Without Winograd, which has tests of its own."""
    models = {name: model for name, (_, model) in MODELS.items()}
    target = partial(target_with, optimize="size")
    return Library(models, ON_REGISTER_FILES, tmp_path_factory.mktemp("anchors"), target)


@pytest.mark.parametrize(("registers", "name"), ON_REGISTER_FILES)
def test_shape_is_served_by_its_rule_and_right(library: Library, registers: str, name: str) -> None:
    rule, _ = MODELS[name]
    compiled = library(registers)
    plan = compiled.plan(name)
    assert not plan.warnings
    assert any(kernel.rule.startswith(rule) for kernel in plan.kernels)
    compiled.check(name)


@pytest.mark.parametrize("registers", SWEPT)
@pytest.mark.parametrize("name", [*PADDED, "volume"])
def test_taps_in_the_padding_read_nothing(library: Library, registers: str, name: str) -> None:
    """What lies next to the image in memory (here: NaN in the opposite corner) must not leak in at the
    border."""
    compiled = library(registers)
    (spec,) = compiled.plan(name).inputs
    x = np.random.default_rng(0).standard_normal(spec.shape, np.float32)
    x[0, :, 0, 0] = x[-1, :, -1, -1] = np.nan
    got, expected = compiled.run(name, {"x": x})["y"], compiled.expected(name, {"x": x})["y"]
    assert np.isnan(expected).any() and not np.isnan(expected).all()
    assert (np.isnan(got) == np.isnan(expected)).all()


@pytest.mark.parametrize("registers", SWEPT)
def test_a_tail_sees_nan(library: Library, registers: str) -> None:
    compiled = library(registers)
    inputs = random_inputs(MODELS["conditions behind"][1], 4)
    inputs["x"][0, 2, 3, 3] = np.nan
    got = compiled.run("conditions behind", inputs)["y"]
    assert (got == 7).any()
    assert_close(MODELS["conditions behind"][1], {"y": got}, compiled.expected("conditions behind", inputs))


@pytest.mark.slow
def test_every_case_is_right_on_the_narrowest_and_on_the_widest_registers() -> None:
    """Those of other files too, which `make test` has on one of them in turn; sentinels on all others."""
    here = Path(__file__).parent
    names = (
        *("anchors", "attention", "elementwise", "fused_depthwise", "group_norm", "one_channel"),
        *("recurrent", "rowwise", "slices"),
    )
    files = [here / f"test_{name}.py" for name in names]
    command = [sys.executable, "-m", "pytest", "-q", *map(str, files)]
    subprocess.run(
        command, check=True, cwd=here.parents[2], env={**os.environ, "EDGEPACK_TEST_REGISTERS": "all"}
    )

"""Means of quantised tensors are of exact sums of integers, which are read as they lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled, Library, target_with
from workbench.models.builder import Graph

SHAPE = (2, 21, 9, 7)
#: Operator, its attributes, and the axes of the mean.
MEANS: dict[str, tuple[str, dict[str, Any], tuple[int, ...]]] = {
    "image": ("GlobalAveragePool", {}, (2, 3)),
    "image without dimensions": ("ReduceMean", {"axes": [2, 3], "keepdims": 0}, (2, 3)),
    "channels": ("ReduceMean", {"axes": [1], "keepdims": 1}, (1,)),
}
#: Scale and zero point of the input and of the mean; their type.
STEPS = {"uint8": ((0.031, 117), (0.0037, 130)), "int8": ((0.02, -3), (0.0051, 5))}
#: Vectors with and without dot products of bytes (of int16 then), and none.
REGISTERS = ("512x32", "128x16", "scalar")
CASES = [(registers, f"{mean}, {dtype}") for registers in REGISTERS for mean in MEANS for dtype in STEPS]


def model(name: str) -> onnx.ModelProto:
    mean, dtype = name.split(", ")
    operator, attributes, _ = MEANS[mean]
    read, made = ([np.float32(scale), np.array(zero, dtype)] for scale, zero in STEPS[dtype])
    g = Graph("mean")
    # A maximum keeps the bytes as they are, and has them computed.
    x = g.op("DequantizeLinear", g.input("x", SHAPE, dtype), *map(g.const, read))
    x = g.op("MaxPool", x, kernel_shape=[1, 1])
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", x, *map(g.const, read)), *map(g.const, read))
    x = g.op(operator, x, **attributes)
    g.output(g.op("QuantizeLinear", x, *map(g.const, made), name="y"), dtype)
    return g.model()


def defined(name: str, x: np.ndarray) -> np.ndarray:
    mean, dtype = name.split(", ")
    axes = MEANS[mean][2]
    (scale, zero), (step, offset) = STEPS[dtype]
    count = np.prod([SHAPE[axis] for axis in axes])
    sums = (x.astype(np.int64) - zero).sum(axis=axes, keepdims=True)
    scaled = sums.astype(np.float32) * (np.float32(scale) / np.float32(count) / np.float32(step))
    info = np.iinfo(dtype)
    return np.clip(np.rint(scaled).astype(np.int64) + offset, info.min, info.max).astype(dtype)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    models = {name: model(name) for _, name in CASES}
    return Library(models, CASES, tmp_path_factory.mktemp("means"), target_with)


@pytest.mark.parametrize(("registers", "name"), CASES)
def test_every_integer_is_that_of_exact_sums(library: Library, registers: str, name: str) -> None:
    dtype = name.split(", ")[1]
    info = np.iinfo(dtype)
    x = np.random.default_rng(6).integers(info.min, info.max + 1, SHAPE).astype(dtype)
    compiled = library(registers)
    got = compiled.run(name, {"x": x})["y"]
    expected = defined(name, x).reshape(got.shape)
    assert len(np.unique(expected)) > 10
    np.testing.assert_array_equal(got, expected)


def test_bytes_are_summed_as_they_lie(library: Library) -> None:
    (kernel,) = [k for k in library("512x32").plan("image, uint8").kernels if "sum" in k.ops]
    assert kernel.ops[0] == "sum" and kernel.ops[-1] == "cast" and kernel.rule == "rowwise", kernel


def test_a_norm_that_is_spelled_out_is_one_operator(tmp_path: Path) -> None:
    g = Graph("norm")
    steps = [g.const(np.float32(0.03)), g.const(np.uint8(120))]
    x = g.op("DequantizeLinear", g.input("x", (1, 6, 32), "uint8"), *steps)
    centred = g.op("Sub", x, g.op("ReduceMean", x, axes=[-1], keepdims=1))
    variance = g.op("ReduceMean", g.op("Mul", centred, centred), axes=[-1], keepdims=1)
    root = g.op("Sqrt", g.op("Add", variance, g.const(np.float32(1e-5))))
    scaled = g.op("Mul", g.op("Div", centred, root), g.const(np.full(32, 1.5, np.float32)))
    g.output(g.op("Add", scaled, g.const(np.full(32, 0.25, np.float32)), name="y"))
    compiled = Compiled({"m": g.model()}, tmp_path)
    assert any("layer_norm" in kernel.ops for kernel in compiled.plan("m").kernels)
    compiled.check("m")


def test_a_norm_behind_a_product_that_is_not_quantised(tmp_path: Path) -> None:
    """Its values are bound already when the mean asks for them."""
    g = Graph("norm")
    steps = [g.const(np.float32(0.03)), g.const(np.uint8(120))]
    x = g.op("DequantizeLinear", g.input("x", (1, 16, 6, 6), "uint8"), *steps)
    weights = g.const(g.rng.integers(-127, 128, (8, 16, 1, 1)).astype(np.int8))
    scaled = g.op("DequantizeLinear", weights, g.const(np.float32(0.01)), g.const(np.int8(0)))
    y = g.op("Conv", x, scaled, kernel_shape=[1, 1])
    g.output(g.op("Sub", y, g.op("ReduceMean", y, axes=[2, 3], keepdims=1), name="y"))
    compiled = Compiled({"m": g.model()}, tmp_path)
    assert any("conv2d" in k.ops and k.parameters.get("operands") for k in compiled.plan("m").kernels)
    compiled.check("m")

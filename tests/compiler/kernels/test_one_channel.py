"""Pointwise convolutions to one channel: vectors of pixels, floats and bytes."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.micro.dot4_bytes import byte_products
from tests.compiler.kernels.test_quantised import defined
from workbench.compiled import Library, on_register_files, target_with
from workbench.executor import host_target
from workbench.models.builder import Graph

RULE = "conv2d.one_channel"
HOST = "host"


def _floats(shape: tuple[int, ...]) -> onnx.ModelProto:
    """With a bias, a number that all pixels share, and a residual that is as large as the output."""
    g = Graph("floats")
    x = g.input("x", shape)
    y = g.op("Conv", x, g.weight(1, shape[1], *[1] * (len(shape) - 2)), g.weight(1))
    y = g.op("Mul", g.op("Sigmoid", y), g.uniform(1, low=1, high=2))
    g.output(g.op("Add", y, g.input("r", (shape[0], 1, *shape[2:])), name="y"))
    return g.model()


def _bytes(channels: int) -> onnx.ModelProto:
    g = Graph("bytes")
    weights = g.rng.integers(-64, 64, (1, channels, 1, 1)).astype(np.int8)
    inputs = [
        *(g.input("x", (1, channels, 11, 13), "uint8"), g.const(np.float32(0.05)), g.const(np.uint8(131))),
        *(g.const(weights), g.const(np.float32(0.002)), g.const(np.int8(0))),
        *(g.const(np.float32(0.008 * channels**0.5)), g.const(np.uint8(117))),
        g.const(np.array([400], np.int32)),
    ]
    g.output(g.op("QLinearConv", *inputs, name="y"), "uint8")
    return g.model()


FLOATS = {
    "whole pixels": (2, 4, 9, 11),
    "one pixel": (1, 16, 7, 5),
    "parts of a pixel": (1, 64, 6, 7),
    "a signal": (1, 32, 67),
    "channels that fill no vector": (1, 24, 5, 9),
    "fewer pixels than lanes": (1, 16, 1, 3),
}
#: By channels: parts of a vector of 4, 8 or 16 quads, one, and some.
CHANNELS = (8, 16, 64, 128, 256)
MODELS = {name: _floats(shape) for name, shape in FLOATS.items()} | {
    f"bytes, {n}": _bytes(n) for n in CHANNELS
}
PAIRS = on_register_files(FLOATS, ["parts of a pixel"]) + [(HOST, f"bytes, {n}") for n in CHANNELS]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    folder = tmp_path_factory.mktemp("one_channel")
    return Library(MODELS, PAIRS, folder, lambda name: host_target() if name == HOST else target_with(name))


@pytest.mark.parametrize(("registers", "name"), [pair for pair in PAIRS if pair[0] != HOST])
def test_sums_of_floats_are_those_of_the_reference(library: Library, registers: str, name: str) -> None:
    library(registers).check(name)


def test_it_serves_what_fills_vectors(library: Library) -> None:
    compiled = library("512x32")
    served = {name for name in FLOATS if RULE in {kernel.rule for kernel in compiled.plan(name).kernels}}
    assert served == {*FLOATS} - {"channels that fill no vector", "fewer pixels than lanes"}


@pytest.mark.parametrize("channels", CHANNELS)
def test_sums_of_bytes_are_exact(library: Library, channels: int) -> None:
    name = f"bytes, {channels}"
    compiled, rng = library(HOST), np.random.default_rng(3)
    if byte_products(host_target()) is not None:
        assert RULE in {kernel.rule for kernel in compiled.plan(name).kernels}
    (spec,) = compiled.plan(name).inputs
    for values in ([0, 255], range(256)):
        x = rng.choice(np.array(values, np.uint8), spec.shape)
        expected = defined(MODELS[name], x)
        assert len(np.unique(expected)) > 40
        np.testing.assert_array_equal(compiled.run(name, {"x": x})["y"], expected)

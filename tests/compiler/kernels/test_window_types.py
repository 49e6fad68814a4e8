"""Windows over images of other types than float32: depthwise and grouped convolutions, pooling."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from workbench.compiled import SWEPT, Library
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs

PADS = (1, 1, 1, 1)
CHANNELS = 24


def products(group: int) -> onnx.ModelProto:
    """A convolution of float64 by 3x3, and a sum."""
    g = Graph("products", seed=3)
    x = g.input("x", (2, CHANNELS, 9, 11), "float64")
    w = g.weight(CHANNELS, CHANNELS // group, 3, 3, dtype="float64")
    y = g.op("Conv", x, w, group=group, pads=PADS)
    g.op("Add", y, g.const(np.float64(0.1)), name="y")
    g.output("y", "float64")
    return g.model()


def pooled(kind: str, dtype: str) -> onnx.ModelProto:
    g = Graph("pooled", seed=3)
    window = {"kernel_shape": (4, 3), "strides": (2, 2), "pads": PADS}
    g.op(kind, g.input("x", (2, 37, 13, 27), dtype), name="y", **window)
    g.output("y", dtype)
    return g.model()


#: By name the rule, and the model.
CASES = {
    "depthwise float64": ("conv2d.depthwise", products(CHANNELS)),
    "grouped float64": ("conv2d.grouped", products(CHANNELS // 2)),
    "max float64": ("pool2d.max", pooled("MaxPool", "float64")),
    "max int8": ("pool2d.max", pooled("MaxPool", "int8")),
    "max uint8": ("pool2d.max", pooled("MaxPool", "uint8")),
    "average float64": ("pool2d.average", pooled("AveragePool", "float64")),
}
MODELS = {name: model for name, (_, model) in CASES.items()}
REGISTERS = (*SWEPT, "scalar")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    pairs = [(registers, name) for registers in REGISTERS for name in MODELS]
    return Library(MODELS, pairs, tmp_path_factory.mktemp("types"))


@pytest.mark.parametrize("registers", REGISTERS)
@pytest.mark.parametrize("name", CASES)
def test_its_own_rule_serves_it_and_is_right(library: Library, registers: str, name: str) -> None:
    rule, model = CASES[name]
    compiled = library(registers)
    if (rule, registers) != ("conv2d.grouped", "scalar"):  # there are no vectors to fill
        assert rule in {kernel.rule for kernel in compiled.plan(name).kernels}
    inputs = random_inputs(model, 5)
    (expected,) = ReferenceEvaluator(model).run(None, inputs)  # ONNX Runtime does not convolve float64
    got = compiled.run(name, inputs, seed=3)["y"]
    assert got.dtype == np.asarray(expected).dtype
    np.testing.assert_allclose(got, expected, rtol=1e-13, atol=1e-13)

"""Group and instance norms behind convolutions: found as exporters write them, one kernel's, and right."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from workbench.compiled import SWEPT, Library, on_register_files
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs


def _normalised(g: Graph, x: str, channels: int, groups: int, rank: int, dtype: str) -> str:
    """As PyTorch exports it: InstanceNormalization between two reshapes, with weights behind them."""
    flat = g.op("Reshape", x, g.const([0, groups, -1]))
    ones, zeros = (g.const(np.full(groups, n, dtype)) for n in (1, 0))
    norm = g.op("InstanceNormalization", flat, ones, zeros, epsilon=1e-5)
    norm = g.op("Reshape", norm, g.op("Shape", x))
    gamma = g.const(g.rng.uniform(0.7, 1.3, (channels, *[1] * rank)).astype(dtype))
    weights = gamma, g.weight(channels, *[1] * rank, std=0.1, dtype=dtype)
    return g.op("Add", g.op("Mul", norm, weights[0]), weights[1])


def _model(
    kind: str,
    shape: tuple[int, ...],
    channels: int,
    groups: int,
    offset: float = 0.0,
    dtype: str = "float32",
) -> onnx.ModelProto:
    """A convolution by one element, a norm, a SiLU, a residual, and the mean over the pixels."""
    rank = len(shape) - 2
    g = Graph("norm", seed=2, opset=21 if kind == "operator" else 17, ir_version=10)
    kernel, bias = g.weight(channels, shape[1], *[1] * rank, dtype=dtype), g.weight(channels, dtype=dtype)
    x = g.op("Conv", g.input("x", shape, dtype), kernel, bias)
    x = g.op("Add", x, g.const(np.array(offset, dtype)))
    gamma = g.const(g.rng.uniform(0.7, 1.3, channels).astype(dtype))
    weights = gamma, g.weight(channels, std=0.1, dtype=dtype)
    if kind == "instance":
        y = g.op("InstanceNormalization", x, *weights)
    elif kind == "operator":
        y = g.op("GroupNormalization", x, *weights, num_groups=groups)
    else:
        y = _normalised(g, x, channels, groups, rank, dtype)
    y = g.op("Add", g.act(y, "silu"), x)
    g.op("Conv", y, g.weight(3, channels, *[1] * rank, dtype=dtype), name="y")
    g.output("y", dtype)
    return g.model()


MODELS = {
    "image": _model("reshapes", (1, 4, 17, 13), 24, 6),
    "batch": _model("reshapes", (2, 5, 9, 11), 35, 5),
    "one group": _model("reshapes", (1, 4, 3, 3), 7, 1),
    "operator": _model("operator", (2, 4, 8, 9), 24, 4),
    "instance": _model("instance", (2, 4, 8, 9), 21, 0),
    "signal": _model("reshapes", (2, 4, 150), 20, 4),
    "volume": _model("reshapes", (1, 4, 5, 6, 7), 12, 3),
    "far from zero": _model("reshapes", (1, 4, 17, 13), 24, 6, offset=1000.0),
}
#: What ONNX Runtime does not have.
FLOAT64 = {
    "instance in float64": _model("instance", (2, 4, 8, 9), 21, 0, offset=3.0, dtype="float64"),
    "groups in float64": _model("reshapes", (1, 4, 8, 9), 24, 4, dtype="float64"),
}
ON_REGISTER_FILES = on_register_files(MODELS, ["image"], others=("scalar", "256x16"), both=["far from zero"])
IN_FLOAT64 = [(registers, name) for registers in ("scalar", *SWEPT) for name in FLOAT64]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    models, pairs = {**MODELS, **FLOAT64}, [*ON_REGISTER_FILES, *IN_FLOAT64]
    return Library(models, pairs, tmp_path_factory.mktemp("norms"))


@pytest.mark.parametrize(("registers", "name"), ON_REGISTER_FILES)
def test_norm_is_one_rules_and_right(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    rules = [kernel.rule for kernel in compiled.plan(name).kernels]
    assert rules.count("group_norm") == 2, "two stages"
    assert not {"rowwise", "generic"} & set(rules)
    if name != "far from zero":
        compiled.check(name)


@pytest.mark.parametrize("registers", SWEPT)
def test_variance_survives_a_mean_far_from_zero(library: Library, registers: str) -> None:
    """The mean of squares less the square of the mean would have no correct digit. Of numbers near 1000 the
    input itself is known to 6e-5 only: the limit is ten times that, of a result whose deviation is one."""
    compiled, name = library(registers), "far from zero"
    inputs = random_inputs(MODELS[name], 3)
    got, expected = compiled.run(name, inputs)["y"], compiled.expected(name, inputs)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=6e-4)


@pytest.mark.parametrize(("registers", "name"), IN_FLOAT64)
def test_norm_of_float64_is_computed_in_float64(library: Library, registers: str, name: str) -> None:
    compiled, inputs = library(registers), random_inputs(FLOAT64[name], 3)
    assert [kernel.rule for kernel in compiled.plan(name).kernels].count("group_norm") == 2
    (expected,) = ReferenceEvaluator(FLOAT64[name]).run(None, dict(inputs))
    np.testing.assert_allclose(compiled.run(name, inputs)["y"], expected, rtol=1e-11, atol=1e-11)

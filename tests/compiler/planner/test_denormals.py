"""Denormal weights are zeros in a plan and are counted, unless mathematics is strict."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest

from edgepack.compiler.denormals import denormals, warning_of, without_denormals
from workbench.compiled import plan_of, target_with
from workbench.models.builder import Graph

TINY = {
    "float32": [0.0, -0.0, 1e-45, -1e-40, 1.1754942e-38, -1.1754942e-38, 1.1754944e-38, -1.1754944e-38],
    "float64": [0.0, -0.0, 5e-324, -1e-310, 2.225073858507201e-308, 2.2250738585072014e-308],
}
ORDINARY = [1.0, -3e38, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize("dtype", TINY)
def test_zeros_of_the_same_sign_take_the_place_of_denormals_alone(dtype: str) -> None:
    values = np.array([*TINY[dtype], *ORDINARY], dtype).reshape(1, -1)
    tiny = np.finfo(dtype).tiny
    expected = [[0.0 * np.sign(v) if v != 0 and abs(v) < tiny else v for v in values[0]]]
    flushed = without_denormals(values)
    assert flushed.tobytes() == np.array(expected, dtype).tobytes()
    assert denormals(values) == np.count_nonzero((values != 0) & (abs(values) < tiny))
    assert denormals(flushed) == 0
    assert without_denormals(flushed) is flushed


@pytest.mark.parametrize("dtype", ["float16", "int32", "uint8", "bool"])
def test_other_types_have_none(dtype: str) -> None:
    values = np.array([1, 0, 1], np.uint8).astype(dtype) * np.array(1, dtype)
    assert denormals(values) == 0
    assert without_denormals(values) is values


def _decayed() -> onnx.ModelProto:
    """A product of 64 x 64 whose weights decayed to denormals but for a few."""
    g = Graph("decayed", seed=0)
    w = g.rng.standard_normal((64, 64)).astype("f4")
    w[:, 8:] *= np.float32(1e-40)
    g.op("MatMul", g.input("x", (3, 64)), g.const(w), name="y")
    g.output("y")
    return g.model()


def test_weights_that_decayed_are_zeros_and_said() -> None:
    built = plan_of(_decayed(), target=target_with("512x32"))
    assert sum(map(denormals, built.constants)) == 0
    (text,) = built.plan.warnings
    assert text.startswith("3,584 of 4,096 weights are denormal numbers")
    strict = plan_of(_decayed(), target=replace(target_with("512x32"), strict_math=True))
    assert sum(map(denormals, strict.constants)) == 3584
    assert strict.plan.warnings == ()


def test_a_few_are_not_worth_a_word() -> None:
    assert warning_of(999, 1000) == ""
    assert warning_of(2000, 100_000_000) == ""
    assert warning_of(20_000, 100_000_000)

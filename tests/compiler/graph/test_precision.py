"""float16: sums keep their precision."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.models.builder import Graph
from tests.support.compiled import plan_of
from tests.support.executor import Executor


def _long_dot_product() -> onnx.ModelProto:
    g = Graph("dot", seed=0)
    g.op("MatMul", g.input("x", [1, 4096], "float16"), g.const(np.ones((4096, 2), np.float16)), name="y")
    g.output("y", "float16")
    return g.model()


def _wide_convolution() -> onnx.ModelProto:
    g = Graph("conv", seed=0)
    x, ones = g.input("x", [1, 512, 3, 3], "float16"), g.const(np.ones((3, 512, 3, 3), np.float16))
    g.op("Conv", x, ones, name="y")
    g.output("y", "float16")
    return g.model()


def _mean() -> onnx.ModelProto:
    g = Graph("mean", seed=0)
    g.op("ReduceMean", g.input("x", [1, 64, 64], "float16"), axes=[1, 2], keepdims=0, name="y")
    g.output("y", "float16")
    return g.model()


@pytest.mark.parametrize("build", [_long_dot_product, _wide_convolution, _mean], ids=lambda f: f.__name__)
def test_sum_of_thousands_is_right_to_the_last_bits(build, tmp_path: Path) -> None:
    """A float16 sum of ones would stop at 2048."""
    built = plan_of(build())
    x = np.ones(built.plan.inputs[0].shape, np.float16)
    (y,) = Executor({"m": built}, tmp_path).run("m", [x])
    exact = {"_long_dot_product": 4096, "_wide_convolution": 4608, "_mean": 1}[build.__name__]
    assert (y == np.float16(exact)).all()

"""Pad before a convolution or pooling: padding of that operator, or a copy, and right either way."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from workbench.compiled import Compiled
from workbench.models.builder import Graph


def padded(
    op: str,
    value: float = 0.0,
    widths: tuple[int, int, int, int] = (1, 1, 1, 1),
    *,
    before: str = "",
    least: float | None = None,
    mode: str = "constant",
    opset: int = 18,
    **attributes: Any,
) -> onnx.ModelProto:
    """A Pad (top, left, bottom, right) of an image, and an operator with windows of 3x3.

    Args:
        before: an operator before the Pad.
        least: what a Clip before the Pad leaves at least.
        opset: below 11 widths are an attribute, from 18 on they are of some axes.
    """
    g = Graph("padded", seed=2, opset=opset)
    x = g.input("x", [1, 3, 9, 8])
    x = g.op(before, x) if before else x
    x = x if least is None else g.op("MaxPool", g.op("Clip", x, g.const(least)), kernel_shape=[1, 1])
    top, left, bottom, right = widths
    if opset < 11:
        y = g.op("Pad", x, pads=[0, 0, top, left, 0, 0, bottom, right], value=value, mode=mode)
    elif opset < 18:
        y = g.op(
            "Pad", x, g.const(np.array([0, 0, top, left, 0, 0, bottom, right])), g.const(value), mode=mode
        )
    else:
        axes = g.const(np.array([-1, 2]))
        y = g.op("Pad", x, g.const(np.array([left, top, right, bottom])), g.const(value), axes, mode=mode)
    weights = [g.weight(4, 3, 3, 3)] if op == "Conv" else []
    g.op(op, y, *weights, **{"kernel_shape": [3, 3], "strides": [2, 2], **attributes}, name="y")
    g.output("y")
    return g.model()


OWN = {"pads": [1, 0, 1, 1]}
LEAST = float(np.finfo(np.float32).min)
#: Those whose operator pads.
MERGED = {
    "conv": padded("Conv"),
    "conv, opset 10": padded("Conv", opset=10),
    "conv, opset 13": padded("Conv", widths=(0, 2, 3, 1), opset=13),
    "conv that pads": padded("Conv", **OWN),
    "average": padded("AveragePool"),
    "average that counts its padding": padded("AveragePool", count_include_pad=1, pads=[1, 1, 0, 0]),
    "maximum": padded("MaxPool"),
    "maximum, opset 10": padded("MaxPool", opset=10),
    "maximum of positive numbers": padded("MaxPool", before="Relu"),
    "maximum of numbers from 0 on": padded("MaxPool", least=0.0),
    "maximum of numbers from -1 on": padded("MaxPool", least=-1.0),
    "maximum that pads": padded("MaxPool", **OWN, widths=(1, 0, 0, 1)),
    "maximum beside ones": padded("MaxPool", 1.0, widths=(2, 1, 0, 2)),
    "maximum beside negative numbers": padded("MaxPool", -1.75),
    "maximum beside the least": padded("MaxPool", LEAST),
    "maximum, dilated": padded("MaxPool", dilations=[2, 2], widths=(2, 2, 2, 2)),
}
#: Those whose image is copied.
COPIED = {
    "conv beside ones": padded("Conv", 1.0),
    "conv of edges": padded("Conv", mode="edge"),
    "average beside ones": padded("AveragePool", 1.0),
    "average that pads": padded("AveragePool", **OWN),
    "average, rounded up": padded("AveragePool", ceil_mode=1),
    "maximum, rounded up": padded("MaxPool", ceil_mode=1),
    "maximum of wide padding": padded("MaxPool", widths=(3, 0, 0, 0)),
}
CASES = {**MERGED, **COPIED}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(CASES, tmp_path_factory.mktemp("padded"))


@pytest.mark.parametrize("name", CASES)
def test_numbers_below_zero_are_less_than_what_is_around_them(compiled: Compiled, name: str) -> None:
    x = -1.5 - np.random.default_rng(4).random((1, 3, 9, 8), np.float32)
    for image in (x, -x, x + 2):
        (expected,) = ReferenceEvaluator(CASES[name]).run(None, {"x": image})
        np.testing.assert_allclose(compiled.run(name, {"x": image})["y"], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_nothing_is_copied_where_the_operator_pads(compiled: Compiled, name: str) -> None:
    operators = [op for kernel in compiled.plan(name).kernels for op in kernel.ops]
    assert bool({"pad", "replicate_pad"} & set(operators)) == (name in COPIED), operators
    if name.startswith("maximum of") and name in MERGED:
        zeros_matter = name == "maximum of numbers from -1 on"
        assert ("maximum" in operators[operators.index("max_pool2d") :]) == zeros_matter, operators

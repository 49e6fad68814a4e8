"""Batch normalisations that an exporter wrote out become a part of the convolution in front of them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.quantise.float_model import name_nodes
from edgepack.compiler.frontend.onnx.quantise.runs import runner
from edgepack.compiler.frontend.onnx.quantise.written_out import fold_written_out
from tests.compiler.frontend.onnx.quantise.support import made
from workbench.models.builder import Graph


def normalised(bias: bool, channels: int = 6) -> onnx.ModelProto:
    """Two convolutions, each with a mean, a deviation, a factor and a shift of each channel."""
    g = Graph("written_out")
    rng = np.random.default_rng(0)
    x = g.input("x", (1, 3, 8, 8))
    for inputs, number in ((3, 0), (channels, 1)):
        weights = [g.weight(channels, inputs, 3, 3), *([g.weight(channels)] if bias else [])]
        x = g.op("Conv", x, *weights, pads=[1] * 4)
        mean, deviation, factor, shift = (
            rng.uniform(low, 2.0, (channels, 1, 1)).astype(np.float32) for low in (-2.0, 0.3, 0.2, -1.0)
        )
        x = g.op("Sub", x, g.const(mean)) if number else g.op("Sub", g.const(mean), x)
        x = g.op("Div", x, g.const(deviation)) if number else g.op("Mul", x, g.const(1 / deviation))
        x = g.op("Mul", g.const(factor.reshape(1, channels, 1, 1)), x)
        x = g.op("Relu", g.op("Add", g.op("Add", x, g.const(shift)), g.const(np.float32(0.5))))
    g.op("Flatten", g.op("GlobalAveragePool", x), name="y")
    g.output("y")
    return g.model()


@pytest.mark.parametrize("bias", [False, True], ids=["without bias", "with bias"])
def test_they_are_folded_and_results_are_the_same(bias: bool) -> None:
    model = normalised(bias)
    x = np.random.default_rng(1).standard_normal((1, 3, 8, 8)).astype(np.float32)
    before = runner(model, ["y"])({"x": x})["y"]
    name_nodes(model.graph.node)
    relu = model.graph.node[6].input[0]
    fold_written_out(model)
    onnx.checker.check_model(model, full_check=True)
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators == {"Conv": 2, "Relu": 2, "GlobalAveragePool": 1, "Flatten": 1}
    assert model.graph.node[0].output[0] == relu
    assert len(model.graph.initializer) == 4
    np.testing.assert_allclose(runner(model, ["y"])({"x": x})["y"], before, rtol=1e-5, atol=1e-6)


def shifted(shape: tuple[int, ...], operator: str = "Add", value: float = 0.5) -> onnx.ModelProto:
    g = Graph("shifted")
    x = g.op("Conv", g.input("x", (1, 3, 4, 4)), g.weight(4, 3, 1, 1), name="conv")
    g.op(operator, x, g.const(np.full(shape, value, np.float32)), name="y")
    g.output("y")
    return g.model()


@pytest.mark.parametrize(
    "model",
    [shifted((4,)), shifted((1, 4, 4, 4)), shifted((1, 4, 1)), shifted((4, 1, 1), "Div", 0.0)],
    ids=["along the rows", "each pixel", "along the columns", "a division by zero"],
)
def test_other_constants_stay_where_they_are(model: onnx.ModelProto) -> None:
    before = model.SerializeToString()
    fold_written_out(model)
    assert model.SerializeToString() == before


def test_a_result_that_something_else_reads_stays(tmp_path: Path) -> None:
    model = shifted((4, 1, 1))
    model.graph.output.append(onnx.ValueInfoProto(name="conv"))
    fold_written_out(model)
    assert [node.op_type for node in model.graph.node] == ["Conv", "Add"]


def test_a_network_is_rounded_once_for_each_layer(tmp_path: Path) -> None:
    """Rounded for themselves, the first one's Sub, Mul and Add leave it at 52 dB."""
    model, figures = made(normalised(bias=False), tmp_path)
    assert [one.operator for one in figures.layers if one.quantised] == ["Conv", "Conv"]
    assert figures.outputs[0].sqnr is not None and figures.outputs[0].sqnr > 56
    assert not {"Sub", "Div", "Mul", "Add"} & {node.op_type for node in model.graph.node}

"""Inputs that the user makes constants, and the branches that are then known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.constant_inputs import make_constant
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.errors import ConfigError
from workbench.models.builder import Graph


def model_of(shape: list[Any] | None, dtype: str) -> onnx.ModelProto:
    g = Graph("pinned")
    for name, of in (("x", [2, 3]), ("rate", shape)):
        kind = dtype if name == "rate" else "float32"
        g.output(g.op("Identity", g.input(name, of, kind)), kind)
    return g.model()


@pytest.mark.parametrize(
    ("shape", "dtype", "numbers", "expected"),
    [
        ([], "int64", [16000], np.int64(16000)),
        ([1], "int32", [-3], np.array([-3], np.int32)),
        ([2, 2], "float32", [0.5], np.full((2, 2), 0.5, np.float32)),
        ([2, 2], "float32", [1, 2, 3, 4], np.array([[1, 2], [3, 4]], np.float32)),
        (["n"], "int64", [4, 5, 6], np.array([4, 5, 6])),
        (None, "uint8", [7], np.array([7], np.uint8)),
        ([], "bool", [True], np.bool_(True)),
        ([1], "float16", [0.5], np.array([0.5], np.float16)),
    ],
)
def test_a_pinned_input_is_a_constant_of_its_type_and_shape(
    shape: list[Any] | None, dtype: str, numbers: list[float], expected: Any
) -> None:
    model = model_of(shape, dtype)
    make_constant(model, {"rate": numbers})
    assert [item.name for item in model_inputs(model)] == ["x"]
    found = numpy_helper.to_array(model.graph.initializer[0])
    assert (found.dtype, found.shape) == (np.asarray(expected).dtype, np.asarray(expected).shape)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "numbers", "why"),
    [
        ("ratr", [], "int64", [1], "no input 'ratr'"),
        ("rate", [], "int64", [0.5], "not numbers of the input's type, int64"),
        ("rate", [], "uint8", [256], "not numbers of the input's type, uint8"),
        ("rate", [], "bool", [2], "not numbers of the input's type, bool"),
        ("rate", [], "float16", [1e9], "not numbers of the input's type, float16"),
        ("rate", [2, 2], "int64", [1, 2, 3], "3 numbers do not fill the input, which is 2 x 2"),
        ("rate", [2, "n"], "int64", [1], "do not fill the input, which is 2 x n"),
    ],
)
def test_what_is_no_value_of_an_input_is_refused(
    name: str, shape: list[Any], dtype: str, numbers: list[float], why: str
) -> None:
    with pytest.raises(ConfigError, match=why) as caught:
        make_constant(model_of(shape, dtype), {name: numbers})
    assert "\n" not in caught.value.message


def branching() -> onnx.ModelProto:
    """As silero's: all of the network in the branches of an If on the sampling rate, with an If in a branch;
    the condition is computed, and the branches read what stands around them."""

    def branch(factor: float, inner: onnx.NodeProto | None = None) -> onnx.GraphProto:
        name = f"w{factor}"
        out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
        nodes = [helper.make_node("Mul", ["x", name], ["scaled"])]
        nodes.append(inner or helper.make_node("Identity", ["scaled"], ["y"]))
        weight = numpy_helper.from_array(np.full(3, factor, np.float32), name)
        return helper.make_graph(nodes, f"by{factor}", [], [out], [weight])

    inner = helper.make_node(
        "If", ["low"], ["y"], then_branch=branch(5.0), else_branch=branch(7.0), name="inner"
    )
    nodes = [
        helper.make_node("Constant", [], ["high"], value=numpy_helper.from_array(np.array(16000))),
        helper.make_node("Equal", ["rate", "high"], ["is_high"]),
        helper.make_node("Not", ["is_high"], ["low"]),
        helper.make_node(
            "If", ["is_high"], ["out"], then_branch=branch(2.0), else_branch=branch(3.0, inner), name="outer"
        ),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("rate", TensorProto.INT64, []),
    ]
    output = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "branching", inputs, [output])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


@pytest.mark.parametrize(("rate", "factor"), [(16000, 2.0), (8000, 5.0)])
def test_ifs_that_are_known_are_gone_before_anybody_optimises_the_model(
    rate: int, factor: float, tmp_path: Path
) -> None:
    path = tmp_path / "branching.onnx"
    onnx.save(branching(), path)
    options = ImportOptions(const={"rate": [rate]})
    opened = open_model(path, options)
    assert not [node for node in opened.graph.node if node.op_type == "If"]
    frontend.prepare(path, options, tmp_path)
    frontend.record(path, options, tmp_path, seed=0, inputs={})
    x = np.fromfile(tmp_path / "recorded" / "input_0.bin", np.float32)
    y = np.fromfile(tmp_path / "recorded" / "output_0.bin", np.float32)
    np.testing.assert_allclose(y, x * factor, rtol=1e-6)


def test_an_if_on_what_is_not_known_stays() -> None:
    model = branching()
    make_constant(model, {})
    assert [node.op_type for node in model.graph.node] == ["Constant", "Equal", "Not", "If"]

"""float16 and bfloat16 models are computed in float32, and keep their inputs' and outputs' types."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.onnx.float16 import compute_in_float32
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.shapes import all_nodes, infer_shapes
from workbench.compiled import plan_of
from workbench.executor import Executor
from workbench.models.builder import Graph
from workbench.models.evaluate import run_onnxruntime
from workbench.models.half import TYPES, halved
from workbench.models.odd import ODD
from workbench.models.single import single


def _widened(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model in float32; the one that is handed in stays as it is."""
    before = model.SerializeToString(deterministic=True)
    wide = compute_in_float32(model)
    assert model.SerializeToString(deterministic=True) == before
    onnx.checker.check_model(wide, full_check=True)
    return wide


def _operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


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
def test_sum_of_thousands_is_right_to_the_last_bits(
    build: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    """A float16 sum of ones would stop at 2048."""
    built = plan_of(build())
    x = np.ones(built.plan.inputs[0].shape, np.float16)
    (y,) = Executor({"m": built}, tmp_path).run("m", [x])
    exact = {"_long_dot_product": 4096, "_wide_convolution": 4608, "_mean": 1}[build.__name__]
    assert (y == np.float16(exact)).all()


def test_only_conversions_know_float16_and_they_are_vectorised() -> None:
    """No other kernel reads or writes it, so all serve a float16 model as they do a float32 one."""
    halves, singles = (plan_of(m) for m in (halved(ODD["multiple_consumers"]()), ODD["multiple_consumers"]()))
    rules = [step.kernel.split("_", 2)[2] for step in halves.plan.steps]
    converting = [r for r in rules if r.startswith("elementwise")]
    assert len(rules) - len(converting) <= len(singles.plan.steps)
    assert not any(r.startswith(("generic", "rows", "plain")) for r in rules)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_all_values_between_inputs_and_outputs_are_float32(dtype: str) -> None:
    model = halved(single((2, 8), lambda g, x: g.op("Relu", g.op("MatMul", x, g.weight(8, 4)))), dtype)
    model = _widened(model)
    assert _operators(model) == ["Cast", "MatMul", "Relu", "Identity", "Cast"]
    graph = infer_shapes(model).graph
    assert {value.type.tensor_type.elem_type for value in graph.value_info} == {TensorProto.FLOAT}
    ends = [value.type.tensor_type.elem_type for value in (graph.input[0], graph.output[0])]
    assert ends == [TYPES[dtype]] * 2


def test_a_cast_of_an_input_still_rounds() -> None:
    """float16_inside casts its input: that value is exact, and a comparison may depend on it."""
    nodes = normalise(ODD["float16_inside"]()).graph.node
    assert [node.op_type for node in nodes] == ["Cast", "Cast", "MatMul", "Relu", "MatMul", "Cast"]
    assert nodes[0].attribute[0].i == TensorProto.FLOAT16


def test_a_cast_of_what_was_computed_does_not_round() -> None:
    def body(g: Graph, x: str) -> str:
        half = g.op("Cast", g.op("Exp", x), to=TensorProto.FLOAT16)
        return g.op("Cast", g.op("Add", half, half), to=TensorProto.FLOAT)

    assert [node.op_type for node in normalise(single((4,), body)).graph.node] == ["Exp", "Add"]


def test_graphs_inside_are_computed_in_float32_too() -> None:
    """Both branches of an If read the outer graph's float16 input and weight."""
    half = TensorProto.FLOAT16
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["x", "w"], ["r"])],
            kind,
            [],
            [helper.make_tensor_value_info("r", half, [3])],
        )
        for kind in ("Add", "Mul")
    ]
    node = helper.make_node("If", ["c"], ["y"], then_branch=branches[0], else_branch=branches[1])
    graph = helper.make_graph(
        [node],
        "branches",
        [
            helper.make_tensor_value_info("c", TensorProto.BOOL, []),
            helper.make_tensor_value_info("x", half, [3]),
        ],
        [helper.make_tensor_value_info("y", half, [3])],
        [numpy_helper.from_array(np.float16([1, 2, 3]), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = {"x": np.float16([1.5, -2, 0.25]), "c": np.asarray(False)}
    expected = run_onnxruntime(model, x)[0]
    model = _widened(model)
    assert _operators(model) == ["Cast", "If", "Cast"]
    assert "x" not in {
        name for node in all_nodes(model.graph) if node.op_type != "Cast" for name in node.input
    }
    np.testing.assert_array_equal(run_onnxruntime(model, x)[0], expected)


def test_constants_and_inputs_that_are_outputs_keep_their_type() -> None:
    g = Graph("ends")
    x, w = g.input("x", [3], "float16"), g.const(np.float16([1, 2, 3]))
    g.op("Add", x, w, name="y")
    for name in ("y", w, x):
        g.output(name, "float16")
    model = g.model()
    values = {"x": np.float16([4, 5, 6])}
    expected = run_onnxruntime(model, values)
    model = _widened(model)
    assert _operators(model) == ["Cast", "Add", "Cast"]
    for found, right in zip(run_onnxruntime(model, values), expected, strict=True):
        assert found.dtype == np.float16
        np.testing.assert_array_equal(found, right)


def test_names_that_the_model_has_are_not_taken() -> None:
    g = Graph("names")
    x = g.op("Neg", g.input("x", [3], "float16"), name="x/float32")
    g.op("Abs", x, name="y")
    g.output("y", "float16")
    model = g.model()
    assert _operators(_widened(model)) == ["Cast", "Neg", "Abs", "Cast"]


def test_a_float32_model_is_left_alone() -> None:
    model = ODD["multiple_consumers"]()
    assert compute_in_float32(model) is model

"""What ONNX Runtime computes for edgepack is exact in integers, and its options are those of no machine."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edgepack.compiler.frontend.onnx.machine_independent import INTEGER_PRODUCTS, machine_independent
from edgepack.compiler.frontend.onnx.onnxruntime_session import Level, create_session, optimise
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.saturating import product

ROOT = Path(__file__).parents[4]
KINDS = [(left, right) for left in ("uint8", "int8") for right in ("uint8", "int8")]


def signed_operands(model: onnx.ModelProto) -> list[str]:
    """Signed 8-bit operands of integer products: what saturates on x86 without VNNI."""
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    for value in (*model.graph.input, *onnx.shape_inference.infer_shapes(model).graph.value_info):
        types[value.name] = value.type.tensor_type.elem_type
    return [
        node.input[index]
        for node in model.graph.node
        for index, _ in INTEGER_PRODUCTS.get(node.op_type, ())
        if types[node.input[index]] == onnx.TensorProto.INT8
    ]


@pytest.mark.parametrize("constant", [True, False], ids=["constant", "input"])
@pytest.mark.parametrize(("left", "right"), KINDS)
@pytest.mark.parametrize("op", sorted(INTEGER_PRODUCTS))
def test_integer_products_are_exact_and_have_no_signed_operand(
    op: str, left: str, right: str, constant: bool
) -> None:
    model, inputs, expected = product(op, left, right, constant=constant)
    before = model.SerializeToString()
    assert len(signed_operands(model)) == (left, right).count("int8")
    assert signed_operands(machine_independent(model)) == []
    for level in ("none", "basic", "extended"):
        (result,) = create_session(model, level).run(None, inputs)
        np.testing.assert_array_equal(result, expected["y"], strict=True)
    assert model.SerializeToString() == before


@pytest.mark.parametrize(("left", "right"), KINDS)
@pytest.mark.parametrize("op", ["ConvInteger", "MatMulInteger"])
def test_zero_points_that_are_left_out_are_zero(op: str, left: str, right: str) -> None:
    model, inputs, expected = product(op, left, right, constant=True, zero_points=False)
    assert signed_operands(machine_independent(model)) == []
    (result,) = create_session(model).run(None, inputs)
    np.testing.assert_array_equal(result, expected["y"], strict=True)


def test_products_of_constants_are_folded_exactly() -> None:
    model, inputs, expected = product("MatMulInteger", "uint8", "int8", constant=True)
    model.graph.initializer.append(numpy_helper.from_array(inputs["y_a"], "y_a"))
    del model.graph.input[:]
    rewritten = machine_independent(model, constants_only=True)
    assert signed_operands(rewritten) == []
    folded = optimise(model).graph
    assert [node.op_type for node in folded.node] in ([], ["Identity"])
    values = [numpy_helper.to_array(tensor) for tensor in folded.initializer]
    assert any(np.array_equal(value, expected["y"]) for value in values)


def test_what_is_not_folded_stays_as_the_model_has_it() -> None:
    model, _, _ = product("MatMulInteger", "uint8", "int8", constant=True)
    assert machine_independent(model, constants_only=True).SerializeToString() == model.SerializeToString()
    optimised = optimise(model)
    assert [node.op_type for node in optimised.graph.node] == ["MatMulInteger"]
    assert len(signed_operands(optimised)) == 1


def test_products_in_functions_and_branches_are_found() -> None:
    model, inputs, expected = product("MatMulInteger", "uint8", "int8", constant=False)
    (node,) = model.graph.node
    kind = [helper.make_opsetid("", 17)]
    inner = helper.make_graph([node], "branch", [], [model.graph.output[0]], model.graph.initializer)
    (always,) = inner.output
    always = onnx.ValueInfoProto(name="z", type=always.type)
    branch = helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner)
    yes = numpy_helper.from_array(np.asarray(True), "yes")
    graph = helper.make_graph([branch], "g", model.graph.input, [always], [yes])
    branched = helper.make_model(graph, opset_imports=kind, ir_version=8)
    rewritten = machine_independent(branched).graph.node[0]
    assert all(len(attribute.g.node) > 1 for attribute in rewritten.attribute)
    np.testing.assert_array_equal(create_session(branched).run(None, inputs)[0], expected["y"])

    names = ["y_a", "y_b", *node.input[2:]]
    function = helper.make_function("own", "Product", names, ["y"], [node], kind)
    call = helper.make_node("Product", names, ["y"], domain="own")
    graph = helper.make_graph([call], "g", model.graph.input, model.graph.output, model.graph.initializer)
    called = helper.make_model(
        graph, functions=[function], opset_imports=[*kind, helper.make_opsetid("own", 1)], ir_version=8
    )
    assert signed_operands(machine_independent(called)) == []
    np.testing.assert_array_equal(create_session(called).run(None, inputs)[0], expected["y"])


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize(("opset", "axis"), [(11, 1), (11, None), (13, 1), (17, None), (18, 0)])
def test_softmax_written_out_is_what_onnx_defines(op: str, opset: int, axis: int | None, dtype: str) -> None:
    g = Graph(op, opset=opset)
    attributes = {} if axis is None else {"axis": axis}
    g.op(op, g.input("x", [3, 5, 7], dtype), name="y", **attributes)
    g.output("y", dtype, [3, 5, 7])
    model = g.model()
    inputs = random_inputs(model, 1)
    (result,) = run_onnxruntime(model, inputs)
    assert str(result.dtype) == dtype
    kept = dtype == "float64"
    assert any(n.op_type == op for n in machine_independent(model).graph.node) == kept
    # Below opset 13 all axes from the given one on count as one; the reference has the newer definition only.
    x = inputs["x"].astype(np.float64)
    flat = x.reshape(3, 35) if opset < 13 else x
    modern = Graph(op, opset=17)
    modern.op(op, modern.input("x", flat.shape, "float64"), name="y", axis=-1 if axis is None else axis)
    modern.output("y", "float64", flat.shape)
    (wanted,) = ReferenceEvaluator(modern.model()).run(None, {"x": flat})
    # One rounding for each of the few steps, of values of order 1 (LogSoftmax: 10).
    np.testing.assert_allclose(
        result, wanted.reshape(x.shape), rtol=8 * np.finfo(dtype).eps, atol=8 * np.finfo(dtype).eps
    )


def test_a_model_without_such_operators_is_not_copied() -> None:
    g = Graph("relu")
    g.op("Relu", g.input("x", [3]), name="y")
    g.output("y")
    model = g.model()
    assert machine_independent(model) is model


def test_activations_that_the_model_keeps_in_float_are_not_quantised() -> None:
    """ONNX Runtime would fuse weights of 4 bits and their product, and quantise x to 8 bits: 0.4 % off."""
    rng = np.random.default_rng(0)
    steps = rng.integers(-8, 8, (64, 8))
    scales = rng.uniform(0.01, 0.02, (2, 8)).astype(np.float32)
    weights = helper.make_tensor("w", onnx.TensorProto.INT4, steps.shape, steps.reshape(-1).tolist())
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scales"], ["f"], axis=0, block_size=32),
        helper.make_node("MatMul", ["x", "f"], ["y"]),
    ]
    values = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [4, 64]), ("y", [4, 8]))
    ]
    constants = [weights, numpy_helper.from_array(scales, "scales")]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = rng.standard_normal((4, 64)).astype(np.float32)
    (result,) = create_session(model, "extended").run(None, {"x": x})
    exact = x.astype(np.float64) @ (steps * scales.astype(np.float64).repeat(32, axis=0))
    np.testing.assert_allclose(result, exact, rtol=0, atol=1e-6)  # 64 terms of at most 0.2, u = 6e-8


@pytest.mark.parametrize("level", ["none", "extended"])
def test_options_do_not_depend_on_the_machine(level: Level, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORT_INTRA_OP_NUM_THREADS", "5")
    model, _, _ = product("MatMulInteger", "uint8", "int8", constant=True)
    options = create_session(model, level).get_session_options()
    assert options.intra_op_num_threads == 1
    assert options.use_deterministic_compute
    assert options.get_session_config_entry("session.x64quantprecision") == "1"


def test_a_model_cannot_replace_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    model, _, _ = product("MatMulInteger", "uint8", "int8", constant=True)
    helper.set_model_props(model, {"ort_config": '{"session_options": {"intra_op_num_threads": 7}}'})
    monkeypatch.setenv("ORT_LOAD_CONFIG_FROM_MODEL", "1")
    with pytest.raises(RuntimeError, match="config"):
        create_session(model)


def test_sessions_are_made_in_one_place() -> None:
    made = {
        str(path.relative_to(ROOT))
        for folder in ("edgepack", "tests", "workbench")
        for path in (ROOT / folder).rglob("*.py")
        if re.search(r"InferenceSession\(|SessionOptions\(", path.read_text(encoding="utf-8"))
    }
    assert made <= {
        "edgepack/compiler/frontend/onnx/onnxruntime_session.py",
        str(Path(__file__).relative_to(ROOT)),
        "tests/pipeline/test_worker_process.py",  # a child, whose telemetry is looked for
    }

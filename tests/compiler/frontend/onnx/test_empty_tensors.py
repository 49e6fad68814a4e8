"""Tensors without elements: slices that end before they start, empty parts, sums over nothing, loops of no
trip."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.reference_run import run_whatever_serves
from edgepack.compiler.frontend.onnx.rewrites.empty import as_the_standard_says
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from workbench.compiled import Compiled
from workbench.models.builder import Graph

INPUTS = {"x": np.arange(12, dtype=np.float32).reshape(3, 4) - 5}


def _started(opset: int = 18) -> tuple[Graph, str, str]:
    """A graph, its input ``x`` of 3 x 4, and what a Slice from 2 to 1 leaves of that: 0 x 4."""
    g = Graph("nothing", opset=opset)
    x = g.input("x", [3, 4])
    return g, x, g.op("Slice", x, g.const([2]), g.const([1]))


def _operators() -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """A model of many operators that read nothing, and what each gives."""
    g, x, e = _started()
    values: dict[str, np.ndarray] = {}
    w = g.weight(4, 5)
    number = g.op("ReduceSum", x, keepdims=0)
    total, empty = np.float32(INPUTS["x"].sum()), np.zeros((0, 4), np.float32)

    def gives(value: np.ndarray, op: str, *operands: str, **about: object) -> None:
        name = g.op(op, *operands, **about)
        g.output(name, str(value.dtype))
        values[name] = value

    def full(shape: tuple[int, ...], number: float) -> np.ndarray:
        return np.full(shape, number, np.float32)

    gives(empty, "Identity", e)
    gives(np.zeros((3, 0), np.float32), "Slice", x, g.const([0]), g.const([2]), g.const([1]), g.const([-1]))
    gives(INPUTS["x"], "Concat", e, x, e, axis=0)
    gives(empty, "Concat", e, e, axis=0)
    gives(np.maximum(INPUTS["x"], 0), "Relu", g.op("Concat", x, g.op("Add", e, g.weight(1, 4)), axis=0))
    for op, over in {
        "Sum": 0,
        "Prod": 1,
        "Max": -np.inf,
        "Min": np.inf,
        "L2": 0,
        "LogSumExp": -np.inf,
    }.items():
        gives(full((1, 4), over), f"Reduce{op}", e, g.const([0]))
    gives(full((), 0), "ReduceL1", e, keepdims=0)
    gives(np.zeros((0, 1), np.float32), "ReduceMean", e, g.const([1]))
    integers = g.op("Cast", e, to=TensorProto.INT32)
    gives(np.full(4, np.iinfo(np.int32).min, np.int32), "ReduceMax", integers, g.const([0]), keepdims=0)
    gives(full((4, 4), 0), "MatMul", g.op("Transpose", e), e)
    gives(full((4, 4), total), "Add", g.op("MatMul", g.op("Transpose", e), e), number)
    gives(np.zeros((0, 5), np.float32), "MatMul", e, w)
    gives(full((4, 4), 2 * total), "Gemm", e, e, number, transA=1, beta=2.0)
    gives(full((4, 4), 0), "Einsum", e, e, equation="ij,ik->jk")
    gives(full((2, 4), 3), "Pad", e, g.const([1, 0, 1, 0]), g.const(3.0))
    gives(full((2, 4), total), "Pad", e, g.const([1, 0, 1, 0]), number)
    gives(np.zeros((0, 4), np.float32), "Pad", x, g.const([-2, 0, -1, 0]))
    gives(np.zeros((0, 3, 4), np.float32), "Expand", g.op("Unsqueeze", x, g.const([0])), g.const([0, 3, 4]))
    gives(np.zeros((3, 0), np.float32), "Tile", x, g.const([1, 0]))
    gives(np.zeros((2, 0), np.int64), "NonZero", e)
    gives(empty, "Compress", x, g.const(np.zeros(3, bool)), axis=0)
    gives(INPUTS["x"][1:2], "Compress", x, g.const(np.asarray([False, True])), axis=0)
    gives(np.zeros((2, 0, 5), np.float32), "Reshape", e, g.const([2, 0, 5]), allowzero=1)
    gives(np.zeros((3, 0, 2), np.float32), "Gather", x, g.const(np.zeros((0, 2), np.int64)), axis=1)
    gives(INPUTS["x"], "ScatterND", x, g.const(np.zeros((0, 1), np.int64)), e)
    gives(INPUTS["x"], "ScatterElements", x, g.const(np.zeros((0, 4), np.int64)), e)
    gives(np.asarray([0, 4]), "Shape", e)
    gives(
        np.zeros((0, 4), bool),
        "Where",
        g.op("Greater", e, number),
        g.op("IsNaN", e),
        g.const(np.asarray(True)),
    )
    gives(empty, "Softmax", e, axis=0)
    _quantised_and_sized(g, e, gives)
    scored = g.op("Reshape", e, g.const([1, 1, 0]), allowzero=1)
    gives(np.zeros((0, 3), np.int64), "NonMaxSuppression", g.const(np.zeros((1, 0, 4), np.float32)), scored)
    bias = g.op("ReduceMax", x, g.const([1]), keepdims=0)
    padded = g.op("Reshape", e, g.const([1, 0, 4]), allowzero=1)
    filtered = np.repeat(INPUTS["x"].max(1)[None, :, None], 2, 2)
    gives(filtered, "Conv", padded, g.const(np.zeros((3, 0, 3), np.float32)), bias)
    return g.model(), values


def _quantised_and_sized(g: Graph, e: str, gives: Callable[..., None]) -> None:
    """Of the model of :func:`_operators`, those of quantised numbers, of ONNX Runtime's, and of sizes."""
    step, zero = g.const(0.1), g.const(np.asarray(3, np.uint8))
    quantised = g.op("QuantizeLinear", e, step, zero)
    pair = [g.op("Transpose", quantised), step, zero, quantised, step, zero, step, zero]
    gives(np.full((4, 4), 3, np.uint8), "QLinearMatMul", *pair)
    gives(np.zeros((4, 4), np.float32), "FusedMatMul", e, e, domain="com.microsoft", transA=1)
    image = g.op("Reshape", e, g.const([1, 0, 2, 2]), allowzero=1)
    gives(np.zeros((1, 0, 4, 4), np.float32), "Resize", image, "", "", g.const([1, 0, 4, 4]))


def _slice_of_attributes() -> onnx.ModelProto:
    g = Graph("old", opset=9)
    x = g.input("x", [3, 4])
    g.output(g.op("Concat", g.op("Slice", x, starts=[2], ends=[1]), x, axis=0, name="y"))
    return g.model()


def _branches() -> onnx.ModelProto:
    """An If of which one result has elements, and two have none."""
    g, x, e = _started()
    w = g.weight(4, 4)
    positive = g.op("Greater", g.op("ReduceSum", x, keepdims=0), g.const(0.0))

    def branch(name: str, op: str, *more: str) -> onnx.GraphProto:
        names = [f"{name}{i}" for i in range(3)]
        nodes = [helper.make_node(op, [one, *more], [to]) for one, to in zip((e, x, e), names, strict=True)]
        return helper.make_graph(
            nodes, name, [], [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names]
        )

    branches = {"then_branch": branch("a", "MatMul", w), "else_branch": branch("b", "Neg")}
    some, y, none = g.ops("If", positive, outputs=3, name="chosen", **branches)
    g.output(g.op("Concat", some, y, none, axis=0, name="y"))
    g.output(none)
    return g.model()


def _loop(trips: int) -> onnx.ModelProto:
    """A loop that carries nothing and something, and stacks both."""
    g, x, e = _started()
    g.const(g.rng.normal(0, 0.3, (4, 4)).astype(np.float32), name="w")
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["on"], ["goes_on"]),
            helper.make_node("Relu", ["none"], ["no_more"]),
            helper.make_node("MatMul", ["some", "w"], ["more"]),
            helper.make_node("Identity", ["no_more"], ["part"]),
            helper.make_node("Tanh", ["more"], ["other"]),
        ],
        "body",
        [
            info("trip", TensorProto.INT64, []),
            info("on", TensorProto.BOOL, []),
            info("none", TensorProto.FLOAT, [0, 4]),
            info("some", TensorProto.FLOAT, [3, 4]),
        ],
        [
            info("goes_on", TensorProto.BOOL, []),
            info("no_more", TensorProto.FLOAT, [0, 4]),
            info("more", TensorProto.FLOAT, [3, 4]),
            info("part", TensorProto.FLOAT, [0, 4]),
            info("other", TensorProto.FLOAT, [3, 4]),
        ],
    )
    for name in g.ops("Loop", g.const(trips), "", e, x, outputs=4, body=body, name="y"):
        g.output(name)
    return g.model()


def _recurrent(steps: int, batch: int) -> onnx.ModelProto:
    g, x, e = _started()
    sequence = g.op("Reshape", e, g.const([steps, batch, 4]), allowzero=1)
    state = g.op("Slice", x, g.const([0, 0]), g.const([batch, 2]))
    start = g.op("Unsqueeze", state, g.const([0]))
    weights = [g.weight(1, 8, 4), g.weight(1, 8, 2)]
    for name in g.ops("LSTM", sequence, *weights, "", "", start, start, outputs=3, hidden_size=2, name="y"):
        g.output(name)
    return g.model()


def _empty_input() -> onnx.ModelProto:
    g = Graph("input")
    x, past = g.input("x", [3, 4]), g.input("past", [0, 4])
    g.output(g.op("Concat", past, x, axis=0, name="y"))
    g.output(g.op("Relu", past, name="z"))
    return g.model()


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "operators": lambda: _operators()[0],
    "slice of attributes": _slice_of_attributes,
    "branches": _branches,
    "a long loop": lambda: _loop(500),
    "no trip": lambda: _loop(0),
    "no steps": lambda: _recurrent(0, 1),
    "no sequences": lambda: _recurrent(3, 0),
    "an empty input": _empty_input,
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled({name: make() for name, make in MODELS.items()}, tmp_path_factory.mktemp("empty"))


def test_operators_that_read_nothing(compiled: Compiled) -> None:
    got = compiled.run("operators", INPUTS)
    for name, value in _operators()[1].items():
        assert (got[name].shape, got[name].dtype) == (value.shape, value.dtype), name
        np.testing.assert_array_equal(got[name], value, name)


@pytest.mark.parametrize("name", [name for name in MODELS if name != "operators"])
def test_against_the_reference(compiled: Compiled, name: str) -> None:
    """ONNX Runtime's own results, but of a recurrent layer without steps or sequences, for which it ends."""
    inputs = {**INPUTS, **({"past": np.zeros((0, 4), np.float32)} if name == "an empty input" else {})}
    got = compiled.run(name, inputs)
    expected, _, source = run_whatever_serves(compiled.models[name], inputs)
    assert source.startswith("onnxruntime")
    for output, value in expected.items():
        assert (got[output].shape, got[output].dtype) == (value.shape, value.dtype), output
        np.testing.assert_allclose(got[output], value, atol=1e-6, err_msg=output)


def test_a_layer_without_steps_has_the_states_that_it_begins_with(compiled: Compiled) -> None:
    got = compiled.run("no steps", INPUTS)
    assert got["y"].shape == (0, 1, 1, 2)
    for name in ("y_1", "y_2"):
        np.testing.assert_array_equal(got[name], INPUTS["x"][None, :1, :2])


@pytest.mark.parametrize("op", ["ArgMax", "ReduceMean", "ReduceLogSum"])
def test_what_the_standard_does_not_define_is_refused(op: str) -> None:
    g, _, e = _started(13)
    if op == "ReduceLogSum":  # minus infinity is no integer
        e = g.op("Cast", e, to=TensorProto.INT64)
    dtype = "float32" if op == "ReduceMean" else "int64"
    g.output(g.op(op, e, name="y", **({"axis": 0} if op == "ArgMax" else {"axes": [0]})), dtype)
    with pytest.raises(RefusedNodesError, match=r"a tensor of 0 x 4, which has no elements") as caught:
        import_model(g.model())
    assert f"The {op} node" in caught.value.message
    assert caught.value.hint


def test_no_trips_of_what_nobody_knows_the_shape_of_are_refused() -> None:
    """A stacked result has the shape of one trip's."""
    model = _loop(0)
    loop = next(node for node in model.graph.node if node.op_type == "Loop")
    body = next(a.g for a in loop.attribute if a.name == "body")
    body.node[4].op_type = "NonZero"
    body.output[4].CopyFrom(helper.make_tensor_value_info("other", TensorProto.INT64, None))
    del model.graph.output[3]
    with pytest.raises(RefusedNodesError, match=r"no trips, and the shape of 'other', which it stacks"):
        import_model(model)


def test_a_reference_without_recurrent_layers_is_the_model_itself() -> None:
    model = _loop(3)
    assert as_the_standard_says(model) is model

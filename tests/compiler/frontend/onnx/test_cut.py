"""A model cut at tensors: what is left, what it is refused for, and the cuts around nodes that cannot be
compiled, which are followed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.compiler.frontend.onnx.suggest_cut import suggest_cuts
from edgepack.errors import ConfigError, ModelError
from workbench.models import build
from workbench.models.builder import Graph

Arrays = dict[str, np.ndarray]


def network(middle: str = "Neg", domain: str = "") -> onnx.ModelProto:
    """Two convolutions, ``middle`` between them, a skip around both and a shape that is read off it."""
    g = Graph("net", seed=1)
    x = g.input("x", ["n", 3, 8, 8])
    first = g.op("Relu", g.op("Conv", x, g.weight(4, 3, 3, 3), name="conv1", pads=[1] * 4), name="relu1")
    both = g.op("Concat", *g.ops("Split", first, axis=1, outputs=2, name="half"), axis=1, name="both")
    g.op(middle, both, name="strange")
    g.nodes[-1].domain = domain
    second = g.op("Conv", "strange", g.weight(4, 4, 3, 3), name="conv2", pads=[1] * 4)
    flat = g.op("Reshape", second, g.const([-1, 64]))
    back = g.op("Reshape", flat, g.op("Shape", first))
    g.output(g.op("Add", back, first, name="y"), shape=["n", 4, 8, 8])
    model = g.model()
    declared = helper.make_tensor_value_info("strange", TensorProto.FLOAT, ["n", 4, 8, 8])
    model.graph.value_info.append(declared)
    return model


def saved(model: onnx.ModelProto, folder: Path) -> Path:
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    return path


def run(model: onnx.ModelProto, given: Arrays) -> Arrays:
    names = [value.name for value in model.graph.output]
    inputs = {value.name: given[value.name] for value in model.graph.input}
    return dict(zip(names, create_session(model).run(names, inputs), strict=True))


@pytest.fixture
def x() -> Arrays:
    return {"x": np.random.default_rng(5).standard_normal((2, 3, 8, 8)).astype("f4")}


def test_two_halves_compute_what_the_whole_does(tmp_path: Path, x: Arrays) -> None:
    whole = network()
    path = saved(whole, tmp_path)
    places = ["both", "relu1"]
    dims = {"n": 2}
    first = open_model(path, ImportOptions(dims=dims, outputs=places))
    second = open_model(path, ImportOptions(dims=dims, inputs=[",".join(places)]))
    assert [value.name for value in first.graph.output] == [v.name for v in second.graph.input] == places
    assert {node.op_type for node in second.graph.node} & {"Split", "Relu", "Shape"} == set()
    assert len(first.graph.initializer) + len(second.graph.initializer) == len(whole.graph.initializer)
    expected = run(open_model(path, ImportOptions(dims=dims)), x)
    np.testing.assert_array_equal(run(second, run(first, x))["y"], expected["y"])


def test_an_input_that_is_still_needed_stays_behind_the_named_ones(tmp_path: Path) -> None:
    whole = network()
    model = open_model(saved(whole, tmp_path), ImportOptions(shapes={"x": (2, 3, 8, 8)}, inputs=["half_1"]))
    assert [value.name for value in model.graph.input] == ["half_1", "x"]
    create_session(model)  # the other half is still computed, and no tensor made twice


def test_shapes_of_new_inputs_may_be_given(tmp_path: Path) -> None:
    path = saved(network(), tmp_path)
    shapes = {"strange": (3, 4, 8, 8)}
    model = open_model(path, ImportOptions(shapes=shapes, inputs=["strange"], outputs=["conv2"]))
    assert [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim] == [3, 4, 8, 8]
    notes: list[str] = []
    model = open_model(path, ImportOptions(inputs=["strange"], outputs=["conv2"]), notes)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 1
    assert "(--dim n=... gives another size)" in notes[0]


def test_a_type_that_cannot_be_inferred_is_asked_for(tmp_path: Path) -> None:
    whole = network("Strange", "my.ops")
    del whole.graph.value_info[:]
    path = saved(whole, tmp_path)
    sizes: dict[str, Any] = {"shapes": {"strange": (2, 4, 8, 8)}, "outputs": ["conv2"]}
    with pytest.raises(ConfigError, match=r"type of .* cannot be inferred") as caught:
        open_model(path, ImportOptions(inputs=["strange"], **sizes))
    assert "--inputs strange:float32" in caught.value.hint
    model = open_model(path, ImportOptions(inputs=["strange:float32"], **sizes))
    assert model.graph.input[0].type.tensor_type.elem_type == TensorProto.FLOAT


@pytest.mark.parametrize(
    ("inputs", "outputs", "message", "hint"),
    [
        (["relu_1"], [], "--inputs: the model has no tensor 'relu_1'", "Did you mean relu1"),
        ([], ["Conv_0"], "--outputs: the model has no tensor 'Conv_0'", "what it computes is conv1."),
        (["x=a.npy"], [], "no tensor 'x=a.npy'", "--input NAME=FILE.npy"),
        ([], ["quite_different"], "no tensor 'quite_different'", "netron"),
        ([], ["x"], "--outputs: 'x' is an input", "another"),
        (["const_0"], [], "'const_0' is a constant", "another"),
        (["y"], ["relu1"], "none of the outputs depends on 'y'", "The outputs are relu1"),
    ],
)
def test_a_cut_that_cannot_be_made_is_one_sentence(
    inputs: list[str], outputs: list[str], message: str, hint: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError) as caught:
        open_model(saved(network(), tmp_path), ImportOptions(dims={"n": 2}, inputs=inputs, outputs=outputs))
    assert message in caught.value.message
    assert hint in caught.value.hint


def test_the_cuts_around_an_unknown_operator_are_found_and_compute_the_rest(
    tmp_path: Path, x: Arrays
) -> None:
    whole = network("Strange", "my.ops")
    path, dims = saved(whole, tmp_path), {"n": 2}
    with pytest.raises(ModelError) as caught:
        frontend.prepare(path, ImportOptions(dims=dims), tmp_path)
    before, after = caught.value.cuts
    assert before == {
        "part": "before", "inputs": [], "outputs": ["relu1", "both"], "nodes": 4, "of": 9,
    }  # fmt: skip
    assert after == {
        "part": "after", "inputs": ["strange", "relu1"], "outputs": [], "nodes": 4, "of": 9,
    }  # fmt: skip
    parts = []
    for cut in (before, after):
        options = ImportOptions(dims=dims, inputs=cut["inputs"], outputs=cut["outputs"])
        folder = tmp_path / cut["part"]
        folder.mkdir()
        frontend.prepare(path, options, folder)
        frontend.record(path, options, folder, seed=0, inputs={})
        frontend.load(folder)  # TVM imports it
        parts.append(open_model(path, options))
    middle = run(parts[0], x)
    result = run(parts[1], {**middle, "strange": -middle["both"]})
    expected = run(open_model(saved(network(), tmp_path), ImportOptions(dims=dims)), x)
    np.testing.assert_array_equal(result["y"], expected["y"])


def test_a_cut_is_never_the_whole_model() -> None:
    """What is refused may be inside of a graph, or of another name than the file's."""
    model = build("mlp")
    bind(model, shapes={}, dims={})
    assert suggest_cuts(model, ["_if_then_branch_Squeeze"], lambda _: ()) == ()


def test_a_cut_avoids_nodes_that_are_found_to_be_refused_later(tmp_path: Path) -> None:
    """The unknown operator is seen first, the tensor of unknown length when the rest is tried."""
    g = Graph("late")
    y = g.op("Relu", g.input("x", [2, 8]), name="y")
    length = g.op("ReduceMax", y, keepdims=0, name="length")
    counted = g.op("Range", g.const(0.0), length, g.const(1.0), name="counted")
    g.nodes.append(helper.make_node("Unknown", [counted, y], ["unknown"], "unknown", domain="my.ops"))
    g.output("unknown")
    with pytest.raises(ModelError) as caught:
        frontend.prepare(saved(g.model(), tmp_path), ImportOptions(), tmp_path)
    assert [cut["outputs"] for cut in caught.value.cuts] == [["y", "length"]]


def test_the_cut_around_a_node_that_tvm_cannot_import(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is named by tensors of the file, though the importer sees the normalised model."""
    whole = network("Tan")
    path, sizes = saved(whole, tmp_path), ImportOptions(dims={"n": 2})
    frontend.prepare(path, sizes, tmp_path)
    real = frontend.convert

    def convert(builder: Any, op_name: str, *rest: Any) -> Any:
        if op_name == "Tan":
            raise ValueError("no tangent today")
        return real(builder, op_name, *rest)

    monkeypatch.setattr(frontend, "convert", convert)
    with pytest.raises(ModelError, match=r"cannot compile a node of the model \(Tan, Tan_4\)") as caught:
        frontend.load(tmp_path)
    assert {cut["part"] for cut in caught.value.cuts} == {"before", "after"}
    known = {name for node in whole.graph.node for name in node.output}
    for cut in caught.value.cuts:
        assert {*cut["inputs"], *cut["outputs"]} <= known
        open_model(path, ImportOptions(dims={"n": 2}, inputs=cut["inputs"], outputs=cut["outputs"]))


def test_a_value_read_inside_a_branch_is_kept(tmp_path: Path) -> None:
    g = Graph("branch")
    x, condition = g.input("x", [4]), g.input("condition", [], "bool")
    doubled = g.op("Add", x, x, name="double")

    def body(op: str) -> onnx.GraphProto:
        node = helper.make_node(op, [doubled], [f"{op}_out"])
        return helper.make_graph([node], op, [], [helper.make_tensor_value_info(f"{op}_out", 1, [4])])

    chosen = g.op("If", condition, then_branch=body("Neg"), else_branch=body("Abs"), name="if")
    g.output(g.op("Relu", chosen, name="relu"))
    model = open_model(saved(g.model(), tmp_path), ImportOptions(outputs=[chosen]))
    assert [node.op_type for node in model.graph.node] == ["Add", "If"]
    values = {"x": np.float32([1, -2, 3, -4]), "condition": np.asarray(True)}
    np.testing.assert_array_equal(ReferenceEvaluator(model).run(None, values)[0], -2 * values["x"])


@pytest.mark.parametrize("op", ["Loop", "LSTM"])
def test_nodes_that_are_refused_one_by_one_are_cut_out_too(op: str, tmp_path: Path) -> None:
    """A loop whose value grows, seen when its body is normalised; a layer of doubles, when it is imported."""
    g = Graph("late")
    dtype = "float64" if op == "LSTM" else "float32"
    x = g.op("Neg", g.input("x", [2, 1, 3], dtype), name="before")
    if op == "LSTM":
        weights = [g.weight(1, 16, n, dtype=dtype) for n in (3, 4)]
        y = g.op("LSTM", x, *weights, hidden_size=4, name="refused")
    else:
        info, shape = helper.make_tensor_value_info, [2, 1, 3]
        values = [info("i", TensorProto.INT64, []), info("c", TensorProto.BOOL, []), info("v", 1, shape)]
        nodes = [helper.make_node("Identity", ["c"], ["d"])]
        nodes.append(helper.make_node("Concat", ["v", "v"], ["w"], axis=0))
        body = helper.make_graph(nodes, "body", values, [info("d", TensorProto.BOOL, []), info("w", 1, None)])
        y = g.op("Loop", g.input("trips", [], "int64"), "", x, body=body, name="refused")
    g.op("Abs", y, name="y")
    g.output("y", dtype)
    with pytest.raises(ModelError) as caught:
        frontend.prepare(saved(g.model(), tmp_path), ImportOptions(), tmp_path)
        frontend.load(tmp_path)
    assert [one["operator"] for one in caught.value.refused] == [op]
    cuts = [(cut["part"], cut["inputs"], cut["outputs"]) for cut in caught.value.cuts]
    assert cuts[0] == ("before", [], ["before"])
    # The shape of what a loop carries is not known behind it.
    assert cuts[1:] == ([("after", ["refused"], [])] if op == "LSTM" else [])

"""Loops before they become branches of a plan: how many trips they make, and what need not be in them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.onnx.lighter_loops import lighten_loops
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.trip_count import MOST_TRIPS, count_trips
from workbench.compiled import Compiled
from workbench.models.evaluate import random_inputs

node = helper.make_node


def value(name: str, shape: Sequence[int] = (), dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(shape))


def of_tensorflow(
    limit: int = 40, step: int = 1, rows: int = 40, row: Sequence[int] = (1, 8)
) -> onnx.ModelProto:
    """A recurrent loop as tf2onnx writes it: counters, limits and weights are carried, and the condition is
    computed from counters.

    Args:
        row: shape of each of the sequence's.
    """
    whole = TensorProto.INT32
    names = ["counter", "time", "h", "limit", "weights", "own"]
    shapes = [(), (), (1, 8), (), (8, 8), (8, 8)]
    types = [whole, whole, TensorProto.FLOAT, whole, TensorProto.FLOAT, TensorProto.FLOAT]
    body = helper.make_graph(
        [
            node("Gather", ["sequence", "time"], ["x"], axis=0),
            node("MatMul", ["x", "weights"], ["wx"]),
            node("MatMul", ["h", "own"], ["rh"]),
            node("Add", ["wx", "rh"], ["sum"]),
            node("Tanh", ["sum"], ["h1"]),
            node("Add", ["time", "one"], ["time1"]),
            node("Add", ["counter", "one"], ["counter1"]),
            node("Exp", ["scale"], ["fixed"]),
            node("Mul", ["h1", "fixed"], ["each"]),
            node("Less", ["time1", "limit"], ["on1"]),
            node("Less", ["counter1", "most"], ["on2"]),
            node("And", ["on1", "on2"], ["on"]),
            *(node("Identity", [name], [f"{name}1"]) for name in names[3:]),
        ],
        "body",
        [
            value("i", (), TensorProto.INT64),
            value("go", (), TensorProto.BOOL),
            *map(value, names, shapes, types),
        ],
        [
            value("on", (), TensorProto.BOOL),
            *(
                value(f"{name}1", shape, dtype)
                for name, shape, dtype in zip(names, shapes, types, strict=True)
            ),
            value("each", (1, 8)),
        ],
        [numpy_helper.from_array(np.int32(step), "one")],
    )
    rng = np.random.default_rng(0)
    constants = {
        "zero": np.int32(0),
        "most": np.int32(10**6),
        "bound": np.int32(limit),
        "w": rng.standard_normal((8, 8)).astype(np.float32),
        "u": (0.3 * rng.standard_normal((8, 8))).astype(np.float32),
        "yes": np.asarray(True),
    }
    given = ["", "yes", "zero", "zero", "h0", "bound", "w", "u"]
    loop = node("Loop", given, [*(f"{name}_out" for name in names), "all"], body=body, name="loop")
    graph = helper.make_graph(
        [loop],
        "tensorflow",
        [value("sequence", (rows, *row)), value("h0", (1, 8)), value("scale", (8,))],
        [value("h_out", (1, 8)), helper.make_tensor_value_info("all", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def number(model: onnx.ModelProto, name: str) -> int:
    """Of a constant."""
    found = next(tensor for tensor in model.graph.initializer if tensor.name == name)
    return int(numpy_helper.to_array(found))


@pytest.mark.parametrize(
    ("limit", "step", "trips"), [(40, 1, 40), (41, 4, 11), (1, 1, 1), (0, 1, 1), (-3, 1, 1)]
)
def test_trips_of_counters_are_counted(limit: int, step: int, trips: int) -> None:
    model = of_tensorflow(limit, step)
    assert count_trips(model)
    (loop,) = model.graph.node
    assert (number(model, loop.input[0]), loop.input[1]) == (trips, "")
    assert not count_trips(model), "once"


def test_what_depends_on_data_is_not_counted() -> None:
    model = of_tensorflow()
    model.graph.node[0].input[5] = "last"  # the limit is an input
    model.graph.input.append(value("last", (), TensorProto.INT32))
    assert not count_trips(model)
    assert not count_trips(of_tensorflow(MOST_TRIPS + 1)), "too many to follow"


@pytest.mark.parametrize("row", [(1, 8), (8,)])
def test_a_loop_is_lightened(row: Sequence[int]) -> None:
    """What is left: the recurrent product, and a row of the product of the whole sequence."""
    model = of_tensorflow(row=row)
    assert count_trips(model)
    while lighten_loops(model):
        pass
    loop = model.graph.node[-1]
    body = attributes(loop)["body"]
    assert [n.op_type for n in model.graph.node].count("MatMul") == 1, "the sequence times the weights"
    assert "Exp" in [n.op_type for n in model.graph.node]
    found = [n.op_type for n in body.node]
    assert (found.count("MatMul"), found.count("Exp"), found.count("Gather")) == (1, 0, 1)
    assert [v.name for v in body.input[2:]] == ["time", "h"], "neither weights, nor limits, nor the counter"


def test_products_of_few_of_many_rows_stay_in_the_loop() -> None:
    """Before it they would be products of all rows."""
    model = of_tensorflow(limit=5, rows=40)
    assert count_trips(model)
    while lighten_loops(model):
        pass
    assert "MatMul" not in [n.op_type for n in model.graph.node]


def test_what_only_a_branch_passes_on_stays() -> None:
    """A branch may name a value of the graph around it as its result."""
    model = of_tensorflow()
    inner = [helper.make_graph([], name, [], [value("counter_out", (), TensorProto.INT32)]) for name in "ab"]
    model.graph.node.append(node("If", ["yes"], ["last"], then_branch=inner[0], else_branch=inner[1]))
    model.graph.output.append(value("last", (), TensorProto.INT32))
    assert count_trips(model), "so the condition does not need it"
    while lighten_loops(model):
        pass
    assert any("counter_out" in one.output for one in model.graph.node)


def test_what_is_stacked_for_nobody_is_not_computed(tmp_path: Path) -> None:
    """Of a loop whose trips the data decide it would need a room (``--max``)."""
    model = of_tensorflow()
    model.graph.node[0].input[5] = "last"
    model.graph.input.append(value("last", (), TensorProto.INT32))
    del model.graph.output[1]
    compiled = Compiled({"m": model}, tmp_path)
    for last in (1, 3, 7):
        feeds = {**random_inputs(model, 1), "last": np.array(last, np.int32)}
        expected = compiled.expected("m", feeds)
        np.testing.assert_allclose(compiled.run("m", feeds)["h_out"], expected["h_out"], 1e-5, 1e-6)
    while lighten_loops(model):
        pass
    *others, loop = model.graph.node
    body = attributes(loop)["body"]
    assert len(loop.output) == len(body.input) - 2 == len(body.output) - 1
    assert "Exp" not in [n.op_type for n in (*others, *body.node)]


@pytest.mark.parametrize(("limit", "row"), [(40, (1, 8)), (40, (8,)), (39, (1, 8)), (2, (1, 8))])
def test_it_computes_what_onnxruntime_does(tmp_path: Path, limit: int, row: Sequence[int]) -> None:
    model = of_tensorflow(limit, row=row)
    compiled = Compiled({"m": model}, tmp_path)
    compiled.check("m", seed=limit)
    assert any(kernel.branch for kernel in compiled.plan("m").kernels) == (limit > 2), "or it was written out"
    assert random_inputs(model, 1)["sequence"].shape == (40, *row)


def test_trips_are_counted_where_the_condition_is_a_constant_of_the_body() -> None:
    """As PyTorch exports scripted loops: an Identity of a constant, which is folded into the body."""
    model = of_tensorflow()
    loop = model.graph.node[0]
    body = attributes(loop)["body"]
    body.output[0].name = "always"
    body.initializer.append(numpy_helper.from_array(np.asarray(True), "always"))
    model.graph.initializer.append(numpy_helper.from_array(np.int64(7), "seven"))
    loop.input[0] = "seven"
    assert count_trips(model)
    assert (number(model, loop.input[0]), loop.input[1]) == (7, "")

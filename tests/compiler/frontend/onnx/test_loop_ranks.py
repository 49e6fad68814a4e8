"""Single elements of unlike ranks, ``[]`` and ``[1]``, that meet in branches, loops and conditions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from workbench.compiled import Compiled
from workbench.models.builder import Graph

INPUTS = {"x": np.random.default_rng(3).standard_normal((3, 4)).astype(np.float32)}


def _info(
    name: str, element: int = TensorProto.FLOAT, shape: Sequence[int] | None = None
) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element, shape)


def _branches(ranks: tuple[int, int], reader: str) -> onnx.ModelProto:
    """An If, one branch of which takes long, whose result has a rank in each; and what reads it.

    Args:
        reader: "factor", "condition" of another If, or "part" of a concatenation along its axis.
    """
    g = Graph("branches")
    x = g.input("x", [3, 4])
    w = g.weight(4, 4)
    positive = g.op("Greater", g.op("ReduceSum", x, keepdims=0), g.const(0.0))
    zero = g.const(0.0)

    def branch(name: str, rank: int, op: str, *more: str) -> onnx.GraphProto:
        shape = g.const(np.ones(rank, np.int64))
        nodes = [
            helper.make_node(op, [x, *more], [f"{name}_all"]),
            helper.make_node("ReduceSum", [f"{name}_all"], [f"{name}_sum"], keepdims=0),
            helper.make_node("Reshape", [f"{name}_sum", shape], [f"{name}_number"]),
            helper.make_node("Greater", [f"{name}_number", zero], [f"{name}_truth"]),
        ]
        element = TensorProto.BOOL if reader == "condition" else TensorProto.FLOAT
        result = _info(f"{name}_truth" if reader == "condition" else f"{name}_number", element)
        return helper.make_graph(nodes[: 4 if reader == "condition" else 3], name, [], [result])

    found = g.op(
        "If",
        positive,
        then_branch=branch("a", ranks[0], "MatMul", w),
        else_branch=branch("b", ranks[1], "Neg"),
    )
    if reader == "factor":
        g.output(g.op("Mul", x, found, name="y"))
    elif reader == "part":
        g.output(g.op("Concat", found, g.const([1.0, 2.0]), axis=0, name="y"))
    else:
        one = helper.make_graph([helper.make_node("MatMul", [x, w], ["m"])], "one", [], [_info("m")])
        other = helper.make_graph([helper.make_node("Abs", [x], ["n"])], "other", [], [_info("n")])
        g.output(g.op("If", found, then_branch=one, else_branch=other, name="y"))
    return g.model()


def _loop(
    before: Sequence[int], behind: Sequence[int], condition: Sequence[int], trips: str
) -> onnx.ModelProto:
    """A loop that carries a number of one shape before a trip, and of another one behind it.

    Args:
        condition: the shape of what decides whether there is another trip.
        trips: "counted", "given" in a run, or "" where the condition alone decides.
    """
    g = Graph("loop")
    x = g.input("x", [3, 4])
    for name, value in {
        "w": g.rng.normal(0, 0.3, (4, 4)).astype(np.float32),
        "most": np.asarray(0.9, np.float32),
        "least": np.asarray(0.3, np.float32),
        "behind": np.asarray(behind, np.int64),
        "condition": np.asarray(condition, np.int64),
    }.items():
        g.const(value, name=name)
    body = helper.make_graph(
        [
            helper.make_node("Mul", ["a", "most"], ["less"]),
            helper.make_node("Reshape", ["less", "behind"], ["a_on"]),
            helper.make_node("MatMul", ["b", "w"], ["product"]),
            helper.make_node("Add", ["product", "a_on"], ["b_on"]),
            helper.make_node("Greater", ["less", "least"], ["larger"]),
            helper.make_node("Reshape", ["larger", "condition"], ["goes_on"]),
        ],
        "body",
        [
            _info("trip", TensorProto.INT64, []),
            _info("on", TensorProto.BOOL, []),
            _info("a"),
            _info("b", shape=[3, 4]),
        ],
        [_info("goes_on", TensorProto.BOOL), _info("a_on"), _info("b_on")],
    )
    count = {"counted": lambda: g.const(100), "given": lambda: g.input("n", [], "int64"), "": str}[trips]()
    start = g.const(np.ones(before, np.float32))
    for name in g.ops("Loop", count, "", start, x, outputs=2, body=body, name="y"):
        g.output(name)
    return g.model()


MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "factor": lambda: _branches((0, 1), "factor"),
    "factor of rank 2": lambda: _branches((2, 1), "factor"),
    "condition": lambda: _branches((1, 0), "condition"),
    "part": lambda: _branches((1, 1), "part"),
    "a loop of many trips": lambda: _loop((), (1,), (1,), "counted"),
    "a loop of given trips": lambda: _loop((1,), (), (1, 1), "given"),
    "a loop until": lambda: _loop((), (1, 1), (), ""),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled({name: make() for name, make in MODELS.items()}, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", MODELS)
def test_against_onnxruntime(compiled: Compiled, name: str) -> None:
    for sign in (1, -1):
        inputs = {
            "x": sign * INPUTS["x"],
            **({"n": np.asarray(4)} if name == "a loop of given trips" else {}),
        }
        got, expected = compiled.run(name, inputs), compiled.expected(name, inputs)
        for output, value in expected.items():
            assert got[output].shape == value.shape, output
            np.testing.assert_allclose(got[output], value, rtol=1e-4, atol=1e-5, err_msg=output)


def test_a_result_has_the_rank_that_what_reads_it_needs() -> None:
    """One branch gives ``[]``, which a concatenation does not take: the other one does."""
    model = import_model(_branches((0, 1), "part"))
    assert [spec.shape for spec in model.signature.outputs] == [(3,)]


def test_a_rank_that_grows_with_each_trip_is_refused() -> None:
    model = _loop((), (), (), "given")
    body = next(a.g for node in model.graph.node for a in node.attribute if a.name == "body")
    body.node[1].op_type = "Unsqueeze"
    model.graph.initializer.append(helper.make_tensor("first", TensorProto.INT64, [1], [0]))
    body.node[1].input[1] = "first"
    with pytest.raises(RefusedNodesError):
        import_model(model)

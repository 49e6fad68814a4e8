"""Positions that no data decide are in range behind the conditions of an access, or the model is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from tvm import relax, te, tirx

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.index_bounds import Bounds
from edgepack.compiler.graph.legalize import legalize
from edgepack.compiler.graph.lower import lower, lower_with_graphs
from edgepack.compiler.graph.static_positions import wild_access
from edgepack.errors import ModelError

Array = np.ndarray[Any, Any]
Element = Callable[[Any, Any], Any]


def _access(element: Element, extent: int = 12) -> tuple[Any, int] | None:
    """That of ``y[i] = element(x, i)``, x of nine elements."""
    x = te.placeholder((9,), "float32", "x")
    y = te.compute((extent,), lambda i: element(x, i), name="y")
    function = te.create_prim_func([x, y])
    return wild_access(function, Bounds(function))


def _behind(condition: Any, value: Any) -> Any:
    return tirx.if_then_else(condition, value, tirx.const(0.0))


INSIDE: dict[str, Element] = {
    "padding": lambda x, i: _behind(tirx.all(i >= 2, i < 11), x[i - 2]),
    "the other side of a condition": lambda x, i: tirx.if_then_else(i >= 9, x[i - 9], x[i]),
    "the other side of two": lambda x, i: tirx.if_then_else(tirx.any(i < 3, i >= 11), x[0], x[i - 3]),
    "a sum that is compared": lambda x, i: _behind(tirx.all(i * 2 - 4 >= 0, i * 2 - 4 < 9), x[i * 2 - 4]),
    "what is negated": lambda x, i: _behind(tirx.Not(i >= 9), x[i]),
    "a mirror": lambda x, i: x[tirx.Select(i < 9, i, 16 - i)],
    "a remainder": lambda x, i: x[tirx.truncmod(i * 5, 9)],
}

OUTSIDE: dict[str, Element] = {
    "nothing asked": lambda x, i: x[i],
    "one too many": lambda x, i: _behind(i < 10, x[i]),
    "one before": lambda x, i: _behind(tirx.all(i >= 1, i < 10), x[i - 2]),
    "the wrong side": lambda x, i: tirx.if_then_else(i >= 9, x[i], x[i - 3]),
    "a mirror that is too wide": lambda x, i: x[tirx.Select(i < 9, i, 20 - i)],
    "a choice that reads both": lambda x, i: tirx.Select(i < 9, x[i], tirx.const(0.0)),
}


@pytest.mark.parametrize("name", INSIDE)
def test_what_is_inside_is_seen_to_be(name: str) -> None:
    assert _access(INSIDE[name]) is None


def test_a_loop_of_no_trip_reads_nothing() -> None:
    x = te.placeholder((0,), "float32", "x")
    k = te.reduce_axis((0, 0), "k")
    function = te.create_prim_func([x, te.compute((1,), lambda i: te.sum(x[k], axis=k), name="y")])
    assert wild_access(function, Bounds(function)) is None


@pytest.mark.parametrize("name", OUTSIDE)
def test_what_is_outside_is_found(name: str) -> None:
    found = _access(OUTSIDE[name])
    assert found is not None
    assert (found[0].name, found[1]) == ("x", 0)


def _model(operator: str, constants: list[Array], *, taken: bool, **attributes: Any) -> onnx.ModelProto:
    """The node on x of 3 x 4, or in a branch of an If that nobody need take."""
    tensors = [numpy_helper.from_array(array, f"c{n}") for n, array in enumerate(constants)]
    node = helper.make_node(operator, ["x", *(t.name for t in tensors)], ["y"], "node", **attributes)
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (3, 4))
    if taken:
        graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], tensors)
    else:
        number = onnx.TensorProto.FLOAT
        total = helper.make_node("ReduceSum", ["y"], ["sum"], keepdims=0)
        one = helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.float32(1)))
        results = [helper.make_tensor_value_info(name, number, []) for name in ("sum", "one", "z")]
        graphs = {
            "then_branch": helper.make_graph([node, total], "then", [], results[:1], tensors),
            "else_branch": helper.make_graph([one], "else", [], results[1:2]),
        }
        condition = helper.make_tensor_value_info("taken", onnx.TensorProto.BOOL, [])
        choice = helper.make_node("If", ["taken"], ["z"], **graphs)
        graph = helper.make_graph([choice], "g", [condition, x], results[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)


#: Operators whose operands do not fit each other, which ONNX's shape inference does not see.
MISFITS: dict[str, tuple[str, list[Array], dict[str, Any]]] = {
    "more rows than there are": ("GatherElements", [np.zeros((5, 4), np.int64)], {"axis": 1}),
    "updates of more rows": (
        "ScatterElements",
        [np.zeros((5, 2), np.int64), np.ones((5, 2), np.float32)],
        {"axis": 1},
    ),
    "more batches": ("GatherND", [np.zeros((5, 1), np.int64)], {"batch_dims": 1}),
    "a mirror wider than the image": ("Pad", [np.asarray([0, 0, 0, 9])], {"mode": "reflect"}),
}


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("name", MISFITS)
def test_operands_that_do_not_fit_each_other_are_refused(name: str, *, taken: bool) -> None:
    operator, constants, attributes = MISFITS[name]
    with pytest.raises(ModelError):
        imported = import_model(_model(operator, constants, taken=taken, **attributes))
        lower_with_graphs(imported.module, imported.graphs)


#: Shapes of a recurrent layer's operands: weights, of the state, bias, lengths, states.
LAYER = {
    **{"w": (1, 16, 3), "r": (1, 16, 4), "b": (1, 32), "lens": (2,)},
    **{"h": (1, 2, 4), "c": (1, 2, 4), "p": (1, 12)},
}


@pytest.mark.parametrize(
    ("operand", "shape"),
    [
        *(("w", (1, 9, 3)), ("w", (2, 16, 3)), ("r", (1, 8, 2)), ("b", (1, 8)), ("lens", (1,))),
        *(("h", (1, 1, 4)), ("c", (1, 2, 2)), ("p", (1, 3))),
    ],
)
def test_a_recurrent_layer_whose_operands_do_not_fit_is_refused(operand: str, shape: tuple[int, ...]) -> None:
    shapes = {**LAYER, operand: shape}
    kinds = {name: np.int32 if name == "lens" else np.float32 for name in shapes}
    tensors = [numpy_helper.from_array(np.ones(of, kinds[name]), name) for name, of in shapes.items()]
    x = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (5, 2, 3))
    node = helper.make_node("LSTM", ["x", *shapes], ["y"], "node", hidden_size=4)
    graph = helper.make_graph([node], "g", [x], [onnx.ValueInfoProto(name="y")], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=8)
    with pytest.raises(ModelError):
        lower(import_model(model).module)


def test_what_is_refused_while_operators_are_legalised_is_an_error_of_the_model() -> None:
    """TVM makes an error of its own of what is raised in a callback: that would be a defect of edgepack's."""
    builder = relax.BlockBuilder()
    data, at = (
        relax.Var("x", relax.TensorType((0, 4), "float32")),
        relax.Var("i", relax.TensorType((2,), "int64")),
    )
    with builder.function("main", [data, at]):
        builder.emit_func_output(builder.emit(relax.op.take(data, at, axis=0)))
    with pytest.raises(ModelError, match="elements of a dimension that has none"):
        legalize(builder.finalize())

"""Constant indices that are out of range are refused in every graph of a model, whoever would run it."""

from __future__ import annotations

import re

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.errors import ModelError
from workbench.models.indexed import INDEXED, Where

#: Graphs of a model; of each operator and end one, in turn.
GRAPHS: tuple[Where, ...] = ("graph", "branch", "loop")

CASES = [
    (name, end, GRAPHS[(number + turn) % 3])
    for number, name in enumerate(INDEXED)
    for turn, end in enumerate(("behind the last", "before the first", "least", "greatest"))
]


def _wrong(name: str, end: str) -> np.ndarray:
    """Right indices, but for the last one."""
    one = INDEXED[name]
    ids, extent = one.indices.copy(), int(one.ends.reshape(-1)[-1])
    kind = np.iinfo(ids.dtype)
    before = -1 if one.lengths or one.negative == "first" else -extent - 1
    ids.reshape(-1)[-1] = {
        "behind the last": extent + one.lengths,
        "before the first": before,
        "least": kind.min,
        "greatest": kind.max,
    }[end]
    return ids


@pytest.mark.parametrize(("name", "end", "where"), CASES)
def test_a_constant_index_out_of_range_is_refused_in_every_graph(name: str, end: str, where: Where) -> None:
    ids = _wrong(name, end)
    with pytest.raises(ModelError) as refusal:
        import_model(INDEXED[name].model(ids, where))
    said = rf"node.* has the (index|length) {ids.reshape(-1)[-1]} along an axis of \d+\.$"
    assert re.search(said, refusal.value.message), refusal.value.message


@pytest.mark.parametrize("name", INDEXED)
def test_constant_indices_that_are_right_are_taken(name: str) -> None:
    import_model(INDEXED[name].model(INDEXED[name].indices))


def test_an_index_that_constants_make_is_one() -> None:
    """Known when constants are folded."""
    model = INDEXED["gather"].model(np.asarray([4, 5]))
    node = onnx.helper.make_node("Add", ["ids", "ids"], ["twice"])
    model.graph.node[0].input[1] = "twice"
    model.graph.node.insert(0, node)
    with pytest.raises(ModelError, match="index 10 along an axis of 9"):
        import_model(model)


def test_nothing_is_read_of_a_dimension_without_elements() -> None:
    model = INDEXED["gather"].model()
    model.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 0
    with pytest.raises(ModelError):
        _lowered(model)


@pytest.mark.parametrize("value", [-1, -(2**63), 2**31])
@pytest.mark.parametrize(
    ("operator", "operand"), [("Tile", 1), ("Expand", 1), ("OneHot", 1), ("ConstantOfShape", 0), ("TopK", 1)]
)
def test_a_size_that_no_tensor_has_is_refused(operator: str, operand: int, value: int) -> None:
    sizes = {"Tile": [1, 1, value], "Expand": [1, 1, value], "OneHot": value}.get(operator, [value])
    constants = {operand: np.asarray(sizes, np.int64)}
    if operator == "OneHot":
        constants[2] = np.zeros(2, np.float32)
    g = onnx.helper
    names = [f"c{n}" if n in constants else "x" for n in range(operand + 1)]
    names += ["c2"] if operator == "OneHot" else []
    kind = np.int64 if operator == "OneHot" else np.float32
    x = g.make_tensor_value_info("x", g.np_dtype_to_tensor_dtype(np.dtype(kind)), (2, 3, 4))
    node = g.make_node(operator, names, ["y", "z"] if operator == "TopK" else ["y"])
    tensors = [numpy_helper.from_array(array, f"c{n}") for n, array in constants.items()]
    graph = g.make_graph([node], "size", [x], [onnx.ValueInfoProto(name="y")], tensors)
    with pytest.raises(ModelError):
        _lowered(g.make_model(graph, opset_imports=[g.make_opsetid("", 18)], ir_version=8))


@pytest.mark.parametrize("scale", [0.0, -1.0, np.nan, np.inf, 1e30])
def test_an_image_is_not_resized_by_what_is_no_factor(scale: float) -> None:
    g = onnx.helper
    x = g.make_tensor_value_info("x", onnx.TensorProto.FLOAT, (1, 1, 4, 4))
    node = g.make_node("Resize", ["x", "", "scales"], ["y"], "node")
    scales = numpy_helper.from_array(np.asarray([1, 1, scale, 1], np.float32), "scales")
    graph = g.make_graph([node], "resize", [x], [onnx.ValueInfoProto(name="y")], [scales])
    with pytest.raises(ModelError):
        _lowered(g.make_model(graph, opset_imports=[g.make_opsetid("", 18)], ir_version=8))


def _lowered(model: onnx.ModelProto) -> None:
    from edgepack.compiler.graph.lower import lower

    lower(import_model(model).module)

"""Elementwise operators between quantised tensors become tables, and others stay what they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.onnx.byte_tables import with_byte_tables
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session

NODE = helper.make_node

#: Nodes between the float tensor "x" and the float tensor "y", by what they are.
CHAINS: dict[str, list[onnx.NodeProto]] = {
    "SiLU": [NODE("Sigmoid", ["x"], ["s"]), NODE("Mul", ["x", "s"], ["y"])],
    "hard-swish": [
        NODE("Add", ["x", "three"], ["a"]),
        NODE("Clip", ["a", "zero", "six"], ["b"]),
        NODE("Div", ["b", "six"], ["c"]),
        NODE("Mul", ["x", "c"], ["y"]),
    ],
    "GELU": [
        NODE("Div", ["x", "root"], ["a"]),
        NODE("Erf", ["a"], ["b"]),
        NODE("Add", ["b", "one"], ["c"]),
        NODE("Mul", ["x", "c"], ["d"]),
        NODE("Mul", ["d", "half"], ["y"]),
    ],
    "rounded between": [
        NODE("Tanh", ["x"], ["t"]),
        NODE("QuantizeLinear", ["t", "t_scale", "t_zero"], ["tq"]),
        NODE("DequantizeLinear", ["tq", "t_scale", "t_zero"], ["td"]),
        NODE("Add", ["td", "x"], ["y"]),
    ],
}

#: The same of what has no table.
OTHERS: dict[str, list[onnx.NodeProto]] = {
    "a bound": [NODE("Relu", ["x"], ["y"])],
    "a number for each channel": [NODE("Mul", ["x", "channels"], ["y"])],
    "two tensors": [NODE("Add", ["x", "other"], ["y"])],
    "no elementwise operator": [NODE("Softmax", ["x"], ["y"])],
}


def _model(nodes: Sequence[onnx.NodeProto], source: str = "uint8", made: str = "uint8") -> onnx.ModelProto:
    """x, quantised, to what the nodes make of it, quantised again, and the integers of that in floats."""
    numbers = {
        "x_scale": np.float32(0.04),
        "x_zero": np.array(-7 if source == "int8" else 121, source),
        "y_scale": np.float32(0.03),
        "y_zero": np.array(-100 if made == "int8" else 9, made),
        "t_scale": np.float32(1 / 127),
        "t_zero": np.uint8(128),
        "three": np.float32([3]),
        "channels": np.float32([1, 2, 3, 4]),
        **{name: np.float32(n) for name, n in (("zero", 0), ("six", 6), ("one", 1), ("half", 0.5))},
        "root": np.float32(np.sqrt(2)),
    }
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64, 4]) for name in ("input", "other")
    ]
    graph = helper.make_graph(
        [
            NODE("QuantizeLinear", ["input", "x_scale", "x_zero"], ["xq"]),
            NODE("DequantizeLinear", ["xq", "x_scale", "x_zero"], ["x"]),
            *nodes,
            NODE("QuantizeLinear", ["y", "y_scale", "y_zero"], ["yq"]),
            NODE("DequantizeLinear", ["yq", "y_scale", "y_zero"], ["output"]),
        ],
        "chain",
        inputs,
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [2, 64, 4])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in numbers.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _operators(model: onnx.ModelProto) -> list[str]:
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("types", [("uint8", "uint8"), ("int8", "int8"), ("uint8", "int8")], ids="-".join)
@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_one_tensor_is_a_table(name: str, types: tuple[str, str]) -> None:
    model = _model(CHAINS[name], *types)
    every = np.linspace(-6, 6, 512, dtype=np.float32).reshape(2, 64, 4)  # all 256 integers and both ends
    feeds = {"input": every, "other": every}
    (expected,) = create_session(model).run(None, feeds)
    made = with_byte_tables(model)
    assert _operators(made) == ["QuantizeLinear", "Cast", "Gather", "DequantizeLinear"]
    np.testing.assert_array_equal(create_session(made).run(None, feeds)[0], expected)


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    model = _model(OTHERS[name])
    before = model.SerializeToString()
    assert with_byte_tables(model).SerializeToString() == before


def test_what_also_floats_read_is_kept_beside_the_table() -> None:
    model = _model(CHAINS["SiLU"])
    model.graph.output.append(helper.make_tensor_value_info("s", TensorProto.FLOAT, [2, 64, 4]))
    assert _operators(with_byte_tables(model)) == [
        *("QuantizeLinear", "DequantizeLinear", "Sigmoid", "Cast", "Gather", "DequantizeLinear"),
    ]


def test_a_weight_is_no_tensor_that_a_table_is_made_of() -> None:
    model = _model(CHAINS["SiLU"])
    model.graph.initializer.append(numpy_helper.from_array(np.zeros((2, 64, 4), np.uint8), "xq"))
    del model.graph.node[0]
    assert "Gather" not in _operators(with_byte_tables(model))


def test_a_number_that_becomes_a_vector_has_no_table() -> None:
    model = _model(CHAINS["hard-swish"])
    for value in (*model.graph.input, *model.graph.output):
        del value.type.tensor_type.shape.dim[:]
    model.graph.value_info.append(helper.make_tensor_value_info("xq", TensorProto.UINT8, []))
    assert "Gather" not in _operators(with_byte_tables(model))


def test_names_of_a_model_are_not_taken() -> None:
    model = _model(CHAINS["SiLU"])
    for name, node in (("xq/positions", "Neg"), ("yq/table", "Abs")):
        model.graph.node.insert(0, NODE(node, ["other"], [name]))
        model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64, 4]))
    every = np.linspace(-6, 6, 512, dtype=np.float32).reshape(2, 64, 4)
    feeds = {"input": every, "other": every}
    expected = create_session(model).run(None, feeds)
    made = with_byte_tables(model)
    assert "Gather" in _operators(made)
    for found, wanted in zip(create_session(made).run(None, feeds), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)

"""The ONNX file whose results :mod:`tests.support.worker` gives."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.support.worker import COLUMNS, ROWS, constants


def write_model(path: Path) -> Path:
    """y = relu(x * scale + bias) and its sign as int8, as a real ONNX file."""
    scale, bias = constants()
    nodes = [
        helper.make_node("Mul", ["input", "scale"], ["scaled"], name="Mul_0"),
        helper.make_node("Add", ["scaled", "bias"], ["sum"], name="Add_0"),
        helper.make_node("Relu", ["sum"], ["output"], name="Relu_0"),
        helper.make_node("Greater", ["sum", "zero"], ["positive"], name="Greater_0"),
        helper.make_node("Cast", ["positive"], ["sign"], name="Cast_0", to=TensorProto.INT8),
    ]
    zero = numpy_helper.from_array(scale[:1] * 0, "zero")
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [ROWS, COLUMNS])],
        [
            helper.make_tensor_value_info("output", TensorProto.FLOAT, [ROWS, COLUMNS]),
            helper.make_tensor_value_info("sign", TensorProto.INT8, [ROWS, COLUMNS]),
        ],
        [numpy_helper.from_array(scale, "scale"), numpy_helper.from_array(bias, "bias"), zero],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    path.write_bytes(model.SerializeToString())
    onnx.checker.check_model(str(path))
    return path

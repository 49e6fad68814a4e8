"""Writes a small model with an operator that no engine knows, to the file that is named."""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model() -> onnx.ModelProto:
    """Two products with a HardShrink of the domain ``my.ops`` between them."""
    rng = np.random.default_rng(0)
    weights = [
        numpy_helper.from_array(rng.standard_normal((16, 16)).astype(np.float32) / 4, name) for name in "ab"
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["inner"], "first"),
        helper.make_node(
            "HardShrink", ["inner"], ["sparse", "kept"], "shrink", domain="my.ops", threshold=0.5
        ),
        helper.make_node("MatMul", ["sparse", "b"], ["y"], "second"),
    ]
    graph = helper.make_graph(
        nodes,
        "shrinking",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 16])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 16]),
            helper.make_tensor_value_info("kept", TensorProto.INT32, [8]),
        ],
        initializer=weights,
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("my.ops", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


if __name__ == "__main__":
    onnx.save(model(), sys.argv[1])

"""A network's nodes as ``gpu_torch.py`` and ``gpu_jax.py`` read them, which have no onnx: plain data, without
its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from networks import folded
from onnx import TensorProto, helper, numpy_helper

__all__ = ["graph_of"]


def graph_of(model: Path) -> dict[str, Any]:
    """The network: nodes, small integer constants, and the shapes of all others."""
    proto = folded(model)
    constants: dict[str, Any] = {}
    for tensor in proto.graph.initializer:
        array = numpy_helper.to_array(tensor)
        constants[tensor.name] = {"dtype": str(array.dtype), "shape": list(array.shape)}
        if array.dtype.kind in "iub" or array.size <= 16:
            constants[tensor.name]["values"] = array.tolist()
    nodes = []
    for node in proto.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        plain = {k: v.decode() if isinstance(v, bytes) else v for k, v in attributes.items()}
        plain = {k: list(v) if not isinstance(v, str | int | float) else v for k, v in plain.items()}
        if node.op_type == "Cast":
            plain["to"] = helper.tensor_dtype_to_np_dtype(plain["to"]).name
        nodes.append([node.op_type, list(node.input), list(node.output), plain])
    inputs = [
        {
            "name": value.name,
            "shape": [d.dim_value for d in value.type.tensor_type.shape.dim],
            "dtype": helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type).name,
            "integer": value.type.tensor_type.elem_type != TensorProto.FLOAT,
        }
        for value in proto.graph.input
    ]
    outputs = [value.name for value in proto.graph.output]
    opset = proto.opset_import[0].version
    return {"nodes": nodes, "constants": constants, "inputs": inputs, "outputs": outputs, "opset": opset}

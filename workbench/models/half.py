"""Networks in float16 or bfloat16, as converters make them."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

__all__ = ["TYPES", "halved"]

#: ONNX element types by name.
TYPES = {"float16": TensorProto.FLOAT16, "bfloat16": TensorProto.BFLOAT16}


def halved(model: onnx.ModelProto, dtype: str = "float16") -> onnx.ModelProto:
    """A copy of a float32 model of one graph: all that is float32 there is ``dtype``."""
    result = onnx.ModelProto()
    result.CopyFrom(model)
    graph, element = result.graph, TYPES[dtype]
    # Resize takes its scales as float32.
    kept = {name for node in graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for tensor in graph.initializer:
        if tensor.name not in kept:
            _narrow(tensor, element)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.name == "value":
                _narrow(attribute.t, element)
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == TensorProto.FLOAT:
                attribute.i = element
    for value in (*graph.input, *graph.output):
        if value.type.tensor_type.elem_type == TensorProto.FLOAT:
            value.type.tensor_type.elem_type = element
    del graph.value_info[:]
    return result


def _narrow(tensor: onnx.TensorProto, element: int) -> None:
    if tensor.data_type == TensorProto.FLOAT:
        dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
        largest = float(np.finfo(np.float16).max)
        array = np.clip(numpy_helper.to_array(tensor), -largest, largest).astype(dtype)
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

"""Shapes and types of the values inside an ONNX model."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["infer_shapes"]

#: Elements of the largest constant whose value can decide a shape.
INFERENCE_LIMIT = 1024


def infer_shapes(model: onnx.ModelProto) -> onnx.ModelProto:
    """A copy with the shapes and types of all intermediate values, as far as they can be inferred.

    In the copy large initializers are inputs: inference needs their shapes, and copying them takes seconds.
    """
    import onnx

    copy = onnx.ModelProto(ir_version=max(model.ir_version, 4), opset_import=model.opset_import)
    copy.functions.extend(model.functions)
    graph = copy.graph
    graph.name = model.graph.name
    graph.node.extend(model.graph.node)
    graph.value_info.extend(model.graph.value_info)
    graph.output.extend(model.graph.output)
    large = [tensor for tensor in model.graph.initializer if prod(tensor.dims) > INFERENCE_LIMIT]
    names = {tensor.name for tensor in large}
    graph.initializer.extend(t for t in model.graph.initializer if t.name not in names)
    graph.input.extend(value for value in model.graph.input if value.name not in names)
    for tensor in large:
        graph.input.append(onnx.helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    return onnx.shape_inference.infer_shapes(copy, data_prop=True)

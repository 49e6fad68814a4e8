"""Rounds the factors of a model's products to TF32, to see what that changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.external_data import copy_fields
from edgepack.compiler.frontend.onnx.shapes import infer_shapes

if TYPE_CHECKING:
    import onnx

__all__ = ["round_factors"]

#: Operators that multiply their first two operands and add up.
PRODUCTS = ("Conv", "ConvTranspose", "Gemm", "MatMul")

#: 2^13 + 1: p - (p - x) with p = SPLITTER x, all float32, is x rounded to 24 - 13 = 11 bits, those of TF32
#: (Dekker, "A floating-point technique for extending the available precision", 1971).
SPLITTER = 8193.0


def round_factors(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with both float32 factors of every convolution and matrix product rounded to nearest in TF32;
    sums, and all between the products, stay float32. Factors whose type cannot be inferred stay as they are.
    """
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    graph = infer_shapes(model).graph
    types = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        types[value.name] = value.type.tensor_type.elem_type
    result = onnx.ModelProto()
    copy_fields(model, result, "graph")
    copy_fields(model.graph, result.graph, "node")
    splitter = "rounded/splitter"
    result.graph.initializer.append(numpy_helper.from_array(np.float32(SPLITTER), splitter))
    rounded: dict[str, str] = {}
    for node in model.graph.node:
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        if node.op_type in PRODUCTS and node.domain in ("", "ai.onnx"):
            for i, name in enumerate(node.input[:2]):
                if types.get(name) != onnx.TensorProto.FLOAT:
                    continue
                if name not in rounded:
                    times, high, to = (f"{name}/rounded_{n}" for n in ("times", "high", "to"))
                    result.graph.node.extend(
                        [
                            helper.make_node("Mul", [name, splitter], [times]),
                            helper.make_node("Sub", [times, name], [high]),
                            helper.make_node("Sub", [times, high], [to]),
                        ]
                    )
                    rounded[name] = to
                copy.input[i] = rounded[name]
        result.graph.node.append(copy)
    return result

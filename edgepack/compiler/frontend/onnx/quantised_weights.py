"""Says what becomes of a quantised model, whose weights are integers of 8 bits or fewer."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.shapes import all_nodes

if TYPE_CHECKING:
    import onnx

__all__ = ["warn_of_quantised_weights"]

#: Operators that are computed in float32, and which of their inputs are weights where these are constant.
#: Not MatMulInteger and ConvInteger, which are products of int16.
_OPERANDS: dict[str, tuple[int, ...]] = {
    "DequantizeLinear": (0,),
    "DynamicQuantizeMatMul": (1,),
    "MatMulIntegerToFloat": (1,),
    "QGemm": (3,),
    "QLinearConv": (3,),
    "QLinearMatMul": (3,),
}

#: Elements of the smallest model's weights for which it is worth a word.
_LEAST_ELEMENTS = 512


def warn_of_quantised_weights(model: onnx.ModelProto) -> tuple[str, ...]:
    """A warning for a model that holds quantised weights, which are kept and computed with as float32.

    Args:
        model: as it was read.
    """
    import onnx

    types = onnx.TensorProto
    narrow = {types.INT8, types.UINT8, types.INT4, types.UINT4, types.INT2, types.UINT2}
    weights = {
        name
        for node in all_nodes(model.graph)
        for name in (node.input[i] for i in _OPERANDS.get(node.op_type, ()) if i < len(node.input))
    }
    elements = sum(
        prod(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.name in weights and tensor.data_type in narrow
    )
    if elements < _LEAST_ELEMENTS:
        return ()
    return (
        f"the model is quantised: its {elements:,} integer weights are kept as float32, in 4 bytes each (2 in"
        " matrix products, on CPUs that multiply integers faster), and convolutions are computed in float32,"
        " no faster than those of the model that it was made from; pack that one instead",
    )

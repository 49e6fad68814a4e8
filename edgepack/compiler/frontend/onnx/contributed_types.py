"""Element types of the results of ONNX Runtime's own quantised operators (com.microsoft), which ONNX does not
know."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

__all__ = ["declare_contributed"]

#: By operator, the input that is the zero point of the result, whose type the result has.
_ZERO_POINTS = {
    "QGemm": 8,
    "QLinearAdd": 7,
    "QLinearAveragePool": 4,
    "QLinearConcat": 1,
    "QLinearConv": 7,
    "QLinearGlobalAveragePool": 4,
    "QLinearLeakyRelu": 4,
    "QLinearMul": 7,
    "QLinearReduceMean": 4,
    "QLinearSigmoid": 4,
    "QLinearSoftmax": 4,
    "QLinearWhere": 8,
    "QuantizeLinear": 2,
}

#: Operators whose first result has the type of this input: a scale, or what stands for one.
_FLOATS = {
    "DequantizeLinear": 1,
    "DynamicQuantizeLSTM": 0,
    "DynamicQuantizeMatMul": 0,
    "MatMulIntegerToFloat": 2,
    "MatMulNBits": 2,
    "QAttention": 3,
    "QEmbedLayerNormalization": 8,
}


def declare_contributed(graph: onnx.GraphProto) -> None:
    """Declares the types, without shapes, of the first results of these operators, in place, as far as the
    graph does not and their operands' types are declared."""
    from onnx.helper import make_tensor_value_info

    declared = (*graph.input, *graph.value_info, *graph.output)
    types = {tensor.name: int(tensor.data_type) for tensor in graph.initializer}
    types |= {value.name: int(value.type.tensor_type.elem_type) for value in declared}
    outputs = {value.name: value for value in graph.output}
    for node in graph.node:
        if node.domain != "com.microsoft" or not node.output or types.get(node.output[0]):
            continue
        place = _ZERO_POINTS.get(node.op_type, _FLOATS.get(node.op_type))
        if place is None:
            continue
        if node.op_type == "QGemm" and not any(node.input[7:8]):
            place = 1
        element = types.get(node.input[place], 0) if place < len(node.input) else 0
        if not element:
            continue
        name = node.output[0]
        types[name] = element
        if name in outputs:
            outputs[name].type.tensor_type.elem_type = element
        else:
            graph.value_info.append(make_tensor_value_info(name, element, None))

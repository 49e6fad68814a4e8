"""Asks ONNX Runtime's quantiser for the quantised model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.quantise.activation_tables import with_activation_tables
from edgepack.compiler.frontend.onnx.quantise.bias_correction import add_to_biases
from edgepack.compiler.frontend.onnx.quantise.kept_scales import KeptScales
from edgepack.compiler.frontend.onnx.quantise.ranges import Range
from edgepack.compiler.frontend.onnx.quantise.structure import ARITHMETIC, MOVES, PRODUCTS, Structure
from edgepack.plan.quantisation import QuantiseSettings

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["dynamically_quantised", "quantised"]

#: What dynamic quantisation serves; convolutions of integers that are made at run time are slower than those
#: of floats.
DYNAMIC = {"Gemm", "Gather", "LSTM", "MatMul"}


def quantised(
    structure: Structure,
    ranges: Mapping[str, Range],
    settings: QuantiseSettings,
    also_float: set[str],
    mean_errors: Mapping[str, NDArray[Any]],
    kept: KeptScales | None = None,
) -> onnx.ModelProto:
    """The model with QuantizeLinear and DequantizeLinear around what computes with integers: weights int8
    with a scale for each channel of the result, activations uint8, or int8 where ``settings`` are symmetric.

    Args:
        ranges: of the tensors that may be integers.
        also_float: names of layers that stay float.
        mean_errors: of rounded weights, for each channel of a layer's result: what its bias takes up.
        kept: scales that it has; None: those that follow from ``ranges``.
    """
    import onnx
    from onnxruntime.quantization import QuantType
    from onnxruntime.quantization.quant_utils import add_infer_metadata

    model = onnx.ModelProto()
    model.CopyFrom(structure.model)
    add_to_biases(model, structure, mean_errors, also_float)
    add_infer_metadata(model)
    quantiser = _quantiser(structure)(
        model,
        True,  # a scale per channel of the weights
        settings.reduce_range,
        QuantType.QInt8,
        QuantType.QInt8 if settings.symmetric else QuantType.QUInt8,
        _known(ranges),
        [],
        structure.float_nodes(also_float),
        sorted(PRODUCTS | MOVES | ARITHMETIC),
        {
            "ActivationSymmetric": settings.symmetric,
            "WeightSymmetric": True,
            "TensorQuantOverrides": {} if kept is None else kept.overrides(structure),
        },
    )
    quantiser.quantize_model()
    quantiser.model.topological_sort()
    made = quantiser.model.model
    if kept is not None:
        made = with_activation_tables(
            made, ranges, symmetric=settings.symmetric, cheap=True, kept=kept.activations
        )
    elif settings.activation_tables is not False:
        cheap = settings.activation_tables is True
        made = with_activation_tables(made, ranges, symmetric=settings.symmetric, cheap=cheap)
    return _finished(made, structure.model)


def _quantiser(structure: Structure) -> Any:
    """ONNX Runtime's quantiser as a class, which leaves some tensors float that it would round."""
    from onnxruntime.quantization.qdq_quantizer import QDQQuantizer

    float_tensors, one_scale = structure.float_tensors, _of_one_scale(structure)

    class Quantiser(QDQQuantizer):  # type: ignore[misc]
        def quantize_activation_tensor(self, tensor_name: str) -> None:
            if tensor_name not in float_tensors:
                super().quantize_activation_tensor(tensor_name)

        def quantize_weight_tensor_per_channel(self, tensor_name: str, axis: int) -> None:
            if tensor_name in one_scale:
                super().quantize_weight_tensor(tensor_name)
            else:
                super().quantize_weight_tensor_per_channel(tensor_name, axis)

    return Quantiser


def _known(ranges: Mapping[str, Range]) -> Any:
    """The ranges as the quantiser takes them."""
    import numpy as np
    from onnxruntime.quantization import CalibrationMethod
    from onnxruntime.quantization.calibrate import TensorData, TensorsData

    known = {
        name: TensorData(lowest=np.float32(one.low), highest=np.float32(one.high))
        for name, one in ranges.items()
    }
    return TensorsData(CalibrationMethod.MinMax, known)


def _of_one_scale(structure: Structure) -> set[str]:
    """Names of weights that get one scale: stacks of matrices, where one for each index of the second axis
    would differ within each sum, and those of transposed convolutions in groups, whose second axis is the
    channels of a group only, while a bias has a scale for each channel of the result."""
    layers = structure.layers
    stacks = {name for name, tensor in structure.constants.items() if len(tensor.dims) > 2}
    stacks &= {node.input[1] for node in layers if node.op_type == "MatMul"}
    transposed = [node for node in layers if node.op_type == "ConvTranspose"]
    groups = [n for n in transposed if any(a.name == "group" and a.i > 1 for a in n.attribute)]
    return stacks | {node.input[1] for node in groups}


def dynamically_quantised(
    model: onnx.ModelProto, also_float: set[str], *, reduce_range: bool
) -> onnx.ModelProto:
    """The model with products of integers whose ranges are computed when it runs, and int8 weights.

    Args:
        also_float: names of nodes that stay float.
        reduce_range: weights of 7 bits.
    """
    import onnx
    from onnxruntime.quantization import QuantizationMode, QuantType
    from onnxruntime.quantization.onnx_quantizer import ONNXQuantizer
    from onnxruntime.quantization.quant_utils import add_infer_metadata

    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    add_infer_metadata(copy)
    quantiser = ONNXQuantizer(
        copy,
        True,
        reduce_range,
        QuantizationMode.IntegerOps,
        False,
        QuantType.QInt8,
        QuantType.QUInt8,
        None,
        [],
        sorted(also_float),
        sorted(DYNAMIC),
        {"MatMulConstBOnly": True, "WeightSymmetric": True},
    )
    quantiser.quantize_model()
    quantiser.model.topological_sort()
    return _finished(quantiser.model.model, model)


def _finished(model: onnx.ModelProto, source: onnx.ModelProto) -> onnx.ModelProto:
    """The quantised model as it is written: nothing in it but what the float model says and the quantiser
    adds, the same bytes for the same model."""
    domains = {"", *(node.domain for node in model.graph.node)}
    opsets = [one for one in model.opset_import if one.domain in domains]
    del model.metadata_props[:], model.graph.value_info[:], model.opset_import[:]
    model.opset_import.extend(opsets)
    model.metadata_props.extend(source.metadata_props)
    model.producer_name, model.producer_version = source.producer_name, source.producer_version
    return model

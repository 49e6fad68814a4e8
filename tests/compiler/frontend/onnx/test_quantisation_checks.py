"""Quantised models whose constants cannot be meant are refused with a sentence that names the node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.errors import ModelError
from workbench.models.quantised import QUANTISED


def constant(model: onnx.ModelProto, index: int, value: np.ndarray) -> onnx.ModelProto:
    """The model with another constant as an input of its node."""
    name = model.graph.node[0].input[index]
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(value), name))
    return model


def attribute(model: onnx.ModelProto, **values: Any) -> onnx.ModelProto:
    node = model.graph.node[0]
    kept = [item for item in node.attribute if item.name not in values]
    del node.attribute[:]
    node.attribute.extend([*kept, *(helper.make_attribute(name, value) for name, value in values.items())])
    return model


def without_the_last_input(model: onnx.ModelProto) -> onnx.ModelProto:
    del model.graph.node[0].input[-1]
    return model


#: By defect, the model and what the sentence says.
DEFECTS: dict[str, tuple[str, Callable[[onnx.ModelProto], onnx.ModelProto], str]] = {
    **{
        f"scale_{value:g}": (
            "q_quantize_uint8",
            lambda model, value=value: constant(model, 1, np.float32(value)),
            "QuantizeLinear node node has a scale of",
        )
        for value in (0.0, -0.5, np.nan, np.inf)
    },
    "scale_of_one_channel_is_zero": (
        "q_conv_uint8_int8",
        lambda model: constant(model, 4, np.float32([1, 1, 0, 1, 1, 1])),
        "QLinearConv node node has a scale of 0, where a positive finite number belongs",
    ),
    "scale_of_a_sum_is_negative": (
        "q_add_uint8",
        lambda model: constant(model, 4, np.float32(-1)),
        "QLinearAdd node node has a scale of -1",
    ),
    "zero_point_of_another_type": (
        "q_dequantize_uint8",
        lambda model: constant(model, 2, np.int8(3)),
        "has a zero point of int8 for values of uint8",
    ),
    "zero_point_beyond_its_type": (
        "q_dequantize_uint8",
        lambda model: constant(model, 2, np.int32(300)),
        "has a zero point of int32 for values of uint8",
    ),
    "zero_points_fewer_than_scales": (
        "q_quantize_axis",
        lambda model: constant(model, 2, np.uint8([1, 2])),
        r"has zero points of shape \[2\] and scales of \[3\]",
    ),
    "axis_out_of_range": (
        "q_quantize_axis",
        lambda model: attribute(model, axis=3),
        "has scales along axis 3 of a tensor of rank 3",
    ),
    "axis_of_another_extent": (
        "q_quantize_axis",
        lambda model: attribute(model, axis=2),
        r"has scales of shape \[3\] for axis 2 of \[2, 3, 5\]",
    ),
    "blocks_that_do_not_divide": (
        "q_quantize_blocks",
        lambda model: attribute(model, block_size=4),
        r"has scales of shape \[2, 3\] for blocks of 4 along axis 1 of \[2, 6\]",
    ),
    "blocks_of_negative_size": (
        "q_quantize_blocks",
        lambda model: attribute(model, block_size=-2),
        "has blocks of -2 values",
    ),
    "scale_of_a_block_is_no_number": (
        "q_dequantize_blocks_signs",
        lambda model: constant(model, 1, np.full((4, 3), np.nan, np.float32)),
        "has a scale of nan, where a finite number belongs",
    ),
    "scale_of_a_block_is_zero_to_quantise": (
        "q_quantize_blocks",
        lambda model: constant(model, 1, np.zeros((2, 3), np.float32)),
        "has a scale of 0, where a positive finite number belongs",
    ),
    "scale_of_bits_is_no_number": (
        "q_nbits_4_16",
        lambda model: constant(model, 2, np.full((6, 3), np.inf, np.float32)),
        "has a scale of inf, where a finite number belongs",
    ),
    "weights_of_three_bits": (
        "q_nbits_4_16",
        lambda model: attribute(model, bits=3),
        "has weights of 3 bits; there are kernels for 2, 4 and 8",
    ),
    "blocks_of_bits_of_another_size": (
        "q_nbits_4_16",
        lambda model: attribute(model, block_size=24),
        "has blocks of 24 values, where a power of two from 16 on belongs",
    ),
    "fewer_bytes_than_weights": (
        "q_nbits_4_16",
        lambda model: attribute(model, K=64),
        "has 144 bytes of weights, where 192 belong",
    ),
    "quantised_to_int64": (
        "q_quantize_output_dtype",
        lambda model: attribute(model, output_dtype=TensorProto.INT64),
        "gives values of int64, which is no quantised type",
    ),
    "dequantised_from_int64": (
        "q_dequantize_uint8",
        lambda model: retyped(constant(model, 2, np.int64(3)), TensorProto.INT64),
        "has values of int64, which is no quantised type",
    ),
    "zero_point_that_is_left_out": (
        "q_sigmoid_uint8",
        without_the_last_input,
        "QLinearSigmoid node node lacks the zero point of its result",
    ),
    "bias_with_a_zero_point": (
        "q_dequantize_uint8",
        lambda model: retyped(constant(model, 2, np.int32(3)), TensorProto.INT32),
        "has a zero point other than 0 for values of int32",
    ),
}


def retyped(model: onnx.ModelProto, element: int) -> onnx.ModelProto:
    model.graph.input[0].type.tensor_type.elem_type = element
    return model


@pytest.mark.parametrize("defect", DEFECTS)
def test_defect_is_one_sentence(defect: str) -> None:
    name, damage, sentence = DEFECTS[defect]
    with pytest.raises(ModelError, match=sentence) as caught:
        import_model(damage(QUANTISED[name]()))
    assert caught.value.hint
    assert "\n" not in str(caught.value.message)


@pytest.mark.parametrize("name", ["q_dequantize_blocks_signs", "q_nbits_bits_left_out"])
def test_scales_of_blocks_may_be_negative_or_zero(name: str) -> None:
    """As ONNX Runtime's quantiser of 4-bit weights chooses them, without a zero point, and for zeros."""
    import_model(QUANTISED[name]())


def test_scales_that_are_known_at_run_time_are_not_looked_at() -> None:
    for name in ("q_quantize_run_time", "q_conv_scales", "q_to_float_scales"):
        import_model(QUANTISED[name]())


def test_operators_in_branches_are_looked_at() -> None:
    """Those of them that ONNX Runtime would die of before anything is unrolled, the others then."""
    for defect in ("zero_point_that_is_left_out", "scale_of_a_sum_is_negative"):
        name, damage, sentence = DEFECTS[defect]
        model = damage(QUANTISED[name]())
        inner = helper.make_graph(list(model.graph.node), "inner", [], list(model.graph.output))
        node = helper.make_node("If", ["yes"], ["z"], then_branch=inner, else_branch=inner)
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(True), "yes"))
        model.graph.output[0].name = "z"
        del model.graph.node[:]
        model.graph.node.append(node)
        with pytest.raises(ModelError, match=sentence.partition("node node ")[2]):
            import_model(model)


def test_constants_that_nodes_make_are_looked_at() -> None:
    model = QUANTISED["q_dequantize_int8"]()
    name = model.graph.node[0].input[1]
    (tensor,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    tensor.CopyFrom(numpy_helper.from_array(np.float32(0), name))
    model.graph.node.insert(0, helper.make_node("Constant", [], [name], value=tensor))
    model.graph.initializer.remove(tensor)
    with pytest.raises(ModelError, match="has a scale of 0"):
        import_model(model)

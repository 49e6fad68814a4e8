"""ONNX's own node tests: which of them say something about edgepack, as models that it can be given.

A test is a model of one operator (or of the functions that define it), inputs, outputs and a tolerance.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import onnx
import onnx.backend.test.case.node as cases_of_nodes
from onnx import numpy_helper

from edgepack.compiler.frontend.onnx.storage_types import as_bytes, from_bytes
from workbench.lists_of_tensors import give_tensors, has_lists, of_tensors

__all__ = ["SAMPLE", "NodeTest", "check", "load_tests", "operator_of"]

#: Inputs that decide about shapes, axes or how often something is done, by operator. Exporters write them as
#: constants and a static plan needs them as such, so they are constants here as well.
PARAMETERS: dict[str, tuple[str, ...]] = {
    "AffineGrid": ("size",),
    "BlackmanWindow": ("size",),
    "CenterCropPad": ("shape",),
    "Col2Im": ("image_shape", "block_shape"),
    "ConstantOfShape": ("input",),
    "CumProd": ("axis",),
    "CumSum": ("axis",),
    "DFT": ("dft_length", "axis"),
    "Dropout": ("ratio", "training_mode"),
    "Expand": ("shape",),
    "HammingWindow": ("size",),
    "HannWindow": ("size",),
    "Loop": ("M", "cond"),
    "MaxUnpool": ("output_shape",),
    "MelWeightMatrix": (
        "num_mel_bins",
        "dft_length",
        "sample_rate",
        "lower_edge_hertz",
        "upper_edge_hertz",
    ),
    "OneHot": ("depth",),
    "Pad": ("pads", "axes"),
    "Range": ("start", "limit", "delta"),
    "Reshape": ("shape",),
    "Resize": ("roi", "scales", "sizes"),
    "STFT": ("frame_step", "frame_length"),
    "SequenceInsert": ("position",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Split": ("split",),
    "SplitToSequence": ("split",),
    "Squeeze": ("axes",),
    "Tile": ("repeats",),
    "TopK": ("K",),
    "Trilu": ("k",),
    "Unsqueeze": ("axes",),
    "Upsample": ("scales",),
    **dict.fromkeys(
        ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin"),
        ("axes",),
    ),
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceSumSquare"), ("axes",)),
}

#: Operators whose outputs' shapes depend on the contents of their inputs.
DATA_DEPENDENT = ("Compress", "ImageDecoder", "NonMaxSuppression", "NonZero", "Unique")

RANDOM = (
    "Bernoulli",
    "Multinomial",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
)

#: Tests of each way in which an operator is brought to what can be compiled, by operator: rewritten, by its
#: function body, past ONNX Runtime (a newer opset, a type that it has no kernel for), by an own converter.
SAMPLE = {
    "ArrayFeatureExtractor": ["test_ai_onnx_ml_array_feature_extractor"],
    "Attention": ["test_attention_24_fullymasked_qk_matmul_output_mode3_zero"],  # a maximum of -inf alone
    "BatchNormalization": ["test_batchnorm_epsilon_training_mode"],
    "Binarizer": ["test_ai_onnx_ml_binarizer"],
    "BitCast": ["test_bitcast_2d_float32_to_int32"],
    "Cast": [
        "test_cast_no_saturate_FLOAT_to_FLOAT8E5M2",
        "test_cast_e8m0_FLOAT_to_FLOAT8E8M0",
        "test_cast_FLOAT_to_INT4",
        "test_cast_FLOAT4E2M1_to_FLOAT",
    ],
    "DequantizeLinear": ["test_dequantizelinear_blocked"],
    "QuantizeLinear": ["test_quantizelinear_int2", "test_quantizelinear_float4e2m1"],
    "BitShift": ["test_bitshift_left_uint16"],
    "CastLike": ["test_castlike_BFLOAT16_to_FLOAT", "test_castlike_FLOAT_to_FLOAT8E4M3FN"],
    "CausalConvWithState": ["test_causal_conv_with_state_with_bias"],
    "Celu": ["test_celu_bfloat16"],
    "CenterCropPad": ["test_center_crop_pad_crop_and_pad"],
    "Col2Im": ["test_col2im_strides"],
    "ConvInteger": ["test_convinteger_with_padding"],
    "CumProd": ["test_cumprod_2d_axis_1"],
    "DFT": ["test_dft_irfft"],
    "DeformConv": ["test_basic_deform_conv_with_padding"],
    "Det": ["test_det_nd"],
    "Dropout": ["test_dropout_default_mask"],
    "EyeLike": ["test_eyelike_with_dtype"],
    "FlexAttention": ["test_flexattention_score_mod"],
    "IsInf": ["test_isinf_negative"],
    "IsNaN": ["test_isnan"],
    "LayerNormalization": ["test_layer_normalization_4d_axis2"],
    "MaxPool": ["test_maxpool_with_argmax_2d_precomputed_pads"],
    "MaxUnpool": ["test_maxunpool_export_with_output_shape"],
    "Mod": ["test_mod_float_edge_cases_fmod_0_float32"],
    "OneHot": ["test_onehot_negative_indices"],
    "Pad": ["test_constant_pad"],
    "Pow": ["test_pow_types_int64_float32", "test_pow_types_int64_int64"],
    "RMSNormalization": ["test_rms_normalization_2d_axis0"],
    "Range": ["test_range_bfloat16_type_positive_delta"],
    "ReduceMax": ["test_reduce_max_bool_inputs"],
    "ReduceMin": ["test_reduce_min_bool_inputs"],
    "ReverseSequence": ["test_reversesequence_batch"],
    "RoiAlign": ["test_roialign_mode_max"],
    "STFT": ["test_stft_with_window"],
    "SpaceToDepth": ["test_spacetodepth_crd_mode_example"],
    "SequenceInsert": ["test_sequence_insert_at_front"],
    "SequenceMap": ["test_sequence_map_add_1_sequence_1_tensor"],
    "SplitToSequence": ["test_split_to_sequence_nokeepdims"],
    "SwiGLU": ["test_swiglu_alpha"],
    "TensorScatter": ["test_tensorscatter_circular"],
    "TfIdfVectorizer": ["test_tfidfvectorizer_tf_batch_uniandbigrams_skip5"],
    "TreeEnsemble": ["test_ai_onnx_ml_tree_ensemble_set_membership"],
    "Trilu": ["test_tril_out_pos"],
}

_EXPANDED = re.compile(r"_expanded(_ver\d+)?$")


@dataclass(frozen=True)
class NodeTest:
    """One of ONNX's node tests.

    Attributes:
        operator: what it tests, also where its model holds the operator's function body.
        model: with constants for what an exporter writes as constants.
        inputs: of its first set of data, by name, as a bundle takes them.
        outputs: in the order of the graph.
        elements: ONNX's element types of the outputs.
        excluded: why it is out of scope; empty if it is in scope.
    """

    name: str
    operator: str
    opset: int
    model: onnx.ModelProto
    inputs: Mapping[str, np.ndarray]
    outputs: Sequence[Any]
    elements: Sequence[int]
    rtol: float
    atol: float
    excluded: str


@cache
def load_tests(operators: frozenset[str] = frozenset()) -> dict[str, NodeTest]:
    """All of them by name: ONNX makes them when their modules are imported, which takes seconds.

    Args:
        operators: those whose modules suffice; none: all of them.
    """
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        wanted = {name.lower() for name in operators}
        for module in pkgutil.walk_packages(cases_of_nodes.__path__, f"{cases_of_nodes.__name__}."):
            name = module.name.rpartition(".")[2].replace("_", "")
            if not wanted or {name, name.removesuffix("op")} & wanted:
                importlib.import_module(module.name)
        cases = {case.name: case for case in cases_of_nodes._NodeTestCases}
    return {name: _node_test(case, cases.get(_EXPANDED.sub("", name), case)) for name, case in cases.items()}


def operator_of(model: onnx.ModelProto) -> str:
    """The operator of a model of one node; that of its first node if there are more."""
    node = model.graph.node[0]
    return str(node.op_type) if node.domain in ("", "ai.onnx") else f"{node.domain}.{node.op_type}"


def _node_test(case: Any, original: Any) -> NodeTest:
    """A test; ``original`` is the one whose operator is expanded in it (or itself)."""
    excluded = _excluded(case, original)
    values, outputs = case.data_sets[0]
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    if not excluded:
        values, outputs = of_tensors(model, values, outputs)
        values, outputs = ([_array(value) for value in items] for items in (values, outputs))
    names = [value.name for value in model.graph.input]
    inputs = dict(zip(names, values, strict=False))
    if not excluded:
        with_lists = has_lists(case.model)
        _freeze(model, inputs, _parameters(original.model) | ({"cond"} if with_lists else set()))
        if with_lists:
            give_tensors(model)
    versions = {item.domain: item.version for item in original.model.opset_import}
    opset = versions.get(original.model.graph.node[0].domain) or versions.get("ai.onnx", 0)
    return NodeTest(
        name=case.name,
        operator=operator_of(original.model),
        opset=opset,
        model=model,
        inputs=inputs if excluded else {name: as_bytes(array) for name, array in inputs.items()},
        outputs=outputs,
        elements=[value.type.tensor_type.elem_type for value in model.graph.output],
        rtol=case.rtol,
        atol=case.atol,
        excluded=excluded,
    )


def _array(value: Any) -> np.ndarray:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else np.asarray(value)


def _excluded(case: Any, original: Any) -> str:
    """The first reason why a test is out of scope."""
    values = [*case.model.graph.input, *case.model.graph.output]
    operators = {node.op_type for model in (case.model, original.model) for node in model.graph.node}
    domains = {node.domain for node in original.model.graph.node}
    if any(value.type.tensor_type.elem_type == onnx.TensorProto.STRING for value in values):
        return "strings"
    if any(attribute.strings for node in case.model.graph.node for attribute in node.attribute) and (
        "TfIdfVectorizer" not in operators
    ):
        return "strings"
    if "ai.onnx.preview.training" in domains:
        return "training"
    if operators & set(RANDOM) or ("Dropout" in operators and "train" in case.name):
        return "randomness"
    if operators & set(DATA_DEPENDENT):
        return "shapes that depend on data"
    return ""


def _parameters(model: onnx.ModelProto) -> set[str]:
    """Names of the inputs that :data:`PARAMETERS` lists."""
    versions = {item.domain: item.version for item in model.opset_import}
    found = set()
    for node in model.graph.node:
        wanted = PARAMETERS.get(node.op_type, ())
        formal = (
            onnx.defs.get_schema(node.op_type, versions[node.domain], node.domain).inputs if wanted else ()
        )
        found |= {
            name for name, parameter in zip(node.input, formal, strict=False) if parameter.name in wanted
        }
    return found


def _freeze(model: onnx.ModelProto, inputs: dict[str, np.ndarray], parameters: set[str]) -> None:
    """Makes constants of the parameters, and of inputs without elements, in place."""
    kept = []
    for value in model.graph.input:
        array = inputs.get(value.name)
        if array is not None and (value.name in parameters or array.size == 0):
            element = value.type.tensor_type.elem_type
            tensor = numpy_helper.from_array(array, value.name)
            assert tensor.data_type == element, value.name
            model.graph.initializer.append(tensor)
            del inputs[value.name]
        else:
            kept.append(value)
    if len(kept) < len(model.graph.input):
        del model.graph.input[:]
        model.graph.input.extend(kept)
        model.ir_version = max(model.ir_version, 4)


def check(test: NodeTest, outputs: Sequence[np.ndarray]) -> None:
    """Compares outputs with those of the test, as ONNX's own runner does; AssertionError if they differ."""
    assert len(outputs) == len(test.outputs), f"{len(outputs)} outputs, {len(test.outputs)} expected"
    for index, (result, wanted) in enumerate(zip(outputs, test.outputs, strict=True)):
        got, expected = from_bytes(result, test.elements[index]), wanted
        assert got.shape == expected.shape, f"output {index} has shape {got.shape}, not {expected.shape}"
        assert got.dtype == expected.dtype, f"output {index} is {got.dtype}, not {expected.dtype}"
        if expected.dtype.kind not in "fiub":  # those of ml_dtypes
            got, expected = got.astype(np.float32), wanted.astype(np.float32)
        with np.errstate(all="ignore"):
            np.testing.assert_allclose(
                got, expected, rtol=test.rtol, atol=test.atol, err_msg=f"output {index}"
            )

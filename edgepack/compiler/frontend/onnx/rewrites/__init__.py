"""ONNX-to-ONNX rewrites of what TVM's importer lacks or gets wrong; each is tested against ONNX Runtime.

A rewrite takes one node and writes standard nodes that compute the same. They run after constants are folded,
so that axes, sizes and scales are constants, and shapes are known.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites import (
    automatic_padding,
    caches,
    contrib,
    contrib_attention,
    control_flow,
    decompose,
    dynamic_products,
    encoders,
    forms,
    grid_sample,
    linear,
    linear_models,
    norms,
    quantised,
    quantised_elementwise,
    quantised_lstm,
    quantised_products,
    quantised_transformers,
    reductions,
    resize,
    roi_align,
    sampling,
    scatter,
    storage_types,
    support_vectors,
    text,
    training,
    tree_ensembles,
)
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, Rewrite
from edgepack.compiler.frontend.onnx.rewrites.recent_forms import in_recent_forms

if TYPE_CHECKING:
    import onnx

__all__ = ["CONTROL_FLOW", "REWRITES", "apply", "unroll"]

#: (domain, operator) and what rewrites it; a rewrite leaves the nodes alone that need no change.
REWRITES: dict[tuple[str, str], Rewrite] = {
    ("", "AffineGrid"): grid_sample.affine_grid,
    ("", "AveragePool"): automatic_padding.pool,
    ("", "BatchNormalization"): forms.batch_normalization,
    ("", "Cast"): storage_types.cast,
    ("", "CastLike"): storage_types.cast,
    ("", "Col2Im"): linear.col2im,
    ("", "Conv"): automatic_padding.conv,
    ("", "ConvInteger"): quantised.conv_integer,
    ("", "ConvTranspose"): decompose.conv_transpose,
    ("", "DFT"): linear.dft,
    ("", "DeformConv"): sampling.deform_conv,
    ("", "DequantizeLinear"): storage_types.dequantize,
    ("", "Det"): linear.det,
    ("", "Dropout"): training.dropout,
    ("", "Elu"): forms.elu,
    ("", "Equal"): decompose.equal_bool,
    ("", "EyeLike"): forms.eye_like,
    ("", "Gemm"): dynamic_products.gemm,
    ("", "GridSample"): grid_sample.grid_sample,
    ("", "IsInf"): forms.is_inf,
    ("", "If"): control_flow.if_,
    ("", "LRN"): decompose.local_response_normalization,
    ("", "Loop"): control_flow.loop,
    ("", "LayerNormalization"): norms.layer_normalization,
    ("", "LpNormalization"): decompose.lp_normalization,
    ("", "LpPool"): automatic_padding.pool,
    ("", "MatMul"): dynamic_products.matmul,
    ("", "MaxPool"): automatic_padding.max_pool,
    ("", "MaxUnpool"): sampling.max_unpool,
    ("", "Mod"): forms.floor_mod,
    ("", "OneHot"): decompose.one_hot,
    ("", "Pad"): forms.pad_with_value,
    ("", "Pow"): forms.power,
    ("", "QLinearConv"): quantised.qlinear_conv,
    ("", "QLinearMatMul"): quantised_products.qlinear_matmul,
    ("", "QuantizeLinear"): storage_types.quantize,
    ("", "RMSNormalization"): norms.rms_normalization,
    ("", "ReduceL1"): reductions.reduction,
    ("", "ReduceL2"): reductions.reduction,
    ("", "ReduceLogSum"): reductions.reduction,
    ("", "ReduceLogSumExp"): reductions.reduction,
    ("", "ReduceMax"): forms.reduce_bool,
    ("", "ReduceMin"): forms.reduce_bool,
    ("", "ReduceSumSquare"): reductions.reduction,
    ("", "ReverseSequence"): caches.reverse_sequence,
    ("", "Resize"): resize.resize,
    ("", "RoiAlign"): roi_align.roi_align,
    ("", "STFT"): linear.stft,
    ("", "Split"): forms.split_of_nothing,
    ("", "Scan"): control_flow.scan,
    ("", "ScatterElements"): scatter.scatter,
    ("", "ScatterND"): scatter.scatter,
    ("", "SimplifiedLayerNormalization"): contrib.simplified_layer_norm,
    ("", "SpaceToDepth"): forms.space_to_depth,
    ("", "TensorScatter"): caches.tensor_scatter,
    ("", "TfIdfVectorizer"): text.tf_idf_vectorizer,
    ("", "Trilu"): forms.trilu,
    ("", "Unsqueeze"): forms.scalar_axes,
    ("", "Upsample"): resize.resize,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): encoders.array_feature_extractor,
    ("ai.onnx.ml", "Binarizer"): encoders.binarizer,
    ("ai.onnx.ml", "FeatureVectorizer"): encoders.feature_vectorizer,
    ("ai.onnx.ml", "Imputer"): encoders.imputer,
    ("ai.onnx.ml", "LabelEncoder"): encoders.label_encoder,
    ("ai.onnx.ml", "LinearClassifier"): linear_models.linear_classifier,
    ("ai.onnx.ml", "LinearRegressor"): linear_models.linear_regressor,
    ("ai.onnx.ml", "Normalizer"): linear_models.normalizer,
    ("ai.onnx.ml", "OneHotEncoder"): encoders.one_hot_encoder,
    ("ai.onnx.ml", "SVMClassifier"): support_vectors.svm_classifier,
    ("ai.onnx.ml", "SVMRegressor"): support_vectors.svm_regressor,
    ("ai.onnx.ml", "Scaler"): linear_models.scaler,
    ("ai.onnx.ml", "TreeEnsemble"): tree_ensembles.tree_ensemble,
    ("ai.onnx.ml", "TreeEnsembleClassifier"): tree_ensembles.tree_ensemble_classifier,
    ("ai.onnx.ml", "TreeEnsembleRegressor"): tree_ensembles.tree_ensemble_regressor,
    ("com.microsoft", "Attention"): contrib_attention.attention,
    ("com.microsoft", "BiasGelu"): decompose.gelu,
    ("com.microsoft", "DequantizeLinear"): storage_types.dequantize,
    ("com.microsoft", "DynamicQuantizeLSTM"): quantised_lstm.dynamic_quantize_lstm,
    ("com.microsoft", "DynamicQuantizeMatMul"): quantised_products.dynamic_quantize_matmul,
    ("com.microsoft", "EmbedLayerNormalization"): contrib.embed_layer_norm,
    ("com.microsoft", "FastGelu"): decompose.fast_gelu,
    ("com.microsoft", "FusedConv"): contrib.fused_conv,
    ("com.microsoft", "FusedGemm"): contrib.fused_gemm,
    ("com.microsoft", "FusedMatMul"): contrib.fused_matmul,
    ("com.microsoft", "Gelu"): decompose.gelu,
    ("com.microsoft", "GroupQueryAttention"): contrib_attention.group_query_attention,
    ("com.microsoft", "MatMulIntegerToFloat"): quantised_products.matmul_integer_to_float,
    ("com.microsoft", "MatMulNBits"): quantised_products.matmul_nbits,
    ("com.microsoft", "MultiHeadAttention"): contrib_attention.multi_head_attention,
    ("com.microsoft", "QAttention"): quantised_transformers.qattention,
    ("com.microsoft", "QEmbedLayerNormalization"): quantised_transformers.qembed_layer_norm,
    ("com.microsoft", "QGemm"): quantised_products.qgemm,
    ("com.microsoft", "QLinearAdd"): quantised_elementwise.qlinear_add,
    ("com.microsoft", "QLinearAveragePool"): quantised_elementwise.qlinear_average_pool,
    ("com.microsoft", "QLinearConcat"): quantised_elementwise.qlinear_concat,
    ("com.microsoft", "QLinearConv"): quantised.qlinear_conv,
    ("com.microsoft", "QLinearGlobalAveragePool"): quantised_elementwise.qlinear_global_average_pool,
    ("com.microsoft", "QLinearLeakyRelu"): quantised_elementwise.qlinear_leaky_relu,
    ("com.microsoft", "QLinearMul"): quantised_elementwise.qlinear_mul,
    ("com.microsoft", "QLinearReduceMean"): quantised_elementwise.qlinear_reduce_mean,
    ("com.microsoft", "QLinearSigmoid"): quantised_elementwise.qlinear_sigmoid,
    ("com.microsoft", "QLinearSoftmax"): quantised_elementwise.qlinear_softmax,
    ("com.microsoft", "QLinearWhere"): quantised_elementwise.qlinear_where,
    ("com.microsoft", "QuantizeLinear"): storage_types.quantize,
    ("com.microsoft", "QuickGelu"): decompose.quick_gelu,
    ("com.microsoft", "RotaryEmbedding"): contrib_attention.rotary_embedding,
    ("com.microsoft", "SkipLayerNormalization"): contrib.skip_layer_norm,
    ("com.microsoft", "SkipSimplifiedLayerNormalization"): contrib.skip_simplified_layer_norm,
}


#: Those of nodes with graphs inside, which bring nodes that other rewrites, or they themselves, apply to.
CONTROL_FLOW = {key: REWRITES[key] for key in (("", "If"), ("", "Loop"), ("", "Scan"))}


def unroll(model: onnx.ModelProto) -> bool:
    """Replaces control flow by what it does, in place, but for what is known at run time only, and long
    loops; whether there was any to be replaced. What was inside may have some."""
    if not any((node.domain, node.op_type) in CONTROL_FLOW for node in model.graph.node):
        return False
    editor = Editor(model)
    editor.run(CONTROL_FLOW)
    return editor.changed


def inline_known_branches(model: onnx.ModelProto) -> None:
    """Replaces each If whose condition depends on constants alone by the branch that is taken, in place; also
    those in such a branch. ONNX Runtime's optimiser is not asked: it ends with SIGSEGV on some."""
    before: list[str] = []
    while (found := [node.output[0] for node in model.graph.node if node.op_type == "If"]) != before:
        before = found
        Editor(model).run({("", "If"): control_flow.known_if})


def apply(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model after every rewrite that matches one of its nodes, in forms of a recent operator set."""
    model = in_recent_forms(model)
    editor = Editor(model)
    return editor.run(REWRITES)

"""Each rewrite, as an ONNX model run by ONNX Runtime, computes what the original does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from edgepack.compiler.frontend.onnx import rewrites
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.normalise import fold_constants
from edgepack.compiler.frontend.onnx.rewrites import CONTROL_FLOW, REWRITES
from edgepack.compiler.frontend.onnx.support import is_importable
from workbench.models.builder import Graph
from workbench.models.contrib import CONTRIB
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.operators import CASES
from workbench.models.quantised import QUANTISED
from workbench.node_tests import SAMPLE


def _microsoft(op: str, *, bias: bool = False, **attributes: float) -> Callable[[], onnx.ModelProto]:
    def make() -> onnx.ModelProto:
        g = Graph(op)
        inputs = [g.input("x", [2, 3, 8]), *([g.weight(8, std=0.5)] if bias else [])]
        g.op(op, *inputs, domain="com.microsoft", name="y", **attributes)
        g.output("y", shape=[2, 3, 8])
        return g.model()

    return make


MODELS = {
    **CASES,
    **CONTRIB,
    "ms_gelu": _microsoft("Gelu"),
    "ms_biasgelu": _microsoft("BiasGelu", bias=True),
    "ms_fastgelu": _microsoft("FastGelu"),
    "ms_fastgelu_bias": _microsoft("FastGelu", bias=True),
    "ms_quickgelu": _microsoft("QuickGelu", alpha=1.5),
}

#: What the names of the cases of each rewrite begin with.
REWRITTEN = {
    "AffineGrid": ["affinegrid_0", "affinegrid_1"],
    "AveragePool": ["averagepool_same_lower"],
    "Conv": ["conv_same_upper", "conv_same_lower"],
    "ConvInteger": ["conv_integer"],
    "ConvTranspose": ["convtranspose_output_shape", "convtranspose_larger"],
    "Equal": ["equal_bool"],
    "GridSample": [name for name in CASES if name.startswith("gridsample_")],
    "LRN": ["lrn", "lrn_one"],
    "LpNormalization": ["lpnorm", "lpnorm_1"],
    "LpPool": ["lppool_same_lower"],
    "MaxPool": ["maxpool_same_lower"],
    "OneHot": ["onehot_constant_depth"],
    "QLinearConv": ["qlinear_conv"],
    "QLinearMatMul": ["qlinear_matmul"],
    "Resize": ["resize_fractional", "resize_nearest_fractional", "resize_opset10", "resize_opset18_axes",
               "resize_antialias", "resize_antialias_cubic", "resize_channels_last",
               "resize_cubic_exclude_outside", "resize_not_larger", "resize_symmetric",
               "resize_channels_last_uint8", "resize_antialias_uint8", "resize_antialias_int32",
               "resize_down_opset10", "resize_nearest_undecided", "resize_crop", "resize_crop_axes"],
    "RoiAlign": ["roialign_scaled"],
    "Unsqueeze": ["unsqueeze_scalar"],
    "Upsample": ["upsample_nearest", "upsample_linear"],
    "Attention": [name for name in CONTRIB if name.startswith("ms_attention")],
    "BiasGelu": ["ms_biasgelu"],
    "EmbedLayerNormalization": ["ms_embed_mask", "ms_embed_sum"],
    "FastGelu": ["ms_fastgelu", "ms_fastgelu_bias"],
    "FusedConv": [name for name in CONTRIB if name.startswith("ms_fusedconv")],
    "FusedGemm": ["ms_fusedgemm", "ms_fusedgemm_leaky"],
    "FusedMatMul": [name for name in CONTRIB if name.startswith("ms_fusedmatmul")],
    "Gelu": ["ms_gelu"],
    "GroupQueryAttention": ["ms_gqa", "ms_gqa_rotary", "ms_gqa_cap"],
    "MultiHeadAttention": [name for name in CONTRIB if name.startswith("ms_mha")],
    "QuickGelu": ["ms_quickgelu"],
    "RotaryEmbedding": ["ms_rotary", "ms_rotary_heads", "ms_rotary_part"],
    "SimplifiedLayerNormalization": ["ms_simplified"],
    "SkipLayerNormalization": ["ms_skipln", "ms_skipln_broadcast"],
    "SkipSimplifiedLayerNormalization": ["ms_skipsimplified"],
}  # fmt: skip


def test_every_rewrite_is_tested() -> None:
    """Here, in test_control_flow.py, test_quantised.py, test_classical.py and test_classical_trees.py, or by
    one of ONNX's node tests (tests/test_node_tests.py)."""
    operators = {op for domain, op in REWRITES if domain != "ai.onnx.ml"} - {op for _, op in CONTROL_FLOW}
    quantised = {node.op_type for make in QUANTISED.values() for node in make().graph.node}
    operators -= {*quantised, "QLinearReduceMean"} - REWRITTEN.keys()
    chains = {"ScatterElements", "ScatterND"}  # test_scatters_of_slices_are_one_concatenation
    dynamic = {"Gemm", "MatMul"}  # test_dynamic_products.py
    empty = {"Split"}  # test_parts_of_a_split_may_have_no_element
    # test_norms_and_reductions.py
    reductions = {"ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare"}
    others = {"Elu", *chains, *dynamic, *empty, *reductions}  # Celu is made of Elu
    assert operators - REWRITTEN.keys() - SAMPLE.keys() == others
    assert REWRITTEN.keys() <= operators


@pytest.mark.parametrize(("op", "name"), [(op, name) for op, names in REWRITTEN.items() for name in names])
def test_rewritten_model_computes_the_same(op: str, name: str) -> None:
    original = MODELS[name]()
    bound = onnx.ModelProto()
    bound.CopyFrom(original)
    bind(bound, shapes={}, dims={})
    folded = fold_constants(bound)
    before = [node.name for node in folded.graph.node if node.op_type == op]
    rewritten = rewrites.apply(folded)
    assert before, "the model has the operator"
    assert not {n.name for n in rewritten.graph.node if n.domain or n.op_type == op} & set(before), "replaced"
    assert all(is_importable(node) for node in rewritten.graph.node)
    inputs = random_inputs(original, seed=5)
    results = _run(rewritten, inputs, op)
    for wanted, found in zip(run_onnxruntime(original, inputs), results, strict=True):
        assert wanted.dtype == found.dtype
        step = 1 if wanted.dtype == np.uint8 else 0
        largest = float(np.abs(wanted.astype(np.float64)).max())
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=0, atol=step or 2e-6 * largest
        )


def test_nodes_that_need_no_change_are_left_alone() -> None:
    model = CASES["resize_nearest_half_pixel"]()
    assert [node.op_type for node in rewrites.apply(model).graph.node] == ["Resize"]


def test_a_rewritten_output_that_is_read_again_keeps_its_name() -> None:
    g = Graph("chain")
    y = g.op("LpNormalization", g.input("x", [2, 3]), name="y")
    g.op("Add", y, y, name="z")
    g.output("y")
    g.output("z")
    model = g.model()
    rewritten = rewrites.apply(onnx.ModelProto.FromString(model.SerializeToString()))
    inputs = random_inputs(model, seed=5)
    for wanted, found in zip(run_onnxruntime(model, inputs), run_onnxruntime(rewritten, inputs), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


@pytest.mark.parametrize("shape", [(2, 5, 9, 7), (1, 5, 33), (7, 5)])
def test_batch_normalization_by_constants_is_a_product_and_a_sum(shape: tuple[int, ...]) -> None:
    g = Graph("norm", seed=2)
    variance = g.const(np.abs(g.rng.standard_normal(5)).astype(np.float32))
    known = [g.weight(5, std=1.0), g.weight(5, std=1.0), g.weight(5, std=1.0), variance]
    g.op("BatchNormalization", g.input("x", shape), *known, epsilon=1e-3, name="y")
    g.output("y")
    model = g.model()
    rewritten = rewrites.apply(onnx.ModelProto.FromString(model.SerializeToString()))
    assert [node.op_type for node in rewritten.graph.node] == ["Mul", "Add"]
    inputs = random_inputs(model, seed=5)
    (wanted,), (found,) = run_onnxruntime(model, inputs), run_onnxruntime(rewritten, inputs)
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * float(np.abs(wanted).max()))


def test_batch_normalization_by_inputs_stays() -> None:
    g = Graph("norm")
    values = [g.input(name, (5,)) for name in ("scale", "bias", "mean", "variance")]
    g.op("BatchNormalization", g.input("x", (2, 5, 3)), *values, name="y")
    g.output("y")
    assert [node.op_type for node in rewrites.apply(g.model()).graph.node] == ["BatchNormalization"]


def test_scatters_of_slices_are_one_concatenation() -> None:
    """Also where they overlap, count from the end, or another node reads what is between two of them."""
    g = Graph("scatters")
    x = g.input("x", [2, 7, 3])
    for index, at in enumerate((0, -2, 0, 3)):
        ids = np.broadcast_to(np.arange(at, at + 2)[:, None], (2, 2, 3))
        x = g.op("ScatterElements", x, g.const(ids.copy()), g.input(f"u{index}", [2, 2, 3]), axis=1)
        if index == 1:
            g.op("Neg", x, name="between")
    box = np.stack(np.meshgrid([0, 1], [1, 2, 3], indexing="ij"), -1)
    g.op("ScatterND", x, g.const(box), g.input("v", [2, 3, 3]), name="y")
    g.output("between")
    g.output("y")
    model = g.model()
    rewritten = rewrites.apply(onnx.ModelProto.FromString(model.SerializeToString()))
    assert [n.op_type for n in rewritten.graph.node if n.op_type not in ("Slice", "Reshape")] == [
        "Concat",
        "Neg",
        "Concat",
    ]
    inputs = random_inputs(model, seed=5)
    for wanted, found in zip(run_onnxruntime(model, inputs), run_onnxruntime(rewritten, inputs), strict=True):
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("indices", [[[0], [2]], [[1], [0]], [[1], [1]]])
def test_scatters_of_other_places_stay(indices: list[list[int]]) -> None:
    g = Graph("scatter")
    g.output(g.op("ScatterND", g.input("x", [4, 3]), g.const(np.int64(indices)), g.input("u", [2, 3])))
    assert [node.op_type for node in rewrites.apply(g.model()).graph.node] == ["ScatterND"]


def _run(model: onnx.ModelProto, inputs: dict[str, np.ndarray], op: str) -> list[np.ndarray]:
    """Outputs of a rewritten model, which may use what the importer takes and ONNX Runtime does not."""
    if op == "ConvInteger":  # becomes a Conv of int32
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, inputs)]
    if op == "Slice":  # the importer reads the form of opset 10 under any opset
        del model.opset_import[:]
        model.opset_import.append(helper.make_opsetid("", 11))
    return run_onnxruntime(model, inputs)

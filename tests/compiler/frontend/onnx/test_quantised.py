"""Integer operators become dequantise, compute, quantise (QDQ), and compute what ONNX Runtime does."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from edgepack.compiler.frontend.onnx import import_model, rewrites
from edgepack.compiler.frontend.onnx.machine_independent import CONTRIBUTED_PRODUCTS, machine_independent
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.rewrites import REWRITES
from edgepack.errors import ModelError
from workbench.compiled import Compiled
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.quantised import QUANTISED

#: Those whose exact results may lie in the middle of two steps: ONNX Runtime's kernels multiply by the
#: quotient of scales, and add the zero point before they round, so that such a result may be the other step.
MIDDLE = ("q_add_", "q_mul_", "q_conv_", "q_matmul_", "q_gemm_")

#: Those that are run by edgepack's own kernels too, and not in the slow sweep alone: types that TVM treats by
#: themselves, scales that are known at run time, and a product of each kind.
COMPILED = [
    *("q_quantize_int16_ms", "q_dequantize_uint16_ms", "q_dequantize_int4", "q_quantize_run_time"),
    *("q_conv_uint8_int8", "q_conv_scales", "q_matmul_int8_int8", "q_dynamic_matmul_uint8_int8"),
    *("q_gemm_uint8_int8", "q_to_float_scales", "q_nbits_4_64", "q_embed_int8", "q_pool_counted"),
    *("q_lstm_1", "q_dynamic"),
]


def check(name: str, wanted: np.ndarray, found: np.ndarray) -> None:
    """Integers are equal, or a few are one step off; floats are off by some units in the last place of the
    largest one."""
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    off = np.abs(found.astype(np.float64) - wanted.astype(np.float64))
    if wanted.dtype.kind in "iu" and wanted.dtype.itemsize < 4:
        assert off.max(initial=0) <= (1 if name.startswith(MIDDLE) else 0)
        assert (off > 0).mean() <= 0.02
    else:
        assert off.max(initial=0) <= 2e-6 * np.abs(wanted.astype(np.float64)).max(initial=0)


@pytest.mark.parametrize("name", QUANTISED)
def test_operator_becomes_the_standard_form(name: str) -> None:
    """As an ONNX model that ONNX Runtime runs, or ONNX's own evaluator what that has no kernel for."""
    model = QUANTISED[name]()
    normal = normalise(onnx.ModelProto.FromString(model.SerializeToString()))
    assert not any(node.domain for node in normal.graph.node)
    operators = Counter(node.op_type for node in normal.graph.node)
    assert not [op for op in operators if op.startswith(("QLinear", "QGemm", "ConvInteger"))]
    inputs = random_inputs(model, seed=5)
    for wanted, found in zip(run_onnxruntime(model, inputs), _run(normal, inputs), strict=True):
        check(name, wanted, found)


def _run(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
    if any(node.op_type == "Conv" and _is_integer(model, node) for node in model.graph.node):
        return [np.asarray(array) for array in ReferenceEvaluator(model).run(None, inputs)]
    types = {tensor.data_type for tensor in model.graph.initializer}
    types |= {v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.output)}
    if types & {TensorProto.INT16, TensorProto.UINT16}:  # which the importer takes of any opset
        del model.opset_import[:]
        model.opset_import.append(helper.make_opsetid("", 21))
        model.ir_version = 10
    return run_onnxruntime(model, inputs)


def _is_integer(model: onnx.ModelProto, node: onnx.NodeProto) -> bool:
    return any(t.name == node.input[1] and t.data_type == TensorProto.INT32 for t in model.graph.initializer)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled({name: QUANTISED[name]() for name in COMPILED}, tmp_path_factory.mktemp("quantised"))


@pytest.mark.parametrize("name", COMPILED)
def test_operator_is_compiled(name: str, compiled: Compiled) -> None:
    inputs = random_inputs(compiled.models[name], 6)
    found = compiled.run(name, inputs)
    for output, wanted in compiled.expected(name, inputs).items():
        check(name, wanted, found[output])


@pytest.mark.parametrize("value", [0.0, 3.0, -3.0])
def test_a_tensor_of_one_number_is_quantised_dynamically(value: float, compiled: Compiled) -> None:
    """Zeros have a scale of 1, not of 0."""
    inputs = {"input_0": np.full((2, 3, 8), value, np.float32)}
    found = compiled.run("q_dynamic", inputs)
    for output, wanted in compiled.expected("q_dynamic", inputs).items():
        np.testing.assert_array_equal(found[output], wanted)


@pytest.mark.slow
def test_all_operators_are_compiled(tmp_path: Path) -> None:
    everything = Compiled({name: make() for name, make in QUANTISED.items()}, tmp_path)
    for name in QUANTISED:
        inputs = random_inputs(everything.models[name], 6)
        found = everything.run(name, inputs)
        for output, wanted in everything.expected(name, inputs).items():
            check(name, wanted, found[output])


def test_every_operator_has_a_model() -> None:
    tested = {node.op_type for make in QUANTISED.values() for node in make().graph.node}
    quantised = {op for domain, op in REWRITES if op.startswith(("Q", "Dynamic", "MatMulI", "MatMulN"))}
    assert quantised - tested == {"QLinearReduceMean", "QuickGelu"}  # no kernel; no integers


def test_mean_is_that_of_its_definition() -> None:
    """ONNX Runtime has QLinearReduceMean without a kernel: "Dequantize -> ReduceMean on fp32 -> Quantize"."""
    g = Graph("mean")
    x = g.input("x", [2, 3, 5], "uint8")
    scale, zero = g.const(np.float32(0.05)), g.const(np.uint8(120))
    g.op("QLinearReduceMean", x, scale, zero, scale, zero, axes=[1], domain="com.microsoft", name="y")
    g.output("y", "uint8", [2, 1, 5])
    model = rewrites.apply(g.model())
    assert [node.op_type for node in model.graph.node] == ["DequantizeLinear", "ReduceMean", "QuantizeLinear"]
    inputs = random_inputs(model, seed=1)
    (found,) = run_onnxruntime(model, inputs)
    exact = (inputs["x"].astype(np.float64) - 120).mean(axis=1, keepdims=True)
    np.testing.assert_array_equal(found, np.rint(exact) + 120)


@pytest.mark.parametrize("rank", [1, 3])
def test_rows_of_a_product_may_have_scales_of_their_own(rank: int) -> None:
    """By a vector, or by a column that broadcasts; ONNX Runtime knows one scale only."""
    g = Graph("rows")
    a, b = g.input("a", [2, 3, 8], "uint8"), g.input("b", [2, 8, 4], "int8")
    shape = (3,) if rank == 1 else (2, 3, 1)
    scales = g.rng.uniform(0.01, 0.1, shape).astype(np.float32)
    zeros = g.rng.integers(0, 255, shape).astype(np.uint8)
    of_b, y_scale = np.float32([0.1, 0.2, 0.05, 0.3]), np.float32(2)
    names = [g.const(value) for value in (scales, zeros, of_b, np.zeros(4, np.int8), y_scale, np.uint8(128))]
    g.op("QLinearMatMul", a, *names[:2], b, *names[2:], name="y")
    g.output("y", "uint8", [2, 3, 4])
    model = rewrites.apply(g.model())
    inputs = random_inputs(model, seed=1)
    column = (-1, 1) if rank == 1 else shape
    left = (inputs["a"].astype(np.float64) - zeros.reshape(column)) * scales.reshape(column).astype(
        np.float64
    )
    exact = left @ (inputs["b"].astype(np.float64) * of_b) / y_scale
    (found,) = run_onnxruntime(model, inputs)
    assert np.abs(found - np.clip(exact + 128, 0, 255)).max() <= 0.5001


def test_integer_weights_and_biases_are_kept_as_integers() -> None:
    """What later stages look for: DequantizeLinear of a constant of int8, and of int32 for a bias; weights
    that are quantised in the model are integers too."""
    g = Graph("weights")
    step, zero = g.const(np.float32(0.02)), g.const(np.uint8(128))
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", g.input("x", [1, 3, 8, 8]), step, zero), step, zero)
    scales, zeros = g.const(np.float32([0.01] * 4)), g.const(np.zeros(4, np.int8))
    w = g.op("QuantizeLinear", g.weight(4, 3, 3, 3), scales, zeros, axis=0)
    w = g.op("DequantizeLinear", w, scales, zeros, axis=0)
    b = g.op("DequantizeLinear", g.const(np.int32([5, -7, 9, 1000])), g.const(np.float32([2e-4] * 4)), axis=0)
    g.output(g.op("Conv", x, w, b))
    normal = normalise(g.model())
    types = {tensor.name: tensor.data_type for tensor in normal.graph.initializer}
    (conv,) = (node for node in normal.graph.node if node.op_type == "Conv")
    producers = {node.output[0]: node for node in normal.graph.node}
    sources = [producers[name] for name in conv.input[1:]]
    assert [node.op_type for node in sources] == ["DequantizeLinear"] * 2
    assert [types[node.input[0]] for node in sources] == [TensorProto.INT8, TensorProto.INT32]


@pytest.mark.parametrize("op", sorted(CONTRIBUTED_PRODUCTS.keys()))
def test_reference_has_no_signed_operand_and_no_rounded_activations(op: str) -> None:
    """What saturates on x86 without VNNI; results stay signed."""
    for make in QUANTISED.values():
        model = machine_independent(make())
        node = model.graph.node[0]
        types = {t.name: t.data_type for t in model.graph.initializer}
        types |= {v.name: v.type.tensor_type.elem_type for v in (*model.graph.input, *model.graph.value_info)}
        for product in (n for n in model.graph.node if n.op_type == op):
            operands = [product.input[index] for index, _ in CONTRIBUTED_PRODUCTS[op]]
            assert TensorProto.INT8 not in [types.get(name) for name in operands], node.name


def test_reference_of_weights_in_blocks_does_not_round_activations() -> None:
    model = QUANTISED["q_nbits_4_16"]()
    model.graph.node[0].attribute.append(helper.make_attribute("accuracy_level", 4))
    inputs = random_inputs(model, 5)
    (found,), (wanted,) = run_onnxruntime(model, inputs), run_onnxruntime(QUANTISED["q_nbits_4_16"](), inputs)
    np.testing.assert_array_equal(found, wanted)


def test_a_recurrent_layer_of_many_steps_is_refused() -> None:
    model = QUANTISED["q_lstm_states_2"]()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 65
    with pytest.raises(ModelError, match="node node has 130 steps, more than 128") as caught:
        import_model(model)
    assert "op_types_to_quantize" in caught.value.hint


@pytest.mark.parametrize(
    ("op", "hint"), [("QOrderedMatMul", "QuantFormat.QDQ"), ("QuantizeWithOrder", "QuantFormat.QDQ")]
)
def test_operator_that_stays_refused_says_why_and_what_to_do(op: str, hint: str) -> None:
    g = Graph("refused")
    g.op(op, g.input("x", [3, 4]), domain="com.microsoft", name="y")
    g.output("y", shape=[3, 4])
    with pytest.raises(ModelError, match=rf"cannot compile: com\.microsoft\.{op}") as caught:
        import_model(g.model())
    assert hint in caught.value.hint
    assert "unknown here" not in caught.value.refused[0]["reason"]

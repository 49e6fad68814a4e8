"""What becomes of a float model: which tensors are integers, how near its outputs are, what is said of it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.byte_tables import with_byte_tables
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.errors import CheckFailedError, ConfigError, ModelError
from tests.compiler.frontend.onnx.quantise.support import convolutions, made, transformer
from workbench.models import build
from workbench.models.builder import Graph


def rounded(model: onnx.ModelProto) -> set[str]:
    """Names of the tensors that QuantizeLinear reads."""
    return {node.input[0] for node in model.graph.node if node.op_type == "QuantizeLinear"}


def dtypes(model: onnx.ModelProto) -> dict[str, str]:
    """Element types of the constants that DequantizeLinear and QuantizeLinear read, by what they are."""
    types = {t.name: onnx.TensorProto.DataType.Name(t.data_type) for t in model.graph.initializer}
    found = {}
    for node in model.graph.node:
        if node.op_type == "DequantizeLinear" and node.input[0] in types:
            found["bias" if types[node.input[0]] == "INT32" else "weight"] = types[node.input[0]]
        elif node.op_type == "QuantizeLinear":
            found["activation"] = types[node.input[2]]
    return found


def test_a_convolutional_network_is_near_its_float_model_in_a_quarter_of_the_space(tmp_path: Path) -> None:
    model, figures = made(convolutions(), tmp_path)
    onnx.checker.check_model(model, full_check=True)
    assert dtypes(model) == {"weight": "INT8", "bias": "INT32", "activation": "UINT8"}
    assert [value.name for value in model.graph.input] == ["image"]
    (output,) = figures.outputs
    assert output.name == "scores" and output.sqnr is not None and output.sqnr > 35
    assert [(one.name, one.operator, one.quantised) for one in figures.layers] == [
        ("Conv_0", "Conv", True),
        ("Conv_2", "Conv", True),
        ("Add_3", "Add", True),
        ("GlobalAveragePool_5", "GlobalAveragePool", True),
        ("Gemm_7", "Gemm", True),
    ]
    assert figures.weight_bytes_after < figures.weight_bytes_before / 2
    assert "random" in figures.warnings[-1] and "accuracy" in figures.warnings[-1]


def test_the_figures_are_those_of_the_written_model(tmp_path: Path) -> None:
    source = convolutions()
    x = np.random.default_rng(0).standard_normal((1, 3, 8, 8)).astype(np.float32)
    np.savez(tmp_path / "data.npz", image=x)
    model, figures = made(source, tmp_path, tmp_path / "data.npz")
    exact, other = (create_session(m).run(None, {"image": x})[0] for m in (source, model))
    (output,) = figures.outputs
    noise = np.square(exact - other).sum()
    assert output.sqnr == pytest.approx(10 * np.log10(np.square(exact).sum() / noise), abs=0.01)
    assert output.max_error == pytest.approx(np.abs(exact - other).max(), rel=1e-4)
    assert output.top1 == float(exact.argmax() == other.argmax())
    assert figures.warnings == ()


def test_only_what_lies_between_products_is_rounded(tmp_path: Path) -> None:
    model, figures = made(transformer(), tmp_path, activation_tables=False)
    # Neither the sums before a bias, nor what GELU, the norm or the output read.
    assert rounded(model) == {"tokens", "gelu", "norm"}
    assert rounded(made(transformer(), tmp_path)[0]) == {"tokens", "up_bias", "gelu", "norm"}
    assert {one.name for one in figures.layers} == {"MatMul_0", "MatMul_7", "MatMul_11"}
    (output,) = figures.outputs
    assert output.sqnr is not None and output.sqnr > 35


def test_a_product_is_rounded_behind_its_activation(tmp_path: Path) -> None:
    g = Graph("activations", opset=17)
    x = g.op("Conv", g.input("image", (1, 3, 8, 8)), g.weight(8, 3, 3, 3), pads=[1] * 4)
    x = g.op("Conv", g.op("HardSwish", x, name="hard"), g.weight(8, 8, 3, 3), pads=[1] * 4)
    x = g.op("Conv", g.op("Mul", x, g.op("Sigmoid", x), name="silu"), g.weight(8, 8, 3, 3), pads=[1] * 4)
    gate = g.op("Conv", g.op("GlobalAveragePool", x, name="mean"), g.weight(8, 8, 1, 1))
    x = g.op("Mul", x, g.op("Sigmoid", gate, name="gate"), name="gated")
    g.op("Conv", x, g.weight(4, 8, 3, 3), name="y")
    g.output("y")
    model, figures = made(g.model(), tmp_path, activation_tables=False)
    assert rounded(model) == {"image", "hard", "silu", "Conv_5", "mean", "gate", "gated"}
    expensive = rounded(made(g.model(), tmp_path)[0]) - rounded(model)
    assert len(expensive) == 2  # of SiLU and the gate, not of hard-swish
    assert [one.operator for one in figures.layers] == [
        *("Conv", "Conv", "Conv", "GlobalAveragePool", "Conv", "Mul", "Conv")
    ]
    assert figures.outputs[0].sqnr is not None and figures.outputs[0].sqnr > 30


def test_a_weight_has_a_scale_for_each_channel_of_the_result(tmp_path: Path) -> None:
    model, _ = made(transformer(), tmp_path)
    sizes = [
        (tuple(weight.dims), tuple(scale.dims), next(a.i for a in node.attribute if a.name == "axis"))
        for node in model.graph.node
        if node.op_type == "DequantizeLinear"
        for weight in model.graph.initializer
        for scale in model.graph.initializer
        if (weight.name, scale.name) == (node.input[0], node.input[1]) and weight.data_type == 3
    ]
    assert sizes == [((16, 32), (32,), 1), ((32, 16), (16,), 1), ((16, 3), (3,), 1)]


def test_a_stack_of_matrices_has_one_scale(tmp_path: Path) -> None:
    g = Graph("stack")
    g.op("MatMul", g.input("x", (4, 2, 6)), g.weight(4, 6, 5), name="y")
    g.output("y")
    model, figures = made(g.model(), tmp_path)
    (scale,) = [t for t in model.graph.initializer if t.name.startswith("const_0_scale")]
    assert np.size(numpy_helper.to_array(scale)) == 1
    assert figures.layers[0].quantised


@pytest.mark.parametrize(("groups", "scales"), [(1, [8]), (2, [])])
def test_a_transposed_convolution_has_a_scale_for_each_channel_but_for_groups(
    groups: int, scales: list[int], tmp_path: Path
) -> None:
    """A bias has a scale for each channel of the result, weights in groups one for each of a group's."""
    g = Graph("transposed")
    x = g.input("x", (1, 8, 4, 4))
    weights = g.weight(8, 8 // groups, 2, 2), g.weight(8)
    y = g.op("ConvTranspose", x, *weights, group=groups, strides=[2, 2], name="up")
    g.op("Conv", y, g.weight(4, 8, 3, 3), name="y")
    g.output("y")
    quantised, figures = made(g.model(), tmp_path)
    constants = {tensor.name: tensor for tensor in quantised.graph.initializer}
    (up,) = (node for node in quantised.graph.node if node.op_type == "ConvTranspose")
    (of_weights,) = (node for node in quantised.graph.node if node.output[0] == up.input[1])
    assert list(constants[of_weights.input[1]].dims) == scales
    assert all((output.sqnr or 0) > 20 for output in figures.outputs)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
def test_weights_of_a_reduced_range_have_7_bits(tmp_path: Path, dynamic: bool) -> None:
    """No two products of such a weight and a byte exceed an int16: 2 * 255 * 64 < 32768."""
    source = transformer() if dynamic else convolutions()
    model, figures = made(source, tmp_path, dynamic=dynamic, reduce_range=True)
    weights = [
        numpy_helper.to_array(t) for t in model.graph.initializer if t.data_type == onnx.TensorProto.INT8
    ]
    largest = [int(np.abs(one.astype(int)).max()) for one in weights if one.size > 1 and one.any()]
    assert len(largest) >= 3 and set(largest) == {64} | ({*largest} & {63})
    assert figures.outputs[0].sqnr is not None and figures.outputs[0].sqnr > 25


@pytest.mark.parametrize("symmetric", [False, True], ids=["uint8", "int8"])
def test_activations_between_two_roundings_are_tables(tmp_path: Path, symmetric: bool) -> None:
    """SiLU, GELU written out, hard-swish: what is left of them when the model is packed is a Gather."""
    g, source = Graph("activations"), tmp_path
    x, before = g.input("x", (1, 8, 12, 12)), 8
    for channels, activation in ((16, "silu"), (16, "gelu"), (8, "HardSwish")):
        x, before = g.act(g.conv(x, before, channels, 3, bias=True), activation), channels
    g.op("Conv", x, g.weight(4, 8, 1, 1), name="y")
    g.output("y")
    plain, exact = made(g.model(), source, symmetric=symmetric, activation_tables=False)
    model, figures = made(g.model(), source, symmetric=symmetric, activation_tables=True)
    onnx.checker.check_model(model, full_check=True)
    added = rounded(model) - rounded(plain)
    assert len(added) == 3 and not rounded(plain) - rounded(model)
    kept = {node.op_type for node in with_byte_tables(model).graph.node}
    assert "Gather" in kept and not kept & {"Sigmoid", "Erf", "HardSwish", "HardSigmoid", "Mul"}
    assert exact.outputs[0].sqnr is not None and figures.outputs[0].sqnr is not None
    assert exact.outputs[0].sqnr - 8 < figures.outputs[0].sqnr


def test_a_layer_that_stays_float_is_not_rounded_before_its_activation(tmp_path: Path) -> None:
    """Also where it reads what another layer has rounded."""
    g = Graph("two heads")
    x = g.act(g.conv(g.input("x", (1, 8, 12, 12)), 8, 8), "Relu")
    kept, other = (g.op("Conv", x, g.weight(8, 8, 1, 1), name=name) for name in ("kept", "other"))
    both = g.op("Add", g.act(kept, "silu"), g.act(other, "silu"))
    g.op("Conv", both, g.weight(4, 8, 1, 1), name="y")
    g.output("y")
    names = {node.output[0]: node.name for node in made(g.model(), tmp_path)[0].graph.node}
    model, _ = made(g.model(), tmp_path, exclude=(names["kept"],))
    assert "kept" not in rounded(model)


def test_products_of_two_activations_stay_float(tmp_path: Path) -> None:
    """Attention is one kernel then."""
    g = Graph("scores")
    x = g.input("x", (2, 6, 16))
    queries, keys = (g.op("MatMul", x, g.weight(16, 16, std=0.25), name=name) for name in ("queries", "keys"))
    scores = g.op("MatMul", queries, g.op("Transpose", keys, perm=[0, 2, 1]), name="scores")
    g.op("MatMul", g.op("Softmax", scores), x, name="y")
    g.output("y")
    model, figures = made(g.model(), tmp_path)
    assert rounded(model) == {"x"}
    assert [layer.name for layer in figures.layers if layer.quantised] == ["MatMul_0", "MatMul_1"]


def test_symmetric_activations_are_int8_around_zero(tmp_path: Path) -> None:
    model, figures = made(convolutions(), tmp_path, symmetric=True)
    assert dtypes(model)["activation"] == "INT8"
    zeros = {
        int(numpy_helper.to_array(t))
        for t in model.graph.initializer
        if any(n.op_type == "QuantizeLinear" and n.input[2] == t.name for n in model.graph.node)
    }
    assert zeros == {0}
    assert figures.outputs[0].sqnr is not None and figures.outputs[0].sqnr > 30


def test_a_percentile_clips_and_says_how_much(tmp_path: Path) -> None:
    _, widest = made(convolutions(), tmp_path)
    _, figures = made(convolutions(), tmp_path, method="percentile", percentile=99.0)
    assert all(one.outside == 0 for one in widest.layers)
    assert 0.003 < figures.layers[0].outside < 0.012
    assert figures.outputs[0].sqnr is not None and figures.outputs[0].sqnr > 20


def test_entropy_clips_what_is_rare_and_large(tmp_path: Path) -> None:
    g = Graph("outlier")
    g.op("Gemm", g.input("x", (1, 4096)), g.weight(4096, 4), name="y")
    g.output("y")
    data = np.random.default_rng(0).standard_normal((8, 4096)).astype(np.float32)
    data[0, 0] = 1000
    np.savez(tmp_path / "data.npz", x=data)
    steps = []
    for method in ("minmax", "entropy"):
        model, _ = made(g.model(), tmp_path, tmp_path / "data.npz", samples=8, method=method)
        steps += [float(numpy_helper.to_array(t)) for t in model.graph.initializer if t.name == "x_scale"]
    assert steps[0] > 3.9 and steps[1] < 0.6


def test_biases_take_up_the_mean_error_of_rounded_weights(tmp_path: Path) -> None:
    ratios = [
        made(convolutions(seed), tmp_path, bias_correction=on, samples=8)[1].outputs[0].sqnr
        for on in (False, True)
        for seed in range(6)
    ]
    assert np.mean(np.asarray(ratios[6:], float)) > np.mean(np.asarray(ratios[:6], float)) + 1


@pytest.mark.parametrize("pattern", ["Conv_0", "Conv_*", "Conv"])
def test_excluded_layers_stay_float(pattern: str, tmp_path: Path) -> None:
    model, figures = made(convolutions(), tmp_path, exclude=(pattern,))
    kept = {one.name for one in figures.layers if not one.quantised}
    assert kept == ({"Conv_0"} if pattern == "Conv_0" else {"Conv_0", "Conv_2"})
    weights = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    given = {t.name: numpy_helper.to_array(t) for t in convolutions().graph.initializer}
    assert np.array_equal(weights["const_0"], given["const_0"])
    assert np.array_equal(weights["const_1"], given["const_1"])  # no rounding, so no error in the bias


def test_as_few_layers_stay_float_as_the_bar_needs(tmp_path: Path) -> None:
    _, plain = made(convolutions(), tmp_path)
    assert plain.outputs[0].sqnr is not None
    bar = plain.outputs[0].sqnr + 1
    _, figures = made(convolutions(), tmp_path, min_sqnr=bar)
    assert figures.outputs[0].sqnr is None or figures.outputs[0].sqnr >= bar
    assert 0 < len(figures.kept_float) < 5
    assert {one.name for one in figures.layers if not one.quantised} == {*figures.kept_float}
    _, met = made(convolutions(), tmp_path, min_sqnr=bar - 3)
    assert met.kept_float == ()


def test_a_bar_that_nothing_quantised_reaches_is_a_failed_check(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match=r"--min-sqnr 140: outputs come no nearer than \d+"):
        made(convolutions(), tmp_path, min_sqnr=140.0)


def test_dynamic_quantisation_needs_no_data(tmp_path: Path) -> None:
    model, figures = made(transformer(), tmp_path, dynamic=True)
    operators = Counter(node.op_type for node in model.graph.node)
    assert operators["MatMulInteger"] == 3 and operators["MatMul"] == 0
    assert figures.outputs[0].sqnr is not None and figures.outputs[0].sqnr > 30
    with pytest.raises(ModelError, match="nothing to quantise dynamically"):
        g = Graph("one")
        g.op("Conv", g.input("x", (1, 3, 8, 8)), g.weight(4, 3, 3, 3), name="y")
        g.output("y")
        made(g.model(), tmp_path, dynamic=True)


def test_weights_that_stay_float_are_spoken_of(tmp_path: Path) -> None:
    _, figures = made(build("lstm"), tmp_path)
    assert figures.weight_bytes_after > figures.weight_bytes_before / 2
    assert "Most of the model's weights stay float" in figures.warnings[-1]
    assert "--dynamic" in figures.warnings[-1]
    model, figures = made(build("lstm"), tmp_path, dynamic=True)
    assert "DynamicQuantizeLSTM" in {node.op_type for node in model.graph.node}
    assert not any("stay float" in text for text in figures.warnings)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    files = []
    for _ in range(2):
        made(convolutions(), tmp_path)
        files.append((tmp_path / "quantised.onnx").read_bytes())
    assert files[0] == files[1]


def test_open_sizes_are_bound_and_batch_norms_folded(tmp_path: Path) -> None:
    model, figures = made(build("efficientnet"), tmp_path, options=ImportOptions(dims={"batch": 1}))
    assert not any(node.op_type == "BatchNormalization" for node in model.graph.node)
    assert create_session(model).get_inputs()[0].shape[0] == 1
    assert figures.outputs[0].sqnr is not None and figures.outputs[0].sqnr > 30


def test_old_operator_sets_are_converted(tmp_path: Path) -> None:
    g = Graph("old", opset=11)
    g.op("Squeeze", g.op("Conv", g.input("x", (1, 3, 8, 8)), g.weight(4, 3, 8, 8)), axes=[2, 3], name="y")
    g.output("y")
    model, _ = made(g.model(), tmp_path)
    assert model.opset_import[0].version == 13
    onnx.checker.check_model(model, full_check=True)


def test_a_layer_with_values_beyond_all_numbers_stays_float(tmp_path: Path) -> None:
    g = Graph("infinite")
    x = g.op("Conv", g.input("x", (1, 3, 8, 8)), g.weight(4, 3, 3, 3), name="fine")
    g.op("Conv", g.op("Div", x, g.const(0.0)), g.weight(4, 4, 3, 3), name="y")
    g.output("y")
    _, figures = made(g.model(), tmp_path)
    assert [(one.name, one.quantised) for one in figures.layers] == [("Conv_0", True), ("Conv_2", False)]
    assert figures.warnings[-1] == "Values of Conv_2 are not finite on the calibration data: it stays float."


def test_what_cannot_be_quantised_is_refused_in_a_sentence(tmp_path: Path) -> None:
    twice, _ = made(convolutions(), tmp_path)
    with pytest.raises(ModelError, match="is quantised already: it has the operator"):
        made(twice, tmp_path)
    g = Graph("sum")
    g.op("Add", g.input("x", (4,)), g.weight(4), name="y")
    g.output("y")
    with pytest.raises(ModelError, match="nothing to quantise: the model has neither convolutions"):
        made(g.model(), tmp_path)
    with pytest.raises(ConfigError, match=r"--exclude head\*: no layer"):
        made(convolutions(), tmp_path, exclude=("head*",))
    with pytest.raises(ConfigError, match="--exclude leaves no layer"):
        made(convolutions(), tmp_path, exclude=("*",))

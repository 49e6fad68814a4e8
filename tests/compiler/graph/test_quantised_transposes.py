"""Transposed convolutions of quantised tensors are products of integers, each as ONNX defines it."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph

#: By name: input's shape, output channels of a group, window, and attributes.
CASES: dict[str, tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = {
    "doubled": ((1, 12, 5, 6), 9, (2, 2), {"strides": [2, 2]}),
    "phases of fewer taps": (
        (2, 8, 6, 5),
        8,
        (3, 3),
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "two taps of a phase": ((1, 8, 7, 5), 16, (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    "groups": ((1, 16, 5, 4), 6, (2, 3), {"strides": [2, 3], "group": 2}),
    "depthwise": ((1, 24, 6, 5), 1, (4, 4), {"strides": [2, 2], "pads": [1, 1, 1, 1], "group": 24}),
    "stride 1": ((1, 8, 6, 7), 8, (3, 3), {"pads": [2, 0, 1, 1]}),
    "signal": ((1, 8, 11), 5, (4,), {"strides": [2], "pads": [1, 1]}),
}
#: Zero points of the input, of the weights, and of the output; the weights' type.
TYPES = {"s8": (131, 0, 117, "int8"), "u8": (0, 122, 90, "uint8")}
PAIRS = [(name, types) for name in CASES for types in TYPES if types == "s8" or name == "groups"]


def _model(name: str, types: str, *, activation: str = "") -> onnx.ModelProto:
    """DequantizeLinear, ConvTranspose, an activation, QuantizeLinear; also the float value, by way of a
    bound, where there is no QuantizeLinear."""
    shape, out, window, attributes = CASES[name]
    zx, zw, zy, dtype = TYPES[types]
    g, groups, rank = Graph(name), attributes.get("group", 1), len(window)
    info, channels = np.iinfo(dtype), out * groups
    w = g.rng.integers(info.min, info.max + 1, (shape[1], out, *window)).astype(dtype)
    scales = g.rng.uniform(0.001, 0.002, 1 if zw else out).astype(np.float32)
    of_bias = np.tile(scales * np.float32(0.05), groups if not zw else channels)
    x = g.op(
        "DequantizeLinear", g.input("x", shape, "uint8"), g.const(np.float32(0.05)), g.const(np.uint8(zx))
    )
    if zw:
        scales = scales.reshape(())
    steps = g.const(scales), g.const(np.full(scales.shape, zw, dtype))
    weights = g.op("DequantizeLinear", g.const(w), *steps, axis=1)
    b = g.const(g.rng.integers(-9000, 9000, channels).astype(np.int32)), g.const(of_bias)
    bias = g.op("DequantizeLinear", *b, g.const(np.zeros(channels, np.int32)), axis=0)
    y = g.op("ConvTranspose", x, weights, bias, **attributes)
    y = g.op(activation, y) if activation else y
    step = 0.05 * 0.0015 * 74 * 74 * (shape[1] // groups) ** 0.5 * 2 ** (rank / 2) / 40
    g.output(g.op("QuantizeLinear", y, g.const(np.float32(step)), g.const(np.uint8(zy)), name="y"), "uint8")
    return g.model()


def _defined(model: onnx.ModelProto, x: np.ndarray, *, low: float = -np.inf) -> np.ndarray:
    """What such a model gives if sums are exact, and each is rounded once."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    made = {output: node for node in model.graph.node for output in node.output}
    (node,) = (one for one in model.graph.node if one.op_type == "ConvTranspose")
    (x_scale, x_zero), (w_scale, w_zero) = (
        [constants[name] for name in made[operand].input[1:3]] for operand in node.input[:2]
    )
    w, bias = (constants[made[operand].input[0]] for operand in node.input[1:3])
    y_scale, y_zero = (constants[name] for name in made[model.graph.output[0].name].input[1:3])
    a = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
    groups, rank = a.get("group", 1), w.ndim - 2
    whole = w.astype(np.int64) - w_zero.reshape(-1, *[1] * rank).astype(np.int64)
    sums = _transposed(x.astype(np.int64) - x_zero, whole, a) + bias.reshape(-1, *[1] * rank)
    factor = (x_scale * w_scale).astype(np.float32) / y_scale
    scales = np.tile(np.broadcast_to(factor, w.shape[1:2]), groups).reshape(-1, *[1] * rank)
    rounded = np.rint(np.maximum(sums.astype(np.float32) * scales.astype(np.float32), low))
    return np.clip(rounded.astype(np.int64) + y_zero, 0, 255).astype(np.uint8)


def _transposed(x: np.ndarray, w: np.ndarray, a: dict[str, Any]) -> np.ndarray:
    """Each element of the input by the window, added up where the window stands."""
    rank, groups, out = w.ndim - 2, a.get("group", 1), w.shape[1]
    strides = a.get("strides", [1] * rank)
    pads, more = a.get("pads", [0] * 2 * rank), a.get("output_padding", [0] * rank)
    size = [(n - 1) * s + k + m for n, s, k, m in zip(x.shape[2:], strides, w.shape[2:], more, strict=True)]
    full = np.zeros((len(x), groups * out, *size), np.int64)
    inner = w.shape[0] // groups
    for group in range(groups):
        channels = slice(group * inner, (group + 1) * inner)
        for tap in np.ndindex(*w.shape[2:]):
            added = np.einsum("ni...,io->no...", x[:, channels], w[channels][(..., *tap)])
            ends = zip(tap, x.shape[2:], strides, strict=True)
            places = tuple(slice(k, k + (n - 1) * s + 1, s) for k, n, s in ends)
            full[(slice(None), slice(group * out, (group + 1) * out), *places)] += added
    cut = tuple(slice(pads[i], size[i] - pads[rank + i]) for i in range(rank))
    return full[(slice(None), slice(None), *cut)]


def _with_the_sums() -> onnx.ModelProto:
    """A model whose ConvTranspose is an output too."""
    model = _model("doubled", "s8", activation="Relu")
    (node,) = (one for one in model.graph.node if one.op_type == "ConvTranspose")
    sums = onnx.helper.make_tensor_value_info(node.output[0], onnx.TensorProto.FLOAT, [1, 9, 10, 12])
    model.graph.output.append(sums)
    return model


def _by_a_constant_of_rank_5() -> onnx.ModelProto:
    """A model that doubles what is computed, by a tensor of one element and of more axes."""
    model = _model("doubled", "s8", activation="Identity")
    (node,) = (one for one in model.graph.node if one.op_type == "Identity")
    node.op_type = "Mul"
    node.input.append("two")
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.full([1] * 5, 2, np.float32), "two"))
    y = onnx.helper.make_tensor_value_info("y", onnx.TensorProto.UINT8, [1, 1, 9, 10, 12])
    model.graph.output[0].CopyFrom(y)
    return model


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {f"{name}, {types}": _model(name, types) for name, types in PAIRS}
    models["doubled, Relu"] = _model("doubled", "s8", activation="Relu")
    models["doubled, Softsign"] = _model("doubled", "s8", activation="Softsign")
    models |= {"two outputs": _with_the_sums(), "higher rank": _by_a_constant_of_rank_5()}
    return Compiled(models, tmp_path_factory.mktemp("transposes"))


@pytest.mark.parametrize("name", [*(f"{name}, {types}" for name, types in PAIRS), "doubled, Relu"])
def test_every_integer_is_that_of_exact_sums(compiled: Compiled, name: str) -> None:
    (spec,) = compiled.plan(name).inputs
    rng, low = np.random.default_rng(3), 0.0 if "Relu" in name else -np.inf
    for values in ([0, 255], range(256)):
        x = rng.choice(np.array(values, np.uint8), spec.shape)
        expected = _defined(compiled.models[name], x, low=low)
        assert len(np.unique(expected)) > 40
        np.testing.assert_array_equal(compiled.run(name, {"x": x})["y"], expected)
        by_floats = compiled.expected(name, {"x": x})["y"].astype(int)
        assert np.abs(by_floats - expected).max() <= 1


def test_an_activation_that_is_not_known_follows_the_whole_output(compiled: Compiled) -> None:
    compiled.check("doubled, Softsign")


def test_what_is_also_an_output_is_spread_before_its_activation(compiled: Compiled) -> None:
    (spec,) = compiled.plan("two outputs").inputs
    x = np.random.default_rng(3).integers(0, 256, spec.shape).astype(np.uint8)
    found, expected = (run("two outputs", {"x": x}) for run in (compiled.run, compiled.expected))
    (other,) = found.keys() - {"y"}
    np.testing.assert_allclose(found[other], expected[other], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["y"], compiled.run("doubled, Relu", {"x": x})["y"])


def test_a_constant_of_a_higher_rank_follows_the_whole_output(compiled: Compiled) -> None:
    (spec,) = compiled.plan("higher rank").inputs
    x = np.random.default_rng(3).integers(0, 256, spec.shape).astype(np.uint8)
    found, expected = (run("higher rank", {"x": x})["y"] for run in (compiled.run, compiled.expected))
    assert found.shape == expected.shape == (1, 1, 9, 10, 12)
    assert np.abs(found.astype(int) - expected).max() <= 1


def test_bytes_are_spread(compiled: Compiled) -> None:
    """A product of integers, bytes behind it, and one kernel that moves these."""
    kernels = compiled.plan("doubled, s8").kernels
    (product,) = (kernel for kernel in kernels if kernel.rule.startswith("conv2d"))
    assert "operands" in product.parameters
    assert {"round", "cast"} <= {word for op in product.ops for word in op.split("_")}
    assert not any("dequantize" in kernel.ops for kernel in kernels)

"""Quantised operators are exact: sums of integers, and one rounding of each, as ONNX defines them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.compiler.kernels.cpu.micro.dot4_bytes import byte_products
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from workbench.compiled import Library, plan_of, target_with
from workbench.executor import host_target
from workbench.models.builder import Graph

#: Input's shape, output channels, window, and attributes of a convolution.
Convolution = tuple[tuple[int, ...], int, tuple[int, ...], dict[str, Any]]

#: By name.
CONVOLUTIONS: dict[str, Convolution] = {
    "first layer": ((1, 3, 15, 13), 20, (3, 3), {"strides": [2, 2], "pads": [1] * 4}),
    "one channel": ((2, 1, 15, 13), 20, (3, 4), {"strides": [2, 2], "pads": [1, 1, 1, 2]}),
    "one channel, dilated": ((1, 1, 12, 17), 9, (2, 3), {"dilations": [1, 2], "pads": [0, 2, 1, 2]}),
    "pointwise": ((2, 32, 5, 7), 40, (1, 1), {}),
    "window": ((1, 12, 9, 8), 17, (3, 3), {"pads": [1, 0, 1, 2]}),
    "window in a wide image": ((1, 8, 5, 70), 9, (3, 3), {"pads": [1, 0, 1, 2]}),
    "signal": ((1, 6, 40), 9, (5,), {"pads": [4, 4], "dilations": [2]}),
    "groups": ((1, 12, 9, 8), 15, (3, 3), {"group": 3, "pads": [1] * 4}),
    "depthwise": ((1, 40, 11, 13), 40, (3, 3), {"group": 40, "pads": [1] * 4}),
    "depthwise by two": ((2, 24, 9, 9), 24, (5, 5), {"group": 24, "pads": [2] * 4, "strides": [2, 2]}),
    "depthwise dilated": (
        (1, 19, 9, 14),
        19,
        (3, 4),
        {"group": 19, "pads": [2, 0, 2, 3], "dilations": [2, 1]},
    ),
    "depthwise of few channels": ((1, 6, 9, 8), 6, (3, 3), {"group": 6}),
    "depthwise signal": ((1, 16, 40), 16, (9,), {"group": 16, "pads": [8, 0]}),
}
#: Type and zero point of the input, those of the weights, those of the output.
TYPES = {
    "u8s8": (("uint8", 131), ("int8", 0), ("uint8", 117)),
    "s8s8": (("int8", -128), ("int8", 0), ("int8", 3)),
    "u8u8": (("uint8", 255), ("uint8", 122), ("uint8", 90)),
    # Weights of 7 bits, of which no two products exceed 16 bits.
    "u8s7": (("uint8", 131), ("int8", 0), ("uint8", 117)),
    "s8s7": (("int8", 5), ("int8", 0), ("uint8", 117)),
}
#: The least and the largest weight, where they are not those of their type.
LIMITS = {"u8s7": (-64, 63), "s8s7": (-64, 63)}
#: Types of which every convolution is tried; of the others some are.
EVERY = ("u8s8", "u8s7")
SOME = ("window", "depthwise", "one channel")


def convolution(of: Convolution, types: str) -> onnx.ModelProto:
    """QLinearConv of all bytes, weights and biases with a scale for each channel."""
    shape, out, window, attributes = of
    (x, zx), (w, zw), (y, zy) = TYPES[types]
    g = Graph("convolution")
    low, high = LIMITS.get(types, (np.iinfo(w).min, np.iinfo(w).max))
    sizes = out, shape[1] // attributes.get("group", 1), *window
    weights = g.rng.integers(low, high + 1, sizes).astype(w)
    weights.reshape(-1)[:2] = low, high
    per_channel = types != "u8u8"
    scales = g.rng.uniform(0.001, 0.002, out if per_channel else 1).astype(np.float32)
    if not per_channel:
        scales = scales.reshape(())
    deviation = 0.05 * 0.0015 * 74 * (high - low) * 0.29 * np.prod(sizes[1:]) ** 0.5
    inputs = [
        g.input("x", shape, x),
        *(g.const(np.float32(0.05)), g.const(np.array(zx, x))),
        *(g.const(weights), g.const(scales), g.const(np.full(scales.shape, zw, w))),
        *(g.const(np.float32(deviation / 60)), g.const(np.array(zy, y))),
        g.const(g.rng.integers(-9000, 9000, out).astype(np.int32)),
    ]
    g.output(g.op("QLinearConv", *inputs, name="y", **attributes), y)
    return g.model()


def _product(types: str) -> onnx.ModelProto:
    (a, za), (b, zb), (y, zy) = TYPES[types]
    g = Graph("product")
    low, high = LIMITS.get(types, (np.iinfo(b).min, np.iinfo(b).max))
    weights = g.rng.integers(low, high + 1, (33, 21)).astype(b)
    inputs = [
        *(g.input("x", (2, 7, 33), a), g.const(np.float32(0.05)), g.const(np.array(za, a))),
        *(g.const(weights), g.const(np.float32(0.002)), g.const(np.array(zb, b))),
        *(g.const(np.float32(0.05)), g.const(np.array(zy, y))),
    ]
    g.output(g.op("QLinearMatMul", *inputs, name="y"), y)
    return g.model()


def defined(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What a model of one quantised operator gives, by the operator's definition."""
    (node,) = model.graph.node
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, *bias = (constants[name] for name in node.input[1:])
    left = x.astype(np.int64) - x_zero
    if node.op_type == "QLinearMatMul":
        sums = left @ (w.astype(np.int64) - w_zero)
    else:
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        rank = w.ndim - 1
        weights = w.astype(np.int64) - w_zero.reshape(-1, *[1] * rank)
        channels = [1, -1, *[1] * (rank - 1)]
        sums = convolved(left, weights, attributes) + bias[0].reshape(channels)
        w_scale = w_scale.reshape(channels)
    scaled = sums.astype(np.float32) * ((x_scale * w_scale).astype(np.float32) / y_scale).astype(np.float32)
    info = np.iinfo(y_zero.dtype)
    return np.clip(np.rint(scaled).astype(np.int64) + y_zero, info.min, info.max).astype(y_zero.dtype)


def convolved(x: np.ndarray, w: np.ndarray, attributes: Mapping[str, Any]) -> np.ndarray:
    rank, groups = w.ndim - 2, attributes.get("group", 1)
    pads = attributes.get("pads", [0] * 2 * rank)
    strides, dilations = (attributes.get(key, [1] * rank) for key in ("strides", "dilations"))
    x = np.pad(x, [(0, 0), (0, 0), *zip(pads[:rank], pads[rank:], strict=True)])
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, reach, axis=tuple(range(2, rank + 2)))
    outer = tuple(slice(None, None, s) for s in strides)
    windows = windows[(slice(None), slice(None), *outer, *(slice(None, None, d) for d in dilations))]
    out, inner = w.shape[0] // groups, w.shape[1]
    made = [
        np.einsum(
            "ncyxij,ocij->noyx" if rank == 2 else "ncyi,oci->noy",
            windows[:, g * inner : (g + 1) * inner],
            w[g * out : (g + 1) * out],
        )
        for g in range(groups)
    ]
    return np.concatenate(made, axis=1)


class Quantised(Graph):
    """A graph of quantised tensors, weights from -``largest`` to ``largest``."""

    def __init__(self, name: str, largest: int = 127) -> None:
        super().__init__(name)
        self.largest = largest

    def quantise(self, x: str, scale: float, zero: int, dtype: str = "uint8", name: str = "") -> str:
        """QuantizeLinear."""
        return self.op("QuantizeLinear", x, *self._steps(scale, zero, dtype), name=name)

    def dequantise(self, x: str, scale: float, zero: int, dtype: str = "uint8") -> str:
        """DequantizeLinear."""
        return self.op("DequantizeLinear", x, *self._steps(scale, zero, dtype))

    def fake(self, x: str, scale: float, zero: int) -> str:
        """Both."""
        return self.dequantise(self.quantise(x, scale, zero), scale, zero)

    def conv(self, x: str, channels: int, out: int, scale: float, groups: int = 1) -> str:
        """A 3x3 convolution of a dequantised tensor by weights with a scale for each channel, and a bias of
        the scale of its products."""
        shape = out, channels // groups, 3, 3
        weights = self.const(self.rng.integers(-self.largest, self.largest + 1, shape).astype(np.int8))
        scales = self.rng.uniform(0.12, 0.36, out).astype(np.float32) / np.float32(self.largest)
        of_weights = self.op(
            "DequantizeLinear", weights, self.const(scales), self.const(np.zeros(out, np.int8)), axis=0
        )
        bias = self.const(self.rng.integers(-4000, 4000, out).astype(np.int32))
        zeros = self.const(np.zeros(out, np.int32))
        factors = self.const((np.float32(scale) * scales).astype(np.float32))
        of_bias = self.op("DequantizeLinear", bias, factors, zeros, axis=0)
        return self.op("Conv", x, of_weights, of_bias, pads=[1] * 4, group=groups)

    def _steps(self, scale: float, zero: int, dtype: str) -> tuple[str, str]:
        return self.const(np.float32(scale)), self.const(np.array(zero, dtype))


def _network(largest: int) -> onnx.ModelProto:
    """What stands between the convolutions of a network: bounds, a depthwise one, a residual, a maximum, a
    concatenation of two scales, an activation, a move, and a tensor that is an output too."""
    g = Quantised("network", largest)
    x = g.fake(g.input("x", (1, 8, 12, 12)), 0.03, 128)
    a = g.fake(g.op("Relu", g.conv(x, 8, 16, 0.03)), 0.02, 0)
    bounds = g.const(np.float32(0)), g.const(np.float32(6))
    b = g.fake(g.op("Clip", g.conv(a, 16, 16, 0.02), *bounds), 0.03, 7)
    b = g.fake(g.conv(b, 16, 16, 0.03, groups=16), 0.06, 120)
    c = g.fake(g.op("Add", g.fake(g.conv(b, 16, 16, 0.06), 0.05, 120), a), 0.06, 110)
    d = g.fake(g.op("MaxPool", c, kernel_shape=[2, 2], strides=[2, 2]), 0.06, 110)
    e = g.fake(g.conv(d, 16, 8, 0.06), 0.07, 130)
    both = g.fake(g.op("Concat", d, e, axis=1), 0.075, 125)
    gate = g.fake(g.op("Sigmoid", both), 1 / 256, 0)
    product = g.quantise(g.op("Mul", both, gate), 0.05, 30, name="kept")
    g.output(product, "uint8")
    flat = g.op("Reshape", g.dequantise(product, 0.05, 30), g.const(np.array([1, 24, 36])))
    g.output(g.quantise(flat, 0.05, 30, name="flat"), "uint8")
    return g.model()


def _joined() -> onnx.ModelProto:
    """A convolution of a concatenation, one part of which has the other's scale, but another zero point
    before it is quantised anew, which its bounds allow."""
    g = Quantised("joined", 63)
    first = g.op("Relu", g.conv(g.fake(g.input("a", (1, 8, 6, 6)), 0.03, 90), 8, 8, 0.03))
    again = g.quantise(g.fake(first, 0.0311, 10), 0.0311, 5)
    second = g.quantise(g.input("b", (1, 8, 6, 6)), 0.0311, 5)
    both = g.dequantise(g.op("Concat", again, second, axis=1), 0.0311, 5)
    g.output(g.quantise(g.conv(both, 16, 8, 0.0311), 0.17, 101, name="y"), "uint8")
    return g.model()


def _joined_by_scale(how: tuple[int, str], *, last: bool) -> onnx.ModelProto:
    """A concatenation that is quantised by a scale which one part has, with the zero point and type ``how``:
    its bounds allow the others. All scales are powers of two, so that sums of floats are exact."""
    g, scale = Quantised("joined"), 0.0625

    def conv(x: str, out: int) -> str:
        weights = g.const(g.rng.integers(-60, 61, (out, 8, 1, 1)).astype(np.int8))
        steps = g.const(np.float32(2**-8)), g.const(np.int8(0))
        return g.op("Conv", x, g.op("DequantizeLinear", weights, *steps))

    x = g.fake(g.input("x", (1, 8, 5, 7)), scale, 120)
    bounded = g.op("Clip", conv(x, 8), g.const(np.float32(0)), g.const(np.float32(6)))
    parts = [g.dequantise(g.quantise(bounded, scale, *how), scale, *how), g.fake(conv(x, 12), scale, 146)]
    both = g.op("Concat", *(parts[::-1] if last else parts), axis=1)
    g.output(g.quantise(both, scale, 146, name="y"), "uint8")
    g.opset, g.ir_version = 21, 10  # which have int16
    return g.model()


def _quantise(scale: float) -> onnx.ModelProto:
    g = Quantised("quantise")
    g.output(g.quantise(g.input("x", (1804,)), scale, 7, "int8", name="y"), "int8")
    return g.model()


#: The largest weight of each: of 8 bits, and of 7.
NETWORKS = {"network": 127, "network of 7 bits": 63}
JOINED = {
    f"joined to {how[1]} {'before' if last else 'behind'} it": _joined_by_scale(how, last=last)
    for how in ((33, "uint8"), (0, "int16"))
    for last in (False, True)
}
SCALES = {
    **{f"steps of {scale}": scale for scale in (0.03, 0.0117, 0.25, 1 / 255, 1.7e-3)},
    "steps of all ones": float(np.nextafter(np.float32(0.0625), np.float32(0))),
}
MODELS = {
    **{
        f"{name}, {types}": convolution(CONVOLUTIONS[name], types) for name in CONVOLUTIONS for types in EVERY
    },
    **{f"{name}, {types}": convolution(CONVOLUTIONS[name], types) for name in SOME for types in TYPES},
    **{f"product, {types}": _product(types) for types in TYPES},
    **{name: _quantise(scale) for name, scale in SCALES.items()},
    **{name: _network(largest) for name, largest in NETWORKS.items()},
    "joined": _joined(),
    **JOINED,
}
HOST = "host"
#: All on this machine; one of each operator with vectors of 128 bits and without multiply-adds.
NARROW = ("first layer, u8s8", "window, u8s8", "depthwise, u8s8", "product, u8s8", "network", *SCALES)
PAIRS = [(HOST, name) for name in MODELS] + [("128x16", name) for name in NARROW]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    def target(registers: str) -> CpuTarget:
        return host_target() if registers == HOST else target_with(registers)

    return Library(MODELS, PAIRS, tmp_path_factory.mktemp("quantised"), target)


@pytest.mark.parametrize(("registers", "name"), [pair for pair in PAIRS if "," in pair[1]])
def test_every_integer_is_that_of_the_operators_definition(
    library: Library, registers: str, name: str
) -> None:
    """Inputs at both ends of their type and anywhere between; sums beyond what the output holds are among
    them."""
    compiled = library(registers)
    (spec,) = compiled.plan(name).inputs
    info, rng = np.iinfo(spec.dtype), np.random.default_rng(3)
    for values in ([info.min, info.max], range(info.min, info.max + 1)):
        inputs = {"x": rng.choice(np.array(values, spec.dtype), spec.shape)}
        expected = defined(MODELS[name], inputs["x"])
        assert len(np.unique(expected)) > 40
        np.testing.assert_array_equal(compiled.run(name, inputs)["y"], expected)


@pytest.mark.parametrize(
    ("registers", "name"), [("128x16", "network"), (HOST, "network"), (HOST, "network of 7 bits")]
)
def test_a_network_differs_by_what_a_rounding_differs(library: Library, registers: str, name: str) -> None:
    """Its scales are such that many sums of quantised tensors lie in the middle of two steps. The reference
    adds up floats in its convolutions, which decides otherwise now and then."""
    compiled = library(registers)
    rng = np.random.default_rng(4)
    inputs = {"x": rng.standard_normal((1, 8, 12, 12)).astype(np.float32)}
    expected, got = compiled.expected(name, inputs), compiled.run(name, inputs)
    for output, array in got.items():
        off = np.abs(array.astype(int) - expected[output].astype(int))
        assert off.max() <= 1
        assert (off > 0).mean() < 0.01
    np.testing.assert_array_equal(got["kept"].reshape(1, 24, 36), got["flat"])


def test_what_stands_for_zero_is_the_same_in_all_parts_of_a_concatenation(library: Library) -> None:
    rng = np.random.default_rng(6)
    inputs = {name: rng.standard_normal((1, 8, 6, 6)).astype(np.float32) * 4 for name in "ab"}
    expected, got = library(HOST).expected("joined", inputs)["y"], library(HOST).run("joined", inputs)["y"]
    assert np.abs(got.astype(int) - expected.astype(int)).max() <= 1


@pytest.mark.parametrize("name", JOINED)
def test_parts_of_a_concatenation_are_kept_alike(library: Library, name: str) -> None:
    x = np.random.default_rng(8).uniform(-8, 8, (1, 8, 5, 7)).astype(np.float32)
    expected, got = library(HOST).expected(name, {"x": x})["y"], library(HOST).run(name, {"x": x})["y"]
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("registers", ["128x16", HOST])
def test_what_is_quantised_is_divided_exactly(library: Library, registers: str) -> None:
    """Floats next to the middle of two steps, by scales of any significand, the largest among them; what is
    infinite, or becomes so, is the type's end."""
    ends = np.array([np.inf, -np.inf, np.finfo(np.float32).max, np.finfo(np.float32).min], np.float32)
    for name, scale in SCALES.items():
        middles = (np.arange(-300, 300) + 0.5).astype(np.float32) * np.float32(scale)
        x = np.concatenate([middles, *(np.nextafter(middles, np.float32(end)) for end in (-1e9, 1e9)), ends])
        with np.errstate(over="ignore"):
            steps = np.rint(x / np.float32(scale))
        expected = np.clip(steps + 7, -128, 127).astype(int)
        np.testing.assert_array_equal(library(registers).run(name, {"x": x})["y"], expected)


def test_no_kernel_between_bytes_computes_a_product_of_floats(library: Library) -> None:
    for name in MODELS:
        assert not any("dequantize" in kernel.ops for kernel in library(HOST).plan(name).kernels), name


def test_bytes_are_multiplied_where_no_sum_saturates(library: Library) -> None:
    """On this machine, if it has AVX2 and no VNNI; with that all are."""
    quads = byte_products(host_target())
    for name in MODELS:
        if quads is None or name.startswith("depthwise") or "," not in name:
            continue
        (operands,) = {
            k.parameters.get("operands", "")
            for k in library(HOST).plan(name).kernels
            if k.rule in {"conv2d.igemm", "matmul.packed"}
        }
        fits = name.endswith("s7") or not (quads.saturates or name.endswith("u8u8"))
        assert operands == ("quads of bytes" if fits else "pairs of int16"), name


def test_convolutions_of_a_quantised_network_are_integers_from_end_to_end(library: Library) -> None:
    plan = library(HOST).plan("network of 7 bits")
    products = [k for k in plan.kernels if k.rule.startswith("conv2d")]
    assert len(products) == 5
    assert all("operands" in k.parameters for k in products)


def test_products_stay_floats_where_these_are_faster() -> None:
    target = load_device("linux-riscv64").cpu_target()
    kernels = plan_of(MODELS["network"], target=target).plan.kernels
    assert not any("int16" in str(kernel.parameters) for kernel in kernels)


@pytest.mark.parametrize(
    ("device", "cpu", "name"), [("linux-armv7", "cortex-a55", "vsdot.s8"), ("raspberrypi5", "", "sdot\t")]
)
def test_arm_of_32_and_of_64_bits_each_has_its_own_dot_product(device: str, cpu: str, name: str) -> None:
    """LLVM ends the process at the one of the other."""
    target = load_device(device).cpu_target()
    target = replace(target, cpu=cpu or target.cpu)
    assembly = compile_assembly(plan_of(MODELS["product, u8s8"], target=target).functions, target)
    assert name in assembly

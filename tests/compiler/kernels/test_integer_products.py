"""Products of bytes are exact at any zero point, and of pairs of int16 where the CPU multiplies these."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.micro.dot2_int16 import dot2_lanes
from edgepack.compiler.kernels.cpu.micro.dot4_bytes import byte_products
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from workbench.compiled import Library, plan_of, target_with
from workbench.executor import host_target
from workbench.models.builder import Graph

#: By name: shapes of both operands, whether the second is constant.
PRODUCTS = {
    "even": ((7, 64), (64, 45), True),
    "odd": ((2, 5, 33), (33, 16), True),
    "one row": ((1, 48), (48, 70), True),
    "two activations": ((2, 9, 31), (2, 31, 20), False),
}
#: By name: channels, groups, kernel, stride, whether the weights are constant.
CONVOLUTIONS = {
    "three channels": (3, 1, 3, 1, True),
    "pointwise": (32, 1, 1, 1, True),
    "groups": (12, 3, 3, 2, True),
    "depthwise": (6, 6, 3, 1, True),
    "computed weights": (4, 1, 3, 1, False),
}
WIDE, HOST = "products of int16", "host"


def _product(left: tuple[int, ...], right: tuple[int, ...], constant: bool) -> onnx.ModelProto:
    """Zero points at both ends of the bytes; the weights have both ends too."""
    g = Graph("product")
    values = g.rng.choice(np.array([0, 255, 3, 250], np.uint8), right)
    a, b = g.input("a", left, "uint8"), g.const(values) if constant else g.input("b", right, "uint8")
    g.output(g.op("MatMulInteger", a, b, g.const(np.uint8(255)), g.const(np.uint8(0)), name="y"), "int32")
    return g.model()


def _convolution(channels: int, groups: int, kernel: int, stride: int, constant: bool) -> onnx.ModelProto:
    g = Graph("convolution")
    x, shape = g.input("x", (2, channels, 9, 8), "uint8"), (12, channels // groups, kernel, kernel)
    values = g.rng.integers(-128, 128, shape).astype("int8")
    w = g.const(values) if constant else g.input("w", shape, "int8")
    y = g.op(
        "ConvInteger",
        x,
        w,
        g.const(np.uint8(7)),
        g.const(np.int8(-128)),
        group=groups,
        strides=[stride] * 2,
        pads=[kernel // 2] * 4,
        name="y",
    )
    g.output(y, "int32")
    return g.model()


def _int16() -> onnx.ModelProto:
    """Numbers of 16 bits; two products of the least of them exceed int32, and wrap around."""
    g = Graph("int16")
    a = g.op("Cast", g.op("Neg", g.input("a", (3, 8), "int32")), to=onnx.TensorProto.INT16)
    weights = g.rng.choice(np.array([-(2**15), 2**15 - 1], np.int32), (8, 5))
    g.output(g.op("MatMul", g.op("Cast", a, to=6), g.const(weights), name="y"), "int32")
    return g.model()


def _dynamic() -> onnx.ModelProto:
    """What ONNX Runtime's dynamic quantisation writes: scale, bias and activation behind the sums."""
    g = Graph("dynamic")
    x, scale, zero = g.ops("DynamicQuantizeLinear", g.input("x", (17, 64)), outputs=3, name="x8")
    weights = g.const(g.rng.integers(-128, 128, (64, 45)).astype("int8"))
    sums = g.op("Cast", g.op("MatMulInteger", x, weights, zero, g.const(np.int8(0))), to=1)
    y = g.op("Mul", sums, g.op("Mul", scale, g.const(np.float32(0.01))))
    g.output(g.op("Relu", g.op("Add", y, g.weight(45)), name="y"))
    return g.model()


def _dequantised(dtype: str) -> onnx.ModelProto:
    """A product between bytes (QDQ) by weights with a scale and a zero point of each column."""
    g = Graph("dequantised")
    scale, zero = g.const(np.float32(0.03)), g.const(np.asarray(7, dtype))
    x = g.op("DequantizeLinear", g.input("x", (2, 9, 31), dtype), scale, zero)
    weights = g.const(g.rng.integers(0, 255, (31, 20)).astype("uint8"))
    scales = g.const(g.rng.uniform(0.01, 0.03, 20).astype("float32"))
    zeros = g.const(g.rng.integers(100, 150, 20).astype("uint8"))
    y = g.op("MatMul", x, g.op("DequantizeLinear", weights, scales, zeros, axis=1))
    y = g.op("QuantizeLinear", g.op("Add", y, g.weight(20)), g.const(np.float32(0.4)), zero, name="y")
    g.output(y, dtype)
    return g.model()


def _bounded() -> onnx.ModelProto:
    """Sums with other bounds than those of the bytes that they become."""
    g = Graph("bounded")
    weights = g.const(g.rng.integers(-3, 4, (32, 64)).astype("int8"))
    sums = g.op("MatMulInteger", g.input("a", (9, 32), "uint8"), weights, g.const(np.uint8(100)))
    bounded = g.op("Max", g.op("Min", sums, g.const(np.int32(200))), g.const(np.int32(10)))
    g.output(g.op("Cast", bounded, to=onnx.TensorProto.UINT8, name="y"), "uint8")
    return g.model()


MODELS = {
    **{name: _product(*case) for name, case in PRODUCTS.items()},
    **{name: _convolution(*case) for name, case in CONVOLUTIONS.items()},
    WIDE: _int16(),
    "bounded": _bounded(),
}
#: Products with what stands behind them.
TAILS = {"dynamic": _dynamic(), **{dtype: _dequantised(dtype) for dtype in ("int8", "uint8")}}
#: All on SSE2, one of each operator without vectors and on this machine's own.
SWEPT = [("128x16", name) for name in MODELS | TAILS]
SWEPT += [("scalar", "groups"), (HOST, "odd")]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    def target(registers: str) -> CpuTarget:
        return host_target() if registers == HOST else target_with(registers)

    return Library(MODELS | TAILS, SWEPT, tmp_path_factory.mktemp("integers"), target)


@pytest.mark.parametrize(("registers", "name"), [pair for pair in SWEPT if pair[1] in MODELS])
def test_sums_are_exact(library: Library, registers: str, name: str) -> None:
    compiled, rng = library(registers), np.random.default_rng(3)
    inputs = {}
    for spec in compiled.plan(name).inputs:
        limits = np.iinfo(spec.dtype)
        values = [2**15, 1 - 2**15] if name == WIDE else [limits.min, limits.max, limits.max // 2]
        inputs[spec.name] = rng.choice(np.array(values, spec.dtype), spec.shape)
    expected = compiled.expected(name, inputs)
    for output, array in compiled.run(name, inputs).items():
        np.testing.assert_array_equal(array, expected[output])


def test_products_of_bytes_are_of_pairs(library: Library) -> None:
    for name in MODELS:
        kernels = library("128x16").plan(name).kernels
        pairs = [k for k in kernels if k.parameters.get("operands") == "pairs of int16"]
        assert len(pairs) == (name not in {"two activations", "depthwise", "computed weights"})


@pytest.mark.parametrize("name", TAILS)
def test_what_follows_a_product_is_computed_with_it(library: Library, name: str) -> None:
    compiled = library("128x16")
    compiled.check(name)
    product = compiled.plan(name).kernels[-1]
    assert (product.rule, product.parameters["operands"]) == ("matmul.packed", "pairs of int16")


def test_products_of_dequantised_bytes_stay_float32_where_these_are_faster() -> None:
    target = load_device("linux-riscv64").cpu_target()
    product = plan_of(TAILS["uint8"], target=target).plan.kernels
    assert not any("int16" in str(kernel.parameters) for kernel in product)


#: Sums that one instruction adds to.
LANES = {
    "linux-x86_64": 4,
    "linux-x86_64-v3": 8,
    "linux-x86_64-v4": 16,
    "wasm32-wasi": 4,
    "cortex-m7": 1,
    "raspberrypi4": 0,
    "linux-riscv64": 0,
    "wasm32-wasi-scalar": 0,
}


@pytest.mark.parametrize(("device", "lanes"), LANES.items())
def test_which_cpus_multiply_pairs(device: str, lanes: int) -> None:
    assert dot2_lanes(load_device(device).cpu_target()) == lanes


def test_wide_vectors_without_the_instruction_are_halved() -> None:
    assert dot2_lanes(target_with("512x32")) == 4


#: How bytes are multiplied: type of the left ones, and whether sums may saturate; None where pairs are.
QUADS = {
    "linux-x86_64": None,
    "linux-x86_64-v3": ("uint8", True),
    "linux-x86_64-v4": ("uint8", True),
    "linux-x86_64-vnni": ("uint8", False),
    "linux-x86_64-avxvnni": ("uint8", False),
    "linux-aarch64-v8.2": ("int8", False),
    "linux-aarch64-v8.6": ("int8", False),
    "raspberrypi5": ("int8", False),
    "raspberrypi4": ("int8", False),
    "raspberrypi2": ("int8", False),
    "linux-armv6": None,
    "wasm32-wasi": None,
    "cortex-m7": ("int8", False),
    "esp32-c3": ("int8", False),
    "linux-riscv64": None,
    "cortex-m55": ("int8", False),
}


@pytest.mark.parametrize(("device", "products"), QUADS.items())
def test_which_cpus_multiply_quads(device: str, products: tuple[str, bool] | None) -> None:
    found = byte_products(load_device(device).cpu_target())
    assert (found and (found.left, found.saturates)) == products

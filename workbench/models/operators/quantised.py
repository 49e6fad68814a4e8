"""Quantised operators: QDQ and QLinear."""

from __future__ import annotations

import numpy as np
import onnx

from workbench.models.builder import Graph
from workbench.models.operators.case import case

# ---------------------------------------------------------------------------------------------------


@case("quantize_uint8")
def _quantize(g: Graph) -> None:
    g.op(
        "QuantizeLinear", g.input("x", [2, 3, 4]), g.const(np.float32(0.03)), g.const(np.uint8(120)), name="y"
    )
    g.output("y", "uint8")


@case("quantize_int8_channels")
def _quantize_channels(g: Graph) -> None:
    g.op(
        "QuantizeLinear",
        g.input("x", [2, 3, 4]),
        g.const([0.03, 0.01, 0.02]),
        g.const(np.zeros(3, "int8")),
        axis=1,
        name="y",
    )
    g.output("y", "int8")


@case("dequantize_uint8")
def _dequantize(g: Graph) -> None:
    g.op(
        "DequantizeLinear",
        g.input("x", [2, 3, 4], "uint8"),
        g.const(np.float32(0.03)),
        g.const(np.uint8(120)),
        name="y",
    )
    g.output("y")


@case("dequantize_int8_channels")
def _dequantize_channels(g: Graph) -> None:
    g.op(
        "DequantizeLinear",
        g.input("x", [2, 3, 4], "int8"),
        g.const([0.03, 0.01, 0.02]),
        g.const(np.int8([0, 3, -3])),
        axis=1,
        name="y",
    )
    g.output("y")


@case("qdq_conv")
def _qdq_conv(g: Graph) -> None:
    scale, zero = g.const(np.float32(0.02)), g.const(np.uint8(128))
    x = g.op("DequantizeLinear", g.op("QuantizeLinear", g.input("x", [1, 3, 8, 8]), scale, zero), scale, zero)
    w = g.op(
        "DequantizeLinear",
        g.const(g.rng.integers(-127, 128, (4, 3, 3, 3)).astype("int8")),
        g.const(np.float32([0.002, 0.003, 0.001, 0.002])),
        g.const(np.zeros(4, "int8")),
        axis=0,
    )
    b = g.op(
        "DequantizeLinear",
        g.const(g.rng.integers(-500, 500, 4).astype("int32")),
        g.const(np.float32([4e-5, 6e-5, 2e-5, 4e-5])),
        g.const(np.zeros(4, "int32")),
        axis=0,
    )
    y = g.op("Relu", g.op("Conv", x, w, b, pads=[1] * 4))
    scale, zero = g.const(np.float32(0.02)), g.const(np.uint8(0))
    g.op("DequantizeLinear", g.op("QuantizeLinear", y, scale, zero), scale, zero, name="y")
    g.output("y")


@case("qlinear_conv")
def _qlinear_conv(g: Graph) -> None:
    x = g.op("QuantizeLinear", g.input("x", [1, 3, 8, 8]), g.const(np.float32(0.02)), g.const(np.uint8(128)))
    w = [g.rng.integers(-127, 128, (4, 3, 3, 3)).astype("int8"), np.float32([0.002, 0.003, 0.001, 0.002])]
    inputs = [np.float32(0.02), np.uint8(128), *w, np.zeros(4, "int8"), np.float32(0.03), np.uint8(100)]
    bias = g.rng.integers(-500, 500, 4).astype("int32")
    y = g.op("QLinearConv", x, *(g.const(value) for value in (*inputs, bias)), pads=[1] * 4)
    g.op("DequantizeLinear", y, g.const(np.float32(0.03)), g.const(np.uint8(100)), name="y")
    g.output("y")


@case("qlinear_matmul")
def _qlinear_matmul(g: Graph) -> None:
    a, b = g.input("a", [3, 16], "uint8"), g.const(g.rng.integers(-127, 128, (16, 5)).astype("int8"))
    scale = [
        g.const(np.float32(0.02)),
        g.const(np.uint8(128)),
        b,
        g.const(np.float32(0.01)),
        g.const(np.int8(0)),
    ]
    g.op("QLinearMatMul", a, *scale, g.const(np.float32(0.1)), g.const(np.uint8(128)), name="y")
    g.output("y", "uint8")


@case("dynamic_quantize")
def _dynamic_quantize(g: Graph) -> None:
    g.nodes.append(
        onnx.helper.make_node("DynamicQuantizeLinear", [g.input("x", [3, 8])], ["y", "scale", "zero"])
    )
    g.output("y", "uint8")
    g.output("scale")
    g.output("zero", "uint8")

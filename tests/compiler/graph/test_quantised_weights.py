"""A quantised model is told where it is computed in float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.config.device import load_device
from workbench.compiled import plan_of
from workbench.models.builder import Graph


def _product(rows: int, form: str) -> onnx.ModelProto:
    g = Graph("product", seed=0)
    weights, scale = g.const(np.ones((rows, 32), np.int8)), g.const(np.float32(0.1))
    zero, weight_zero = g.const(np.zeros((), "uint8")), g.const(np.zeros((), np.int8))
    if form == "DequantizeLinear":
        g.op("MatMul", g.input("x", [1, rows]), g.op(form, weights, scale, weight_zero), name="y")
    elif form == "QLinearMatMul":
        x = g.input("x", [1, rows], "uint8")
        g.op(form, x, scale, zero, weights, scale, weight_zero, scale, zero, name="y")
    else:
        g.op("MatMul", g.input("x", [1, rows]), g.const(np.ones((rows, 32), np.float32)), name="y")
    g.output("y", "uint8" if form == "QLinearMatMul" else "float32")
    return g.model()


def _warnings(model: onnx.ModelProto, device: str) -> tuple[str, ...]:
    return plan_of(model, target=load_device(device).cpu_target()).plan.warnings


@pytest.mark.parametrize("form", ["DequantizeLinear", "QLinearMatMul"])
def test_integer_weights_are_counted_where_they_become_floats(form: str) -> None:
    (warning,) = _warnings(_product(64, form), "linux-riscv64")
    assert "its 2,048 integer weights are kept in 4 bytes each" in warning
    assert _warnings(_product(64, form), "linux-x86_64-v3") == ()


def test_a_few_numbers_and_a_float_model_are_not_spoken_of() -> None:
    assert _warnings(_product(2, "DequantizeLinear"), "linux-riscv64") == ()
    assert _warnings(_product(64, "MatMul"), "linux-riscv64") == ()


def _convolution(kernel: int, dtype: str = "uint8") -> onnx.ModelProto:
    g = Graph("convolution", seed=0, opset=21, ir_version=10)
    one, zero, weight_zero = g.const(np.float32(0.1)), g.const(np.array(0, dtype)), g.const(np.int8(0))
    largest = 127 if dtype == "uint8" else 9
    weights = g.const(g.rng.integers(-largest, largest + 1, (32, 32, kernel, kernel)).astype(np.int8))
    x = g.op("QuantizeLinear", g.input("x", (1, 32, 16, 16)), one, zero)
    w = g.op("DequantizeLinear", weights, one, weight_zero)
    y = g.op("Conv", g.op("DequantizeLinear", x, one, zero), w, pads=[kernel // 2] * 4)
    g.output(g.op("QuantizeLinear", y, g.const(np.float32(9)), zero, name="y"), dtype)
    return g.model()


def test_where_winograds_form_is_faster_in_float32_it_is_said_by_how_much() -> None:
    """Of bytes it is exact; of int16, whose transforms have more bits, it is not."""
    (warning,) = _warnings(_convolution(3, "int16"), "linux-x86_64-v3")
    assert "1.8 times as long" in warning
    (warning,) = _warnings(_convolution(3), "raspberrypi4")
    assert "1.1 times as long" in warning
    assert _warnings(_convolution(1, "int16"), "linux-x86_64-v3") == ()
    assert _warnings(_convolution(3), "linux-x86_64-v3") == ()
    assert _warnings(_convolution(3), "linux-x86_64-vnni") == ()

"""A quantised model is told that it is computed in float32."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.quantised_weights import warn_of_quantised_weights
from workbench.models.builder import Graph


def _product(rows: int, dtype: str, form: str) -> onnx.ModelProto:
    g = Graph("product", seed=0)
    weights = g.const(np.ones((rows, 32), dtype))
    scale, zero = g.const(np.float32(0.1)), g.const(np.zeros((), "uint8"))
    weight_zero = g.const(np.zeros((), dtype))
    if form == "DequantizeLinear":
        g.op("MatMul", g.input("x", [1, rows]), g.op(form, weights, scale, weight_zero), name="y")
    else:
        x = g.input("x", [1, rows], "uint8")
        g.op(form, x, scale, zero, weights, scale, weight_zero, scale, zero, name="y")
    g.output("y")
    return g.model()


@pytest.mark.parametrize("form", ["DequantizeLinear", "QLinearMatMul"])
def test_integer_weights_are_counted(form: str) -> None:
    (warning,) = warn_of_quantised_weights(_product(64, "int8", form))
    assert "2,048 integer weights are kept as float32" in warning


def test_a_few_numbers_and_a_float_model_are_not_spoken_of() -> None:
    assert warn_of_quantised_weights(_product(2, "int8", "DequantizeLinear")) == ()
    g = Graph("plain", seed=0)
    g.op("MatMul", g.input("x", [1, 64]), g.const(np.ones((64, 32), np.float32)), name="y")
    g.output("y")
    assert warn_of_quantised_weights(g.model()) == ()

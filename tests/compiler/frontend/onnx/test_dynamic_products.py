"""Products of what is dequantised by scales that are computed at run time become products of integers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import rewrites
from workbench.models.builder import Graph
from workbench.models.evaluate import run_onnxruntime

COLUMNS = np.float32([0.01, 0.3, 0.02, 0.005])


def weights(g: Graph, *, transposed: bool = False, dtype: str = "int8") -> str:
    least = 0 if dtype == "uint8" else -127
    return g.const(g.rng.integers(least, 127, (4, 6) if transposed else (6, 4)).astype(dtype))


def whole(g: Graph) -> str:
    """One scale; weights of uint8 with a zero point."""
    x = g.op(
        "DequantizeLinear", g.input("x", [2, 3, 6], "uint8"), g.input("s", []), g.input("z", [], "uint8")
    )
    w = g.op("DequantizeLinear", weights(g, dtype="uint8"), g.const(np.float32(0.1)), g.const(np.uint8(131)))
    return g.op("MatMul", x, w)


def rows(g: Graph) -> str:
    """Scales and zero points of rows, as blocks of the last axis; each column of the weights has its own."""
    z = g.input("z", [2, 3, 1], "int8")
    x = g.op(
        "DequantizeLinear", g.input("x", [2, 3, 6], "int8"), g.input("s", [2, 3, 1]), z, axis=2, block_size=6
    )
    zeros = g.const(np.int8([3, -4, 0, 9]))
    w = g.op("DequantizeLinear", weights(g, transposed=True), g.const(COLUMNS), zeros, axis=0)
    return g.op("MatMul", x, g.op("Transpose", w, perm=[1, 0]))


def layer(g: Graph) -> str:
    """A Gemm with a bias, whose rows have scales along an axis."""
    z = g.input("z", [5], "int8")
    x = g.op("DequantizeLinear", g.input("x", [5, 6], "int8"), g.input("s", [5]), z, axis=0)
    w = g.op("DequantizeLinear", weights(g, transposed=True), g.const(COLUMNS), axis=0)
    return g.op("Gemm", x, w, g.weight(4), transB=1)


def without_zero(g: Graph) -> str:
    x = g.op("DequantizeLinear", g.input("x", [5, 6], "int8"), g.input("s", [5, 1]), axis=1, block_size=6)
    w = g.op("DequantizeLinear", weights(g), g.const(COLUMNS), axis=1)
    return g.op("MatMul", x, w)


def known_scale(g: Graph) -> str:
    x = g.op("DequantizeLinear", g.input("x", [5, 6], "int8"), g.const(np.float32(0.5)))
    return g.op("MatMul", x, g.op("DequantizeLinear", weights(g), g.const(COLUMNS), axis=1))


def scale_of_each_addend(g: Graph) -> str:
    """No scale of it can be taken out of the sum."""
    x = g.op("DequantizeLinear", g.input("x", [5, 6], "int8"), g.input("s", [6]), axis=1)
    return g.op("MatMul", x, g.op("DequantizeLinear", weights(g), g.const(COLUMNS), axis=1))


def weights_in_blocks(g: Graph) -> str:
    x = g.op("DequantizeLinear", g.input("x", [5, 6], "int8"), g.input("s", []))
    scales = g.uniform(2, 4, low=0.1, high=0.2)
    return g.op("MatMul", x, g.op("DequantizeLinear", weights(g), scales, axis=0, block_size=3))


def weights_of_rows(g: Graph) -> str:
    x = g.op("DequantizeLinear", g.input("x", [5, 6], "int8"), g.input("s", []))
    scales = g.uniform(6, low=0.1, high=0.2)
    return g.op("MatMul", x, g.op("DequantizeLinear", weights(g), scales, axis=0))


def scaled_gemm(g: Graph) -> str:
    x = g.op("DequantizeLinear", g.input("x", [5, 6], "int8"), g.input("s", []))
    w = g.op("DequantizeLinear", weights(g), g.const(COLUMNS), axis=1)
    return g.op("Gemm", x, w, alpha=0.5)


def rewritten(form: Callable[[Graph], str]) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    g = Graph(form.__name__, opset=21, ir_version=10)
    g.output(form(g))
    model = g.model()
    return model, rewrites.apply(onnx.ModelProto.FromString(model.SerializeToString()))


@pytest.mark.parametrize("form", [whole, rows, layer, without_zero])
def test_sums_are_those_of_integers(form: Callable[[Graph], str]) -> None:
    model, found = rewritten(form)
    assert "MatMulInteger" in [node.op_type for node in found.graph.node]
    rng = np.random.default_rng(3)
    inputs = {}
    for value in model.graph.input:
        shape = [size.dim_value for size in value.type.tensor_type.shape.dim]
        kind = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        numbers = rng.uniform(0.01, 0.2, shape) if kind.kind == "f" else rng.integers(0, 120, shape)
        inputs[value.name] = np.asarray(numbers).astype(kind)
    wanted, got = run_onnxruntime(model, inputs)[0], run_onnxruntime(found, inputs)[0]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(
    "form", [known_scale, scale_of_each_addend, weights_in_blocks, weights_of_rows, scaled_gemm]
)
def test_others_stay(form: Callable[[Graph], str]) -> None:
    _, found = rewritten(form)
    assert "MatMulInteger" not in [node.op_type for node in found.graph.node]

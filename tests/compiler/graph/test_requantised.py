"""A tensor of bytes by another scale is a table, and every byte is what ONNX Runtime makes of it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph

#: Scale, zero point and type of what is read, and of what is made: halves of steps, ends that are cut off,
#: and zero points at the ends.
CASES = {
    "halves": ((0.5, 128, "uint8"), (1.0, 3, "uint8")),
    "finer": ((0.03, 200, "uint8"), (0.011, 250, "uint8")),
    "signed to unsigned": ((0.1, -128, "int8"), (0.13, 0, "uint8")),
    "unsigned to signed": ((0.017, 255, "uint8"), (0.0171, 127, "int8")),
}


def _model(name: str) -> onnx.ModelProto:
    """Both behind a maximum, which keeps the bytes as they are, so that they are computed."""
    steps = [(np.float32(scale), np.array(zero, dtype)) for scale, zero, dtype in CASES[name]]
    (read, made), g = steps, Graph(name)
    x = g.input("x", (1, 16, 8, 8), str(read[1].dtype))
    values = g.op("DequantizeLinear", x, *map(g.const, read))
    pooled = g.op("MaxPool", values, kernel_shape=[1, 1])
    again = g.op("DequantizeLinear", g.op("QuantizeLinear", pooled, *map(g.const, read)), *map(g.const, read))
    g.output(g.op("QuantizeLinear", again, *map(g.const, made), name="y"), str(made[1].dtype))
    return g.model()


def _joined() -> onnx.ModelProto:
    """A concatenation of two scales, quantised by a third one."""
    g = Graph("joined")
    values = [
        g.op(
            "DequantizeLinear", g.input(name, (1, 16, 4, 4), "uint8"), g.const(scale), g.const(np.uint8(zero))
        )
        for name, scale, zero in (("x", np.float32(0.02), 7), ("z", np.float32(0.05), 128))
    ]
    both = g.op("Concat", *values, axis=1)
    g.output(
        g.op("QuantizeLinear", both, g.const(np.float32(0.04)), g.const(np.uint8(90)), name="y"), "uint8"
    )
    return g.model()


def _product() -> onnx.ModelProto:
    """Of two quantised tensors, quantised: an image times a gate for each channel."""
    g = Graph("product")
    values = []
    for name, shape, scale, zero in (("x", (1, 16, 8, 8), 0.02, 110), ("z", (1, 16, 1, 1), 1 / 12, 3)):
        read = [g.const(np.float32(scale)), g.const(np.uint8(zero))]
        values.append(g.op("DequantizeLinear", g.input(name, shape, "uint8"), *read))
    made = [g.const(np.float32(0.011)), g.const(np.uint8(120))]
    g.output(g.op("QuantizeLinear", g.op("Mul", *values), *made, name="y"), "uint8")
    return g.model()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: _model(name) for name in CASES} | {"joined": _joined(), "product": _product()}
    return Compiled(models, tmp_path_factory.mktemp("requantised"))


@pytest.mark.parametrize("name", [*CASES, "joined", "product"])
def test_every_byte_is_that_of_the_reference(compiled: Compiled, name: str) -> None:
    inputs = {}
    for spec in compiled.plan(name).inputs:
        bits = np.resize(np.arange(256, dtype=np.uint8), spec.shape)
        inputs[spec.name] = bits.view(spec.dtype)
    expected = compiled.expected(name, inputs)["y"]
    assert len(np.unique(expected)) > 40
    np.testing.assert_array_equal(compiled.run(name, inputs)["y"], expected)


def test_a_product_is_narrowed_from_int32_not_bounded_as_float32(compiled: Compiled) -> None:
    """Its magnitude is known."""
    (kernel,) = [kernel for kernel in compiled.plan("product").kernels if "divide" in kernel.ops]
    assert "tir_clip" not in kernel.ops and kernel.ops[-3:] == ("maximum", "minimum", "cast"), kernel.ops

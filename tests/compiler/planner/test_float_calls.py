"""What is said of, and refused for, floats on CPUs that have no instructions for them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.config.device import load_device
from edgepack.errors import ModelError
from edgepack.plan.target import CpuTarget
from edgepack.plan.types import Plan
from workbench.compiled import plan_of
from workbench.models.builder import Graph

DEVICES = ("cortex-m0plus", "esp32-c3", "esp32-c6")


def target(device: str) -> CpuTarget:
    return load_device(device).cpu_target()


def planned(model: onnx.ModelProto, device: str) -> Plan:
    return plan_of(model, "m", target(device)).plan


def product(rows: int) -> onnx.ModelProto:
    """rows x 64 by 64 x 32: 4096 operations for a row."""
    g = Graph("product", seed=1)
    g.op("MatMul", g.input("x", (rows, 64)), g.weight(64, 32), name="y")
    g.output("y")
    return g.model()


def quantised(rows: int) -> onnx.ModelProto:
    """The same product of bytes, whose sums are scaled by floats."""
    g = Graph("quantised", seed=1)
    scale, zero = g.const(np.float32(0.01)), g.const(np.int8(0))
    w = g.const(g.rng.integers(-127, 128, (64, 32)).astype(np.int8))
    x = g.input("x", (rows, 64), "int8")
    operands = (x, scale, zero, w, scale, zero, g.const(np.float32(1)), zero)
    g.output(g.op("QLinearMatMul", *operands, name="y"), "int8")
    return g.model()


def integers() -> onnx.ModelProto:
    """Products, a pooling, a division and a sorting of integers."""
    g = Graph("integers", seed=1)
    w = g.const(g.rng.integers(-127, 128, (16, 8)).astype(np.int8))
    sums = g.op("MatMulInteger", g.input("x", (4, 16), "int8"), w)
    g.op("Div", g.op("ReduceSum", sums, keepdims=0), g.const(np.int32(7)), name="y")
    g.output("y", "int32")
    return g.model()


def test_products_of_floats_are_refused_where_the_device_says_so() -> None:
    with pytest.raises(ModelError) as caught:
        planned(product(1000), "cortex-m0plus")
    said = str(caught.value)
    assert "has no FPU" in said and "4.1 million calls" in said and "328 million in all" in said
    assert "edgepack quantize" in said and "soft_float: true" in said
    (text,) = planned(product(2), "cortex-m0plus").warnings  # a small one is told of alone
    assert "655,000 in all" in text


@pytest.mark.parametrize("device", DEVICES[1:])
def test_elsewhere_their_cost_is_said(device: str) -> None:
    (text,) = planned(product(1000), device).warnings
    assert "4.1 million times" in text and "205 million in all" in text


@pytest.mark.parametrize("device", DEVICES)
def test_a_quantised_products_floats_are_said(device: str) -> None:
    plan = planned(quantised(1000), device)
    (text,) = plan.warnings
    assert "has no FPU" in text and "a .tflite file of int8 is computed by integers alone" in text
    assert plan.float_calls and 1000 * 32 < plan.float_calls < 1000 * 32 * 12
    assert not planned(quantised(1), device).warnings  # few


@pytest.mark.parametrize("device", DEVICES)
def test_integers_need_none(device: str) -> None:
    plan = planned(integers(), device)
    assert (plan.float_calls, plan.warnings) == (0, ())


def test_a_cpu_with_an_fpu_has_nothing_to_say() -> None:
    for device in ("cortex-m4", "esp32-p4", "linux-riscv64"):
        plan = planned(product(1000), device)
        assert (plan.float_calls, plan.warnings) == (None, ())

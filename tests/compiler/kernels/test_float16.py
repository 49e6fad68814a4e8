"""Conversions from and to float16 and bfloat16, of every number, and weights that are stored as float16."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.emit.float16 import number_of
from edgepack.config.device import load_device
from workbench.compiled import Compiled, plan_of, target_with
from workbench.executor import Executor, host_target
from workbench.models.builder import Graph
from workbench.models.half import TYPES as ONNX_TYPES
from workbench.models.single import single

TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
EVERY = np.arange(1 << 16, dtype=np.uint16)


def _cast(size: int, source: str, to: str) -> onnx.ModelProto:
    g = Graph("cast")
    g.op(
        "Cast",
        g.input("x", [size], source),
        to={**ONNX_TYPES, "float32": onnx.TensorProto.FLOAT}[to],
        name="y",
    )
    g.output("y", to)
    return g.model()


def _hard_numbers(dtype: str) -> np.ndarray:
    """float32 numbers in the middle of two neighbours of ``dtype`` and on both sides of it, those around the
    largest and the smallest, and numbers of any bits."""
    with np.errstate(over="ignore", invalid="ignore"):
        each = EVERY.view(TYPES[dtype]).astype(np.float32)
        middle = (each[:-1] + each[1:]) / 2
    sides = [np.nextafter(middle, np.float32(to)) for to in (-np.inf, np.inf)]
    rng = np.random.default_rng(0)
    any_bits = rng.integers(0, 2**32, 4096, dtype=np.uint64).astype(np.uint32).view(np.float32)
    ends = np.float32([65504, 65519.996, 65520, 2**-24, 2**-25, 3 * 2**-25, -0.0, np.inf, -np.inf, np.nan])
    return np.concatenate([each, middle, *sides, any_bits, ends])


def _assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    """Bit by bit, but that any NaN is like another."""
    with np.errstate(invalid="ignore"):
        nan = np.isnan(expected.astype(np.float32))
        np.testing.assert_array_equal(np.isnan(found.astype(np.float32)), nan)
    bits = np.uint32 if expected.dtype == np.float32 else np.uint16
    np.testing.assert_array_equal(found.view(bits)[~nan], expected.view(bits)[~nan])


@pytest.mark.parametrize("registers", ["scalar", "128x16", "512x32", "host"])
def test_every_number_is_converted_as_ieee_754_says(registers: str, tmp_path: Path) -> None:
    """Without instructions (a register file of plain x86-64) and with those of this machine."""
    target = host_target() if registers == "host" else target_with(registers)
    assert registers == "host" or not target.converts_float16
    hard = {dtype: _hard_numbers(dtype) for dtype in TYPES}
    plans = {}
    for dtype in TYPES:
        plans[f"{dtype}_wide"] = plan_of(_cast(EVERY.size, dtype, "float32"), f"{dtype}_wide", target)
        narrow = _cast(hard[dtype].size, "float32", dtype)
        plans[f"{dtype}_narrow"] = plan_of(narrow, f"{dtype}_narrow", target)
    assert all("elementwise" in step.kernel for built in plans.values() for step in built.plan.steps)
    executor = Executor(plans, tmp_path, target)
    with np.errstate(over="ignore", invalid="ignore"):
        for dtype, numpy_type in TYPES.items():
            (wide,) = executor.run(f"{dtype}_wide", [EVERY.view(numpy_type)])
            _assert_same(wide, EVERY.view(numpy_type).astype(np.float32))
            (narrow,) = executor.run(f"{dtype}_narrow", [hard[dtype]])
            _assert_same(narrow.view(numpy_type), hard[dtype].astype(numpy_type))


@pytest.mark.parametrize("dtype", TYPES)
def test_constants_are_rounded_like_arrays(dtype: str) -> None:
    for value in (0.1, -65504.0, 1e-7, 1e30, float("inf"), 0.0):
        with np.errstate(over="ignore"):
            expected = np.float32(value).astype(TYPES[dtype]).view(np.uint16)
        assert number_of(value, dtype).value == int(expected)


@pytest.mark.parametrize(
    ("device", "converts"),
    [
        ("linux-x86_64", False),
        ("linux-x86_64-v3", True),
        ("linux-x86_64-v4", True),
        ("linux-aarch64", True),
        ("linux-armv7", False),
        ("raspberrypi2", True),
        ("cortex-m4", True),
        ("linux-riscv64-v", False),
        ("wasm32-wasi", False),
    ],
)
def test_which_devices_have_instructions_for_it(device: str, converts: bool) -> None:
    assert load_device(device).cpu_target().converts_float16 == converts


# weights that are stored as float16 ------------------------------------------------------------------------


def _half_constant(g: Graph, *shape: int) -> str:
    array = g.rng.normal(scale=0.2, size=shape).astype(np.float16)
    array.reshape(-1)[:3] = [0, 2**-24, -3 * 2**-20]  # subnormal numbers too
    return g.const(array.astype(np.float32))


def _padded(g: Graph, x: str) -> str:
    """A window that reaches into the padding, a last vector of columns that is narrow."""
    return g.op("Conv", x, _half_constant(g, 23, 16, 3, 3), g.weight(23), pads=[1] * 4, strides=[2, 2])


def _grouped(g: Graph, x: str) -> str:
    return g.op("Conv", x, _half_constant(g, 48, 8, 2, 2), group=2)


def _product(g: Graph, x: str) -> str:
    rows = g.op("Reshape", x, g.const(np.array([9, 256])))
    return g.op("Relu", g.op("MatMul", rows, _half_constant(g, 256, 50)))


def _one_row(g: Graph, x: str) -> str:
    return g.op("Gemm", g.op("Flatten", x), _half_constant(g, 2304, 30), g.weight(30))


def _table(g: Graph, x: str) -> str:
    at = g.op("Cast", g.op("Abs", g.op("Reshape", x, g.const(np.array([-1])))), to=onnx.TensorProto.INT64)
    return g.op("Gather", _half_constant(g, 130, 33), at)


CASES = {f.__name__.strip("_"): f for f in (_padded, _grouped, _product, _one_row, _table)}


@pytest.mark.parametrize("registers", ["128x16", "host"])
def test_weights_stored_as_float16_give_the_same_bits(registers: str, tmp_path: Path) -> None:
    """They are float16 numbers, so conversion is exact; params take half of the bytes."""
    target = host_target() if registers == "host" else target_with(registers)
    target = replace(target, optimize="size")
    plans = {}
    for name, body in CASES.items():
        model = single((1, 16, 12, 12), body)
        plans[name] = plan_of(model, name, target)
        plans[f"{name}_half"] = plan_of(model, f"{name}_half", replace(target, float16_weights=True))
    executor = Executor(plans, tmp_path, target)
    x = np.random.default_rng(1).normal(scale=30, size=(1, 16, 12, 12)).astype(np.float32)
    for name in CASES:
        stored = {constant.dtype for constant in plans[f"{name}_half"].plan.constants}
        assert "float16" in stored, name
        assert bool(plans[f"{name}_half"].plan.warnings) != target.converts_float16
        single_bytes, half_bytes = (plans[n].plan.params_bytes for n in (name, f"{name}_half"))
        assert half_bytes < 0.6 * single_bytes, name
        results = [executor.run(n, [x])[0] for n in (name, f"{name}_half")]
        np.testing.assert_array_equal(*results, err_msg=name)


def test_a_pair_of_convolutions_reads_float16_weights(tmp_path: Path) -> None:
    """The first one's zeros for the padding stand between its weights and the second one's."""

    def body(g: Graph, x: str) -> str:
        x = g.op("Relu", g.op("Conv", x, _half_constant(g, 20, 4, 3, 3), pads=[1] * 4, strides=[2, 2]))
        return g.op("Conv", x, g.weight(20, 1, 3, 3), group=20, pads=[1] * 4)

    target = replace(host_target(), threads=1, l2_bytes=16 * 1024)
    model = single((1, 4, 131, 25), body)
    plans = {
        name: plan_of(model, name, replace(target, float16_weights=half))
        for name, half in (("single", False), ("half", True))
    }
    assert [step.kernel for step in plans["half"].plan.steps if "chained" in step.kernel]
    assert "float16" in {constant.dtype for constant in plans["half"].plan.constants}
    x = np.random.default_rng(1).normal(size=(1, 4, 131, 25)).astype(np.float32)
    executor = Executor(plans, tmp_path, target)
    np.testing.assert_array_equal(executor.run("half", [x])[0], executor.run("single", [x])[0])


@pytest.mark.parametrize("registers", ["scalar", "128x16", "host"])
def test_constants_that_a_rule_reads_as_they_lie_are_not_taken_for_float16(
    registers: str, tmp_path: Path
) -> None:
    """Matrices of a batch are not packed, so they are float32 in memory, whatever their values are."""
    target = host_target() if registers == "host" else target_with(registers)
    g = Graph("batch")
    g.output(g.op("MatMul", g.input("x", (2, 9, 64)), _half_constant(g, 2, 64, 48), name="y"))
    compiled = Compiled({"m": g.model()}, tmp_path, replace(target, float16_weights=True))
    (kernel,) = compiled.plan("m").kernels
    assert kernel.rule == "matmul.batched"
    compiled.check("m")


def test_constants_that_are_no_float16_numbers_stay_float32() -> None:
    model = single((2, 64), lambda g, x: g.op("MatMul", x, g.weight(64, 64)))
    plan = plan_of(model, target=replace(host_target(), float16_weights=True)).plan
    assert {constant.dtype for constant in plan.constants} == {"float32"}

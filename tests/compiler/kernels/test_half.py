"""Conversions from and to float16 and bfloat16, of every number, by instructions and without."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.emit.half import number_of
from edgepack.config.device import load_device
from tests.models.builder import Graph
from tests.models.half import TYPES as ONNX_TYPES
from tests.support.compiled import plan_of, target_with
from tests.support.executor import Executor, host_target

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

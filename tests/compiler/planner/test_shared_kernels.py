"""Kernels that differ in numbers only share a function: the same results, bit by bit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from edgepack.compiler.backends.llvm import compile_object
from edgepack.compiler.planner.build import Built
from edgepack.compiler.planner.shared_kernels import share_kernels
from edgepack.config.device import load_device
from edgepack.objectfiles.code_size import section_bytes
from tests.targets.test_short_code import network
from workbench.compiled import plan_of
from workbench.executor import Executor
from workbench.models.builder import Graph


def dense() -> onnx.ModelProto:
    """Products of several sizes, of which two have the same one."""
    g = Graph("dense")
    x = g.input("x", [5, 40])
    for cin, cout in ((40, 48), (48, 56), (56, 56), (56, 56), (56, 24)):
        x = g.op("Relu", g.linear(x, cin, cout))
    g.output(g.op("Identity", x, name="y"))
    return g.model()


def images() -> onnx.ModelProto:
    """Convolutions, depthwise and others, whose images become smaller."""
    g = Graph("images")
    x = g.input("x", [1, 32, 36, 33])
    for _ in range(3):
        x = g.op("Relu", g.conv(x, 32, 32, 3, groups=32, pads=[0] * 4, bias=True))
        x = g.op("Relu", g.conv(x, 32, 32, 1, bias=True))
    g.output(g.op("Identity", x, name="y"))
    return g.model()


def quantised() -> onnx.ModelProto:
    """Products of bytes with multipliers, zero points and shifts of their own."""
    g = Graph("quantised")
    x, zero, scale = g.input("x", [3, 32], "uint8"), 3, 0.05
    for layer in range(4):
        weights = g.rng.integers(-60, 60, (32, 32)).astype(np.int8)
        following = 0.3 + 0.1 * layer
        x = g.op(
            "QLinearMatMul",
            *(x, g.const(np.float32(scale)), g.const(np.uint8(zero))),
            *(g.const(weights), g.const(np.float32(0.01 + 0.003 * layer)), g.const(np.int8(0))),
            *(g.const(np.float32(following)), g.const(np.uint8(120 + layer))),
        )
        scale, zero = following, 120 + layer
    g.output(x, "uint8")
    return g.model()


def shifts() -> onnx.ModelProto:
    """Elementwise operators of int64 with numbers of more than 32 bits, of both signs."""
    g = Graph("shifts")
    x = g.input("x", [4, 6], "int64")
    parts = []
    for factor in (3, -(2**40) - 5, 2**62 + 2**31):
        x = g.op("Mod", g.op("Mul", x, g.const(np.int64(factor))), g.const(np.int64(2**33 + factor % 7)))
        parts.append(g.op("CumSum", x, g.const(np.int32(1))))
    g.output(g.op("Concat", *parts, axis=0, name="y"), "int64")
    return g.model()


MODELS = {"dense": dense, "images": images, "quantised": quantised, "shifts": shifts}


@pytest.fixture(scope="module")
def plans() -> dict[str, Built]:
    found = {}
    for number, (name, make) in enumerate(MODELS.items()):
        found[name] = plan_of(make(), f"alone{number}")
        found[f"{name}, shared"] = share_kernels(plan_of(make(), f"shared{number}"))
    return found


@pytest.fixture(scope="module")
def executor(plans: dict[str, Built], tmp_path_factory: pytest.TempPathFactory) -> Executor:
    return Executor(plans, tmp_path_factory.mktemp("shared"))


@pytest.mark.parametrize("name", MODELS)
def test_results_are_those_of_kernels_of_their_own(executor: Executor, name: str) -> None:
    rng = np.random.default_rng(3)
    (tensor,) = executor.built[name].plan.inputs
    x = rng.integers(0, 250, tensor.shape).astype(tensor.dtype)
    if tensor.dtype == "float32":
        x = rng.standard_normal(tensor.shape).astype(np.float32)
    (own,), (shared,) = executor.run(name, [x]), executor.run(f"{name}, shared", [x], seed=1, poison=0x55)
    np.testing.assert_array_equal(own, shared)


@pytest.mark.parametrize("name", MODELS)
def test_functions_are_fewer_than_kernels(plans: dict[str, Built], name: str) -> None:
    built = plans[f"{name}, shared"]
    kernels = {kernel.symbol: kernel for kernel in built.plan.kernels}
    assert len(built.functions) < len(kernels)
    for kernel in kernels.values():
        assert (kernel.function or kernel.symbol) in built.functions
        assert bool(kernel.numbers) == bool(kernel.function)
        if kernel.function:
            assert len(kernel.numbers) == len(kernels[kernel.function].numbers)


def test_kernels_that_are_the_same_share_a_function_without_numbers(plans: dict[str, Built]) -> None:
    built = plans["dense"]
    one = built.plan.kernels[0]
    functions = {one.symbol: built.functions[one.symbol], "again": built.functions[one.symbol]}
    plan = replace(built.plan, kernels=(one, replace(one, symbol="again")))
    shared = share_kernels(replace(built, plan=plan, functions=functions))
    assert list(shared.functions) == [one.symbol]
    assert len(shared.functions[one.symbol].params) == len(functions["again"].params)
    assert [kernel.function for kernel in shared.plan.kernels] == [one.symbol] * 2


def test_firmware_shares_where_size_counts() -> None:
    target = load_device("cortex-m4").cpu_target()
    fast, small = (plan_of(dense(), target=replace(target, optimize=o)) for o in ("latency", "size"))
    assert len(small.functions) < len(fast.functions) == len(fast.plan.kernels)
    assert len(small.plan.kernels) == len(fast.plan.kernels)


def test_loops_that_run_once_in_all_that_share_them_are_none() -> None:
    target = replace(load_device("cortex-m4").cpu_target(), optimize="size")
    functions = plan_of(network(), target=target).functions
    loops = [line for f in functions.values() for line in str(f).splitlines() if "while " in line]
    assert loops
    assert not [line for line in loops if re.search(r"< [01]:", line)]


def test_a_pool_of_bytes_is_short_loops(tmp_path: Path) -> None:
    """LLVM unrolls loops of a known length too, unless it is told: they take several times as much then."""
    g = Graph("pool")
    x = g.input("x", [1, 25, 5, 64], "int8")
    x = g.op("ReduceSum", g.op("Cast", x, to=TensorProto.INT32), g.const(np.array([1, 2])), keepdims=0)
    g.output(g.op("Div", x, g.const(np.array(125, np.int32))), "int32")
    built = plan_of(g.model(), target=replace(load_device("cortex-m4").cpu_target(), optimize="size"))
    compile_object(built.functions, load_device("cortex-m4").cpu_target(), tmp_path / "kernels.o")
    assert section_bytes(tmp_path / "kernels.o")[".text"] < 350

"""Products in float16: how far they are off, which are, and what the instructions are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.backends.llvm import compile_assembly
from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph.lower import lower
from edgepack.compiler.kernels.cpu.micro.float16_blocks import FLOAT16_TERMS
from edgepack.compiler.planner.build import Built, build_plan
from edgepack.compiler.planner.measured import Measured
from edgepack.config.device import computes_float16, load_device
from edgepack.plan.calibration import CalibrationRanges
from edgepack.plan.target import CpuTarget, with_precision
from tools import inner_loops
from workbench.compiled import plan_of
from workbench.executor import Executor, host_target
from workbench.models.builder import Graph
from workbench.models.evaluate import run_onnxruntime
from workbench.models.hot import KERNELS
from workbench.models.single import single

PI5 = with_precision(load_device("raspberrypi5").cpu_target(), "fp16")

#: The rounding error of float16 for each term of a block, and of both operands.
BOUND = (FLOAT16_TERMS + 2) * 2.0**-11


def _cut(g: Graph, x: str) -> str:
    return g.op("Conv", x, g.weight(37, 32, 3, 3), pads=[1] * 4, strides=[2, 2])


def _grouped(g: Graph, x: str) -> str:
    return g.op("Conv", x, g.weight(80, 16, 3, 3), group=2, dilations=[2, 2])


def _product(g: Graph, x: str) -> str:
    return g.op("MatMul", g.op("Reshape", x, g.const(np.array([29, 64]))), g.weight(64, 90))


def _short_blocks(g: Graph, x: str) -> str:
    return g.op("MatMul", g.op("Reshape", x, g.const(np.array([64, 29]))), g.weight(29, 33))


def _one_row(g: Graph, x: str) -> str:
    return g.op("MatMul", g.op("Flatten", x), g.weight(29 * 64, 50))


CASES: dict[str, Callable[[Graph, str], str]] = {
    f.__name__.strip("_"): f for f in (_cut, _grouped, _product, _short_blocks, _one_row)
}


def _model(body: Callable[[Graph, str], str]) -> onnx.ModelProto:
    return single((1, 32, 29, 2) if body not in (_cut, _grouped) else (1, 32, 9, 11), body)


def _with(model: onnx.ModelProto, change: Callable[[np.ndarray], np.ndarray]) -> onnx.ModelProto:
    """The model with other weights."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for tensor in changed.graph.initializer:
        array = onnx.numpy_helper.to_array(tensor)
        if array.dtype == np.float32:
            tensor.CopyFrom(onnx.numpy_helper.from_array(change(array), tensor.name))
    return changed


@pytest.mark.parametrize("kind", ["aarch64", "x86"])
def test_results_are_within_the_bound(kind: str, tmp_path: Path) -> None:
    """Rows of the input are loaded by vectors for one kind of CPU, by elements for the other; the host's LLVM
    computes float16 by float32 and rounds, if it has to."""
    narrow = replace(host_target(), float16_products=True, vector_bits=128, vector_registers=16)
    target, names = (PI5, list(CASES)) if kind == "aarch64" else (narrow, ["cut", "short_blocks"])
    models = {name: _model(CASES[name]) for name in names}
    plans = {name: plan_of(model, name, target) for name, model in models.items()}
    executor = Executor(plans, tmp_path, host_target())
    for name, model in models.items():
        assert "float16, by 16" in {k.parameters.get("products") for k in plans[name].plan.kernels}, name
        (spec,) = plans[name].plan.inputs
        x = np.random.default_rng(1).normal(size=spec.shape).astype(np.float32)
        (got,) = executor.run(name, [x], seed=3, poison=0xFF)
        (exact,) = run_onnxruntime(model, {spec.name: x})
        (most,) = run_onnxruntime(_with(model, np.abs), {spec.name: np.abs(x)})
        assert np.all(np.abs(got - exact) <= BOUND * most), name
        assert np.abs(got - exact).max() > 2.0**-15 * most.max(), "that is not float16"


def _planned(factor: float, *, scale: float = 1.0, large: bool = False, target: CpuTarget = PI5) -> Built:
    """The plan of a product by weights times ``scale`` of values up to ``factor``."""
    model = _with(_model(_product), lambda weights: weights * np.float32(scale))
    imported = import_model(model)
    names = imported.signature.nodes
    return build_plan(
        lower(imported.module),
        imported.signature,
        target,
        name="m",
        symbol_prefix="m_",
        measured=Measured(CalibrationRanges(frozenset(names if large else ()), dict.fromkeys(names, factor))),
    )


def _in_half(built: Built) -> bool:
    return any("products" in kernel.parameters for kernel in built.plan.kernels)


def test_sums_that_may_leave_float16_are_float32() -> None:
    """16 products by weights of up to about 0.4."""
    assert _in_half(_planned(100.0))
    for built in (_planned(1e5), _planned(100.0, large=True), _planned(float("nan"))):
        assert not _in_half(built)
        assert not built.plan.warnings
    assert not _in_half(_planned(100.0, target=replace(PI5, float16_products=False)))


def test_weights_that_float16_cannot_hold_stay_float32() -> None:
    built = _planned(1.0, scale=1e-8)
    assert not _in_half(built)
    (warning,) = built.plan.warnings
    assert "so it stays float32: float16 holds 6e-8 to 65504" in warning


@pytest.mark.parametrize("device", ["raspberrypi5", "jetson-orin", "macos-arm64", "linux-aarch64-v8.2"])
def test_cpus_that_compute_in_float16(device: str) -> None:
    assert with_precision(load_device(device).cpu_target(), "fp16").float16_products
    assert not with_precision(load_device(device).cpu_target(), None).float16_products


@pytest.mark.parametrize("device", ["raspberrypi4", "linux-x86_64-v4", "android-arm64", "linux-riscv64-v"])
def test_cpus_that_do_not(device: str) -> None:
    assert not computes_float16(load_device(device))
    assert not with_precision(load_device(device).cpu_target(), "fp16").float16_products


def test_a_device_computes_in_float16_where_a_variant_of_it_does() -> None:
    device = load_device("linux-aarch64-multi")
    assert computes_float16(device)
    assert not device.cpu_target().computes_float16


@pytest.mark.parametrize("kernel", ["1x1, 64 to 128", "matmul 128x384x1536"])
def test_an_instruction_does_twice_the_multiply_adds_and_nothing_is_spilt(kernel: str) -> None:
    machine = next(m for m in inner_loops.machines() if m.name == "cortex-a76")
    rates = []
    for number, lanes in (("4s", 4), ("8h", 8)):
        pattern = machine.syntax.fma.replace("4s", number)
        syntax = replace(machine.syntax, fma=pattern)
        target = replace(PI5, float16_products=lanes == 8)
        built = plan_of(KERNELS[kernel](), target=target)
        text = compile_assembly(built.functions, target)
        found = [
            loop
            for k in built.plan.kernels
            for loop in inner_loops.loops_of(text, k.symbol, replace(machine, syntax=syntax))
            if loop.count(pattern) >= 8
        ]
        assert found
        assert all(loop.spills(syntax) == 0 for loop in found)
        rates.append(max(lanes * loop.count(pattern) / len(loop.lines) for loop in found))
    assert rates[1] >= 2 * rates[0]

"""Groups of few channels side by side in vectors of sums of bytes and of pairs: every integer is exact."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.conv.window_schedule import GroupedSchedule
from edgepack.compiler.kernels.schedule import Given
from edgepack.compiler.planner.build import Built
from edgepack.compiler.tvm_target import has_feature
from edgepack.config.device import load_device
from edgepack.plan.target import CpuTarget
from tests.compiler.kernels import test_emulated_instructions as instructions
from tests.compiler.kernels.test_quantised import convolved
from workbench.compiled import plan_of
from workbench.executor import Executor, host_target
from workbench.models.builder import Graph

#: By name: groups, input and output channels of each, size of the image, window, other attributes, and lanes
#: and pixels of a step where they are given. The last block of most has groups of the one before it.
CASES = {
    "two of 8 in a vector": ((3, 8, 8), (9, 11), (3, 3), {"pads": [1] * 4}, (16, 4)),
    "two of 8, by two": ((3, 8, 8), (10, 13), (3, 3), {"pads": [1] * 4, "strides": [2, 2]}, (8, None)),
    "four of 4": ((5, 4, 4), (7, 9), (3, 3), {"pads": [0, 1, 2, 1]}, (16, None)),
    "fewer than a vector holds": ((3, 4, 4), (5, 6), (3, 3), {"pads": [1] * 4}, (None, None)),
    "four of 12 in three vectors": ((5, 12, 12), (6, 9), (3, 3), {"pads": [1] * 4}, (16, None)),
    "two of 24 in three vectors": ((3, 24, 24), (6, 7), (3, 3), {"pads": [1] * 4}, (16, None)),
    "twice the channels": (
        (4, 4, 8),
        (9, 14),
        (5, 4),
        {"pads": [2, 2, 2, 1], "strides": [2, 1], "dilations": [1, 2]},
        (None, None),
    ),
    "half of the channels": ((4, 16, 8), (6, 5), (3, 3), {"pads": [1] * 4}, (16, 3)),
    "no window": ((6, 8, 8), (5, 9), (1, 1), {}, (16, None)),
    "signal": ((4, 8, 16), (1, 21), (1, 3), {"pads": [0, 2, 0, 2], "dilations": [1, 2]}, (None, None)),
}
#: Those that are tried with narrower vectors too.
NARROW = ("two of 8, by two", "four of 4", "four of 12 in three vectors", "twice the channels")
#: What AArch64's instructions do.
AARCH64 = {
    "llvm.aarch64.neon.sdot.v4i32.v16i8": instructions._dot(4, 8, signed=True, adds=True),
    "llvm.aarch64.neon.fcvtns.v4i32.v4f32": instructions._nearest(4),
}
#: The largest weight, by type.
LARGEST = {"8 bits": 128, "7 bits": 64}


def _model(name: str, bits: str) -> onnx.ModelProto:
    """A pointwise QLinearConv, whose result has a zero point, and the grouped one that reads it."""
    (groups, inner, outer), size, window, attributes, _ = CASES[name]
    g = Graph(name)
    largest, channels, out = LARGEST[bits], groups * inner, groups * outer
    zeros = {kind: g.const(np.array(zero, np.uint8)) for kind, zero in (("x", 131), ("m", 77), ("y", 117))}
    first = g.rng.integers(-largest, largest, (channels, 8, 1, 1)).astype(np.int8)
    weights = g.rng.integers(-largest, largest, (out, inner, *window)).astype(np.int8)
    weights.reshape(-1)[:4] = -largest
    scales = g.rng.uniform(0.001, 0.002, out).astype(np.float32)
    step = 0.05 * 0.0015 * 130 * largest * np.prod(weights.shape[1:]) ** 0.5 / 80
    x = g.input("x", (1, 8, *size), "uint8")
    middle = g.op(
        "QLinearConv",
        *(x, g.const(np.float32(0.05)), zeros["x"]),
        *(g.const(first), g.const(np.float32(0.002)), g.const(np.int8(0))),
        *(g.const(np.float32(0.05)), zeros["m"]),
    )
    y = g.op(
        "QLinearConv",
        *(middle, g.const(np.float32(0.05)), zeros["m"]),
        *(g.const(weights), g.const(scales), g.const(np.zeros(out, np.int8))),
        *(g.const(np.float32(step)), zeros["y"]),
        g.const(g.rng.integers(-9000, 9000, out).astype(np.int32)),
        name="y",
        group=groups,
        **attributes,
    )
    g.output(y, "uint8")
    return g.model()


def _defined(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """What a model of QLinearConvs gives, by the operator's definition."""
    constants = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for node in model.graph.node:
        x_scale, x_zero, w, w_scale, _, y_scale, y_zero, *bias = (constants[n] for n in node.input[1:])
        attributes = {item.name: onnx.helper.get_attribute_value(item) for item in node.attribute}
        sums = convolved(x.astype(np.int64) - x_zero, w.astype(np.int64), attributes)
        sums = sums + (bias[0].reshape(1, -1, 1, 1) if bias else 0)
        factor = (x_scale * w_scale).astype(np.float32) / y_scale
        scaled = sums.astype(np.float32) * factor.reshape(-1, 1, 1).astype(np.float32)
        x = np.clip(np.rint(scaled).astype(np.int64) + y_zero, 0, 255).astype(np.uint8)
    return x


def _built(
    target: CpuTarget, bits: str, lanes: int, names: Collection[str], seen: set[str] | None = None
) -> Mapping[str, Built]:
    """Cases in groups side by side, in vectors of at most so many lanes; ``seen`` gets instructions that are
    emulated."""
    built = {}
    for number, name in enumerate(names):
        wanted, columns = CASES[name][-1]
        given: Given = {"conv2d.grouped": GroupedSchedule(wanted and min(wanted, lanes), columns)}
        made = plan_of(_model(name, bits), f"m{number}", target, given=given)
        if seen is not None:
            functions = {symbol: instructions.emulated(f, seen) for symbol, f in made.functions.items()}
            made = replace(made, functions=functions)
        assert "conv2d.grouped" in {kernel.rule for kernel in made.plan.kernels}, name
        built[name] = made
    return built


def _check(built: Mapping[str, Built], bits: str, folder: Path) -> None:
    executor, rng = Executor(built, folder), np.random.default_rng(3)
    for name in built:
        (spec,) = built[name].plan.inputs
        for values in ([0, 255], range(256)):
            x = rng.choice(np.array(values, np.uint8), spec.shape)
            np.testing.assert_array_equal(executor.run(name, [x])[0], _defined(_model(name, bits), x), name)


@pytest.mark.parametrize(
    ("device", "lanes", "instruction", "names"),
    [
        ("linux-x86_64-vnni", 16, "llvm.x86.avx512.vpdpbusd.512", tuple(CASES)),
        pytest.param(
            *("linux-x86_64-avxvnni", 8, "llvm.x86.avx512.vpdpbusd.256", NARROW), marks=pytest.mark.slow
        ),
        ("raspberrypi5", 4, "llvm.aarch64.neon.sdot.v4i32.v16i8", NARROW),
    ],
)
def test_sums_of_quads_are_exact(
    device: str,
    lanes: int,
    instruction: str,
    names: Collection[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Padding that is a zero point of bytes, also of a signed one."""
    for name, emulation in AARCH64.items():
        monkeypatch.setitem(instructions.INSTRUCTIONS, name, emulation)
    seen = set[str]()
    built = _built(load_device(device).cpu_target(), "8 bits", lanes, names, seen)
    assert instruction in seen
    _check(built, "8 bits", tmp_path)


@pytest.mark.parametrize("bits", LARGEST)
def test_sums_of_pairs_and_of_saturated_pairs_are_exact(bits: str, tmp_path: Path) -> None:
    """int16, and bytes of which two products are added in 16 bits."""
    if not has_feature(host_target(), "avx2"):
        pytest.skip("this CPU has no AVX2")
    built = _built(load_device("linux-x86_64-v3").cpu_target(), bits, 8, NARROW)
    _check(built, bits, tmp_path)

"""Ifs and loops at run time, on each kind of target, under its emulator."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

import edgepack
from workbench.models.drawn_regions import Drawn
from workbench.models.evaluate import random_inputs

#: Firmware, which runs without a session too; vectors of any length and several threads; WebAssembly.
DEVICES = ("cortex-m4", "linux-riscv64-v", "wasm32-wasi")

#: By the same way as one of these.
LIKE_OTHERS = ("cortex-m0plus", "cortex-m55", "raspberrypi4", "raspberrypi2", "linux-armv6", "opencl-generic")

#: Each has Ifs in loops and loops in Ifs.
SEEDS = (0, 4)


def bundle_of(device: str, seed: int, folder: Path) -> edgepack.Bundle:
    path = folder / f"drawn{seed}.onnx"
    onnx.save(Drawn(seed).model, str(path))
    return edgepack.pack(path, device, folder / f"{device}{seed}")


@pytest.mark.parametrize(
    "device", [*DEVICES, *(pytest.param(device, marks=pytest.mark.slow) for device in LIKE_OTHERS)]
)
def test_branches_go_where_onnxruntime_goes(device: str, tmp_path: Path) -> None:
    for seed in SEEDS if device in LIKE_OTHERS else SEEDS[:1]:
        bundle = bundle_of(device, seed, tmp_path)
        assert any(step.times != 1 for step in bundle.manifest.steps), "a loop of 90 trips"
        assert "branch" in {kernel.rule for kernel in bundle.manifest.kernels}
        assert bundle.verify().ok, (device, seed)


def test_runs_on_threads_are_the_same_bits(tmp_path: Path) -> None:
    """Whoever ends a step says which one comes next: 40 runs by one to four threads."""
    bundle_of("host", SEEDS[1], tmp_path)
    model = onnx.load(str(tmp_path / f"drawn{SEEDS[1]}.onnx"))
    inputs = random_inputs(model, 3)
    results = []
    for threads in (1, 2, 3, 4):
        with edgepack.load(tmp_path / f"host{SEEDS[1]}", threads=threads) as session:
            results += [session.run(inputs) for _ in range(10)]
    first = {name: array.tobytes() for name, array in results[0].items()}
    assert all({n: a.tobytes() for n, a in one.items()} == first for one in results)

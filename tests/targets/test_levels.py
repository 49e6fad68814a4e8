"""Optimisation levels on other CPUs, run under emulators: within the tolerance that a pack records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import onnx
import pytest

import edgepack
from edgepack.plan.opt_level import ALL, OPT_LEVELS, TILED, OptLevel
from workbench.models import build, save
from workbench.models.quantise import quantise

#: Vectors of 128 bits, of any length, none; floats in the library of the compiler.
DEVICES = ("raspberrypi4", "raspberrypi2", "linux-riscv64-v", "wasm32-wasi", "cortex-m4", "esp32c3")

#: QEMU 7.2 ends with an assertion at vfncvt.rtz.xu.f.w, by which LLVM's plain loops quantise.
ENDS_QEMU = "linux-riscv64-v"

MODELS: Mapping[str, Callable[[], onnx.ModelProto]] = {
    "ds_cnn": lambda: build("ds_cnn"),
    "ds_cnn_int8": lambda: quantise(build("ds_cnn"), "u8s8"),
    "gru": lambda: build("gru"),
}


@pytest.mark.slow
@pytest.mark.parametrize("weights", [None, "float16"])
@pytest.mark.parametrize("level", [level for level in OPT_LEVELS if level < ALL])
@pytest.mark.parametrize("device", DEVICES)
def test_a_level_agrees_with_onnxruntime(
    device: str, level: OptLevel, weights: str | None, tmp_path: Path
) -> None:
    for name, make in MODELS.items():
        if name.endswith("int8") and (weights is not None or (device == ENDS_QEMU and level < TILED)):
            continue
        path = save(make(), tmp_path, f"{name}.onnx")
        options = {"opt_level": level, "weights": weights}
        bundle = edgepack.pack(path, device, tmp_path / name, **options)  # type: ignore[arg-type]
        assert bundle.manifest.options.opt_level == level
        if device == "esp32c3":
            continue  # nothing here runs it: that it fits its memories is what a pack says
        result = bundle.verify()
        assert result.ok, (name, result)

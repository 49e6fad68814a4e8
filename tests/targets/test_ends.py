"""Integers at the ends of their types on other CPUs, run under emulators: divisors of 0, shifts by too many
bits, sums that do not fit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import edgepack
from edgepack.config.device import load_device
from edgepack.options import RunOptions
from edgepack.runners.verify import verify
from workbench.models import save
from workbench.models.ends import INTEGERS, arithmetic, expected, inputs_of

#: Devices, and CPUs that are emulated ("" where the device says which).
EMULATED = (
    *(("cortex-m4", ""), ("cortex-m55", ""), ("cortex-m0plus", ""), ("esp32-c3", ""), ("wasm32-wasi", "")),
    *(("raspberrypi2", "cortex-a7"), ("raspberrypi4", "cortex-a72"), ("linux-riscv64", "")),
    *(("linux-riscv64-v", "rv64,v=true,vlen=128"), ("linux-x86_64-v3", "")),
)

#: QEMU 7.2 ends with a failed assertion at some conversions of RISC-V's vectors, by which these are divided.
NOT_EMULATED = {"linux-riscv64-v": {"int8", "int16", "int32", "uint8", "uint16"}}

#: In `make test`: one that divides by calls of its compiler's library, with types of each size.
FEW = {"cortex-m0plus": ("int8", "uint32", "int64")}


def _joined(dtypes: tuple[str, ...]) -> onnx.ModelProto:
    whole = onnx.compose.add_prefix(arithmetic(dtypes[0]), f"{dtypes[0]}_")
    for dtype in dtypes[1:]:
        part = onnx.compose.add_prefix(arithmetic(dtype), f"{dtype}_")
        for field in ("node", "initializer", "input", "output"):
            getattr(whole.graph, field).extend(getattr(part.graph, field))
    return whole


@pytest.mark.parametrize(
    ("device", "cpu", "dtypes"),
    [
        *(pytest.param(device, "", dtypes, id=device) for device, dtypes in FEW.items()),
        *(
            pytest.param(
                *(device, cpu, tuple(d for d in INTEGERS if d not in NOT_EMULATED.get(device, ()))),
                id="-".join((device, cpu, "all")),
                marks=pytest.mark.slow,
            )
            for device, cpu in EMULATED
        ),
    ],
)
def test_integers_at_their_ends_are_what_is_said(
    device: str, cpu: str, dtypes: tuple[str, ...], tmp_path: Path
) -> None:
    path = save(_joined(dtypes), tmp_path, "ends.onnx")
    given: dict[str, Path] = {}
    wanted: dict[str, Path] = {}
    for dtype in dtypes:
        inputs = inputs_of(dtype)
        for into, arrays in ((given, inputs), (wanted, expected(dtype, inputs))):
            for name, array in arrays.items():
                into[f"{dtype}_{name}"] = tmp_path / f"{dtype}_{name}.npy"
                np.save(into[f"{dtype}_{name}"], array)
    bundle = edgepack.pack(path, load_device(device), tmp_path / "bundle", inputs=given, expected=wanted)
    manifest = bundle.manifest
    if cpu:
        runner = manifest.device.runner.model_copy(update={"cpu": cpu})
        emulated = manifest.device.model_copy(update={"runner": runner})
        manifest = manifest.model_copy(update={"device": emulated})
    found = verify(bundle.path, manifest, RunOptions(runner="qemu" if cpu else None))
    assert found.ok, found

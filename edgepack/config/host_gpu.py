"""The GPU of this machine as its driver describes it: what the `host-gpu` device has beside `host`."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from edgepack.config.gpu import GpuModel
from edgepack.config.host import detect
from edgepack.errors import ToolchainError
from edgepack.resources import PACKAGE
from edgepack.system.process import ask

__all__ = ["ASK_DEVICES", "GPU_HINT", "describe_gpu", "detect_with_gpu", "gpus", "require_gpu"]

#: Prints what a driver says of its devices.
ASK_DEVICES = PACKAGE / "trial" / "gpu_devices.py"

#: What to try where no GPU was found.
GPU_HINT = (
    "Install the GPU's driver, or pack for a kind of GPU that need not be here: --device opencl-generic "
    "(which PoCL runs, whose device is the CPU), or --device cuda-desktop (verify --runner cuda-shim)."
)

#: Oldest compute capability that kernels are written for (Maxwell).
_OLDEST = 50

#: Shared memory that a kernel can have without being asked for more when it is launched.
_MOST_SHARED = 48 * 1024

#: Work groups that a kernel should have on a GPU of few units, which hide each other's waiting.
_FEWEST_GROUPS = 32

#: What a Linux bundle loads, which opens a driver's library; by its base also the dynamic linker.
_NEEDED = ("libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2")
_LINKERS = {
    "linux-x86_64": "ld-linux-x86-64.so.2",
    "linux-aarch64": "ld-linux-aarch64.so.1",
    "linux-riscv64": "ld-linux-riscv64-lp64d.so.1",
    "linux-armv7": "ld-linux-armhf.so.3",
}


def detect_with_gpu() -> dict[str, Any]:
    """This machine as fields of a device file, with its GPU; `gpu.missing` says why there is none."""
    machine = detect()
    base = str(machine["extends"])
    asked = ("metal",) if base == "macos-arm64" else ("cuda", "opencl")
    machine["gpu"] = describe_gpu({api: gpus(api) for api in asked}, sys.platform)
    if base in _LINKERS:
        machine["libraries"] = ["m", "pthread", "dl"]
        machine["audit"] = {**machine.get("audit", {}), "needed": [*_NEEDED, _LINKERS[base]]}
    return machine


@cache
def gpus(api: str) -> tuple[Mapping[str, Any], ...]:
    """What a driver says of each of its devices, asked once in this process; a driver that fails has none."""
    lines = ask([sys.executable, "-I", str(ASK_DEVICES), api, "json"]).splitlines()
    return tuple(json.loads(line) for line in lines if line.startswith("{") and line.endswith("}"))


def describe_gpu(found: Mapping[str, Sequence[Mapping[str, Any]]], system: str) -> dict[str, Any]:
    """The `gpu` section of a device file.

    Of several GPUs it is the first that a driver names, of several drivers the first. A device that is a CPU,
    as PoCL's, is not taken.

    Args:
        found: by driver ("cuda", "opencl", "metal"), in the order in which they are preferred, what it says
            of its devices.
        system: as ``sys.platform``; for the names of libraries.
    """
    reasons = []
    for api, devices in found.items():
        fitting = [one for one in devices if _fits(api, one)]
        if fitting:
            return _section(api, fitting[0])
        names = ", ".join(str(one["name"]) for one in devices)
        reasons.append(f"{_driver(api, system)} {f'has no such GPU ({names})' if names else 'has no device'}")
    return {"api": "none", "missing": "; ".join(reasons)}


def _driver(api: str, system: str) -> str:
    """What was looked for."""
    if api == "cuda":
        return f"CUDA's driver ({'nvcuda.dll' if system == 'win32' else 'libcuda.so.1'})"
    if api == "metal":
        return "the Metal framework"
    names = {"win32": "OpenCL.dll", "darwin": "Apple's framework"}
    return f"OpenCL ({names.get(system, 'libOpenCL.so.1')})"


def _fits(api: str, device: Mapping[str, Any]) -> bool:
    if api == "metal":
        return True
    if api == "cuda":
        return int(device["capability"]) >= _OLDEST
    return bool(device["gpu"]) and int(device["group_size"]) >= 64


def _section(api: str, device: Mapping[str, Any]) -> dict[str, Any]:
    if api == "metal":
        return {"api": api, "family": int(device["family"])}
    section = {
        "api": api,
        "group_size": 256 if int(device["group_size"]) >= 256 else 64,
        "groups": max(_FEWEST_GROUPS, int(device["units"])),
    }
    if device["local_memory"]:
        section["local_memory"] = min(int(device["local_memory"]), _MOST_SHARED)
    return section | ({"capabilities": [int(device["capability"])]} if api == "cuda" else {})


def require_gpu(gpu: GpuModel, device: str) -> None:
    """ToolchainError for a device, whose name is given, whose GPU was looked for on this machine in vain."""
    if gpu.missing and gpu.api == "none":
        raise ToolchainError(f"{device}: no GPU of this machine was found: {gpu.missing}.", hint=GPU_HINT)

"""What this machine has for a device's GPU: what compiles its kernels when a model is packed, and its driver,
with which ``verify`` runs them here."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from edgepack.config.device import Device
from edgepack.config.host_gpu import ASK_DEVICES, GPU_HINT
from edgepack.errors import ToolchainError
from edgepack.pipeline.versions import tool_versions
from edgepack.plan.cuda_driver import nvrtc_for, takes_cubins
from edgepack.resources import PACKAGE
from edgepack.runners import native
from edgepack.system.installation import extra_command
from edgepack.system.process import ask
from edgepack.toolchains.nvcc import Nvcc

__all__ = ["GpuTool", "examine_gpu"]

_KERNEL = PACKAGE / "trial" / "trial_kernel.cu"

#: How to get a driver.
_DRIVERS = {
    "opencl": "Install the driver of the GPU's vendor, or PoCL, whose device is the CPU: apt-get install "
    "ocl-icd-libopencl1 pocl-opencl-icd.",
    "cuda": "Install NVIDIA's driver; edgepack verify --runner cuda-shim needs none.",
}


@dataclass(frozen=True)
class GpuTool:
    """A compiler of kernels, or a driver.

    Attributes:
        needed: nothing can be packed for the device without it.
        found: what it is; "" where there is none.
    """

    name: str
    needed: bool
    version: str = ""
    found: str = ""
    problem: str = ""
    hint: str = ""


def examine_gpu(device: Device) -> Iterator[GpuTool]:
    """What this machine has for a device's GPU; nothing for a device without one."""
    api = device.gpu.api
    if device.gpu.missing and api == "none":
        yield GpuTool("gpu", True, problem=f"none was found: {device.gpu.missing}", hint=GPU_HINT)
    versions = tool_versions(api)
    if api == "cuda":
        packages = {name: v for name, v in versions.items() if name.startswith("nvidia-")}
        yield _nvrtc(packages, device.gpu.cuda)
        yield _nvcc(device.gpu.capabilities)
    if api == "metal":
        yield _xcode(versions.get("metal", ""))
    if api in _DRIVERS and native.available(device).ok:
        yield _driver(api)


def _nvrtc(packages: dict[str, str], driver: str) -> GpuTool:
    """The one that packs, and what it makes for a driver of an older CUDA ("10.2"; "" for any)."""
    majors = {int(version.partition(".")[0]): name for name, version in packages.items()}
    if majors:
        name = majors[nvrtc_for(majors, driver)]
        version = packages[name]
        if not driver:
            return GpuTool("nvrtc", True, version, name)
        made = "machine code and PTX" if takes_cubins(driver, version) else "PTX"
        return GpuTool("nvrtc", True, version, f"{name}; {made} for drivers since CUDA {driver}")
    problem = "kernels for NVIDIA's GPUs cannot be compiled without it"
    return GpuTool("nvrtc", True, problem=problem, hint=f"NVRTC was not found: {extra_command('cuda')}")


def _nvcc(capabilities: Sequence[int]) -> GpuTool:
    """The one of a CUDA toolkit, tried on a kernel; bundles do without it."""
    nvcc = Nvcc(capabilities)
    version = found = ""
    try:
        found, version = nvcc.executable[0], nvcc.version()
        nvcc(_KERNEL.read_bytes())
    except ToolchainError as error:
        what = f"{error.message} Only TVM's own CUDA code needs it."
        hint = (
            f"nvcc: {what}"
            if found
            else f"nvcc was not found, which only TVM's own CUDA code needs: {error.hint}"
        )
        return GpuTool("nvcc", False, version, problem=what, hint=hint)
    return GpuTool("nvcc", False, version, found)


def _xcode(version: str) -> GpuTool:
    if version:
        return GpuTool("xcode-metal", False, version, "xcrun metal")
    hint = "xcrun metal was not found: the GPU's driver compiles the kernels when the model is opened."
    return GpuTool("xcode-metal", False, problem="kernels are not compiled when a model is packed", hint=hint)


def _driver(api: str) -> GpuTool:
    found = ask([sys.executable, "-I", str(ASK_DEVICES), api]).strip().splitlines()
    if found:
        return GpuTool(f"{api}-driver", False, found="; ".join(found))
    problem = "the GPU's kernels cannot be run by a driver here"
    return GpuTool(f"{api}-driver", False, problem=problem, hint=_DRIVERS[api])

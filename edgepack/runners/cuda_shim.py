"""Runs a bundle's kernels for CUDA on a CPU: a libcuda.so.1, built from the bundle's own CUDA C, that checks.

The program is the bundle's, and so are the images that it hands to the driver, of which the shim
(``templates/shim/cuda``) asks that they are of NVIDIA's format and have each kernel. What computes is the
CUDA C, compiled as C++ for the program's CPU (:mod:`edgepack.runners.shim`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners.base import Availability, DeviceLike, arch_of
from edgepack.runners.shim import (
    ARCHES,
    WITH_GPU,
    Shim,
    beneath,
    build_library,
    has_gpu,
    kept_folder,
    run_in_both_orders,
    zig_version,
)
from edgepack.system.process import Completed

__all__ = ["CUDA", "REAL_SPEED", "available", "run"]

REAL_SPEED = False

CUDA = Shim("cuda-shim", "CUDA", "cuda", "cuda_c.h", ".cu", "libcuda.so.1", 48 * 1024)


def available(device: DeviceLike) -> Availability:
    """Whether this machine can run the device's programs, itself or by qemu, and there is a compiler."""
    arch = arch_of(device.arch)
    if device.os != "linux" or arch not in ARCHES:
        where = f"{device.os} and {arch}"
        return Availability(
            False, "", f"The shim of CUDA is for Linux on {' or '.join(ARCHES)}, not {where}."
        )
    if not has_gpu(device, "cuda"):
        return Availability(False, "", "The shim of CUDA is for devices whose gpu.api is cuda.")
    runner, where, hint = beneath(device)
    if runner is None:
        return Availability(False, "", hint)
    version = zig_version()
    if not version:
        return Availability(False, "", "The shim is compiled by zig: python -m pip install ziglang.")
    return Availability(True, f"a CPU in the place of the GPU, zig {version}; {where}", "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the program with the shim; to verify, with the threads in one order and in the other.

    Raises:
        CheckFailedError: what is computed depends on the order.
        ConfigError: the bundle in ``cwd`` has no kernels for CUDA.
        ToolchainError: the shim cannot be built, or the program ran out of time.
    """
    sources = sorted((cwd / "src").glob("*.cu"))
    if not sources:
        raise ConfigError(
            "The bundle has no kernels for CUDA (src/*.cu).", hint="Pack for a device whose gpu.api is cuda."
        )
    runner, _, hint = beneath(device)
    if runner is None:
        raise ToolchainError(f"The shim of CUDA cannot run programs of {device.name}.", hint=hint)
    if not WITH_GPU.intersection(map(str, argv)):
        return runner.run(device, argv, timeout=timeout, cwd=cwd)
    library = _library(tuple(source.read_text(encoding="utf-8") for source in sources), arch_of(device.arch))
    call = getattr(runner, "call")(device, argv, cwd=cwd)  # noqa: B009
    return run_in_both_orders(CUDA, call, library, both="verify" in argv, timeout=timeout, cwd=cwd)


@cache
def _library(texts: tuple[str, ...], arch: str) -> Path:
    """The shim of these kernels, built once in this process, at whose end it is removed."""
    return build_library(CUDA, texts, kept_folder(), arch)

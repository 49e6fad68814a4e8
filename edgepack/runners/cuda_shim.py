"""Runs a bundle's kernels for CUDA on a CPU: a libcuda.so.1, built from the bundle's own CUDA C, that checks.

The program is the bundle's, and so are the images that it hands to the driver, of which the shim
(``templates/shim/cuda``) asks that they are of NVIDIA's format and have each kernel. What computes is the
CUDA C, compiled as C++ for the program's CPU, one fiber for each thread of a block. The shim ends the program
with a sentence for a launch that no GPU takes, an access outside of an allocation or an array of shared
memory, two threads that come to one byte with no barrier in between of which one writes, and a barrier that
not all threads of a block come to. What has not been written is no number.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any

from edgepack.errors import CheckFailedError, ConfigError, ToolchainError
from edgepack.process import Completed, ask, execute, run_checked
from edgepack.resources import TEMPLATES
from edgepack.runners import native, qemu_user
from edgepack.runners.base import Availability, DeviceLike, Runner, arch_of
from edgepack.temporary import cache_folder, temporary_folder

__all__ = ["REAL_SPEED", "available", "build_shim", "run", "shim_environment"]

REAL_SPEED = False

#: What each order of the threads of a block, and of blocks, is called in EDGEPACK_SHIM_ORDER.
_ORDERS = ("forward", "reverse")

#: What a bundle's program is told to do with a GPU.
_WITH_GPU = frozenset({"verify", "bench"})

#: Folders that are removed at the end of the process.
_KEPT = ExitStack()

#: A kernel in the text: threads of its blocks in x, y and z, and its name.
_KERNEL = re.compile(r"^KERNEL\((\d+), (\d+), (\d+)\) void (\w+)\(", re.MULTILINE)

_SHIM = TEMPLATES / "shim" / "cuda"
_ARCHES = ("aarch64", "x86_64")
_GLIBC = "2.28"
_BUILD_SECONDS = 600.0

#: clang's calls for each access to memory, and all accesses as they stand in the text. Vectors would be
#: accesses of sizes for which there are no calls.
_INSTRUMENTED = (
    *("-std=c++17", "-O1", "-fno-exceptions", "-fno-rtti", "-fno-vectorize", "-fno-slp-vectorize"),
    *("-fno-sanitize=undefined", "-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0"),
    "-Wno-unknown-pragmas",
)


def available(device: DeviceLike) -> Availability:
    """Whether this machine can run the device's programs, itself or by qemu, and there is a compiler."""
    arch = arch_of(device.arch)
    if device.os != "linux" or arch not in _ARCHES:
        where = f"{device.os} and {arch}"
        return Availability(
            False, "", f"The shim of CUDA is for Linux on {' or '.join(_ARCHES)}, not {where}."
        )
    beneath, where, hint = _beneath(device)
    if beneath is None:
        return Availability(False, "", hint)
    version = ask([sys.executable, "-m", "ziglang", "version"]).strip()
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
    beneath, _, hint = _beneath(device)
    if beneath is None:
        raise ToolchainError(f"The shim of CUDA cannot run programs of {device.name}.", hint=hint)
    if not _WITH_GPU.intersection(map(str, argv)):
        return beneath.run(device, argv, timeout=timeout, cwd=cwd)
    library = _library(tuple(source.read_text(encoding="utf-8") for source in sources), arch_of(device.arch))
    call = getattr(beneath, "call")(device, argv, cwd=cwd)  # noqa: B009
    results = []
    for order in _ORDERS if "verify" in argv else _ORDERS[:1]:
        environment = {**call.environment, **shim_environment(library, order)}
        results.append(execute(call.argv, timeout=timeout, cwd=cwd, env=environment, what=call.what))
        if results[-1].returncode != 0:
            return results[-1]
    _compare([_outputs(done) for done in results])
    return results[0]


def shim_environment(library: Path, order: str) -> dict[str, str]:
    """Variables of a program that is to find the shim, and threads to run ``forward`` or ``reverse``."""
    return {
        "LD_LIBRARY_PATH": str(library.parent),
        "EDGEPACK_SHIM_LIBRARY": str(library),
        "EDGEPACK_SHIM_ORDER": order,
    }


@cache
def _library(texts: tuple[str, ...], arch: str) -> Path:
    """The shim of these kernels, built once in this process, at whose end it is removed."""
    folder = _KEPT.enter_context(temporary_folder())
    return build_shim(texts, folder, arch)


def build_shim(texts: Sequence[str], folder: Path, arch: str) -> Path:
    """Compiles kernels and the driver's interface.

    Args:
        texts: of files of CUDA C, as ``compiler/backends/cuda.py`` writes them.
        folder: where the library is written.
        arch: x86_64 or aarch64.

    Returns:
        the path of ``libcuda.so.1``.

    Raises:
        ToolchainError: the compiler is missing or failed.
    """
    zig = [sys.executable, "-m", "ziglang", "cc", "-target", f"{arch}-linux-gnu.{_GLIBC}"]
    common = ["-g1", "-fPIC", "-fvisibility=hidden", f"-I{_SHIM}"]
    cache = str(cache_folder("zig"))
    environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}

    def build(*arguments: str | Path) -> None:
        command = [*zig, *common, *map(str, arguments)]
        run_checked(
            command, what="building the shim of CUDA", timeout=_BUILD_SECONDS, cwd=folder, env=environment
        )

    objects = []
    for number, source in enumerate(texts):
        text = folder / f"kernels{number}.cpp"
        text.write_text(_translation_unit(source, number), encoding="utf-8", newline="\n")
        objects.append(folder / f"kernels{number}.o")
        build(*_INSTRUMENTED, "-c", text, "-o", objects[-1])
    library = folder / "libcuda.so.1"
    parts = sorted(_SHIM.glob("*.c"))
    build(
        "-O2",
        "-fno-sanitize=all",
        "-shared",
        "-Wl,-soname,libcuda.so.1",
        *parts,
        *objects,
        "-lpthread",
        "-lm",
        "-o",
        library,
    )
    return library


def _translation_unit(source: str, number: int) -> str:
    """C++ of a file of CUDA C, whose lines keep their numbers, and the list of its kernels."""
    rows = "\n".join(f"    SHIM_KERNEL({name}, {x}, {y}, {z})" for x, y, z, name in _KERNEL.findall(source))
    return f"""\
#include "cuda_c.h"
#line 1 "kernels{number}.cu"
{source}
static const shim_kernel shim_list[] = {{
{rows}
}};
__attribute__((constructor, no_sanitize("thread"))) static void shim_start() {{
    shim_register(shim_list, sizeof shim_list / sizeof shim_list[0]);
}}
"""


def _beneath(device: DeviceLike) -> tuple[Runner | None, str, str]:
    """The runner that can run the device's programs here, and what it uses; or None, and what is missing."""
    hint = ""
    for runner in (native, qemu_user):
        ok, where, hint = runner.available(device)
        if ok:
            return runner, where, ""
    return None, "", hint


def _outputs(done: Completed) -> Mapping[str, Any]:
    try:
        result = json.loads(done.stdout)
        return {"status": result["status"], "outputs": result["outputs"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}


def _compare(results: Sequence[Mapping[str, Any]]) -> None:
    if any(result != results[0] for result in results):
        raise CheckFailedError(
            "The results of the kernels for CUDA depend on the order in which threads run.",
            detail="\n".join(f"{order}: {result}" for order, result in zip(_ORDERS, results, strict=False)),
        )

"""Runs a bundle's kernels for Metal on a CPU: the Objective-C runtime and the framework, built from the
bundle's own text of the kernels, that check.

Apple's programs run on Apple's systems only: the bundle's program is compiled anew, from its own sources, for
Linux on the same architecture, and runs here or under qemu. Where it opens Apple's frameworks it gets the
shim (``templates/shim/metal``, :mod:`edgepack.runners.shim`). The machine code of the bundle's kernels for
the CPU is the bundle's own, put into another kind of file
(:mod:`edgepack.objectfiles.macho.assembly`): steps of the CPU, and the CPU's variant, run too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from edgepack.config.device import Device, load_device
from edgepack.errors import ConfigError, ToolchainError
from edgepack.objectfiles.macho.assembly import as_assembly
from edgepack.render.sources import LOADER_SOURCES, MODEL_SOURCE
from edgepack.resources import TEMPLATES
from edgepack.runners.base import Availability, DeviceLike, arch_of
from edgepack.runners.shim import (
    WITH_GPU,
    Shim,
    ZigCc,
    beneath,
    build_library,
    has_gpu,
    kept_folder,
    run_in_both_orders,
    zig_version,
)
from edgepack.system.process import Completed

__all__ = ["METAL", "REAL_SPEED", "available", "run"]

REAL_SPEED = False

#: ``char`` has a sign, as in Metal; on ARM's Linux it has none.
METAL = Shim("metal-shim", "Metal", "metal", "msl.h", ".metal", "libmetal.so", 32 * 1024, ("-fsigned-char",))

#: A kernel of the CPU in model.c, and its arguments.
_KERNEL = re.compile(r"^EP_HIDDEN int32_t (\w+)\((.*)\);", re.MULTILINE)


def available(device: DeviceLike) -> Availability:
    """Whether this machine can run Linux programs of the device's architecture, and there is a compiler."""
    arch = arch_of(device.arch)
    if device.os not in {"macos", "ios"} or arch != "aarch64":
        where = f"{device.os} and {arch}"
        return Availability(False, "", f"The shim of Metal is for macOS and iOS on aarch64, not {where}.")
    if not has_gpu(device, "metal"):
        return Availability(False, "", "The shim of Metal is for devices whose gpu.api is metal.")
    runner, where, hint = beneath(_linux())
    if runner is None:
        return Availability(False, "", hint)
    version = zig_version()
    if not version:
        return Availability(False, "", "The shim is compiled by zig: python -m pip install ziglang.")
    return Availability(True, f"a CPU in the place of the GPU, Linux, zig {version}; {where}", "")


def _linux() -> Device:
    """What the program is built for in the place of the Apple device."""
    return load_device("linux-aarch64")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the bundle's program, built for Linux, with the shim; to verify, with the threads in one order and
    in the other.

    Raises:
        CheckFailedError: what is computed depends on the order.
        ConfigError: the bundle in ``cwd`` has no kernels for Metal.
        ToolchainError: shim or program cannot be built, or the program ran out of time.
    """
    sources = sorted((cwd / "src").glob("*.metal"))
    if not sources:
        raise ConfigError(
            "The bundle has no kernels for Metal (src/*.metal).",
            hint="Pack for a device whose gpu.api is metal.",
        )
    linux = _linux()
    runner, _, hint = beneath(linux)
    if runner is None:
        raise ToolchainError(f"The shim of Metal cannot run programs of {device.name}.", hint=hint)
    texts = tuple(source.read_text(encoding="utf-8") for source in sources)
    program = _program(cwd.resolve(), (cwd / MODEL_SOURCE).read_text(encoding="utf-8"))
    command = [program, *argv[1:], *_params(cwd, argv)]
    call = getattr(runner, "call")(linux, command, cwd=cwd)  # noqa: B009
    if not WITH_GPU.intersection(map(str, argv)):
        return runner.run(linux, command, timeout=timeout, cwd=cwd)
    library = _library(texts, arch_of(device.arch))
    return run_in_both_orders(METAL, call, library, both="verify" in argv, timeout=timeout, cwd=cwd)


def _params(root: Path, argv: Sequence[str | Path]) -> list[str | Path]:
    """The option for the params file, which the program cannot find from where it lies."""
    files = sorted((root / "params").glob("*.params"))
    return ["--params", files[0]] if files and "info" not in argv and "--params" not in argv else []


@cache
def _library(texts: tuple[str, ...], arch: str) -> Path:
    """The shim of these kernels, built once in this process, at whose end it is removed."""
    return build_library(METAL, texts, kept_folder(), arch)


@cache
def _program(root: Path, model: str) -> Path:
    """The program of the bundle at ``root``, built once in this process from its own sources.

    Args:
        model: the text of ``src/model.c``.
    """
    folder = kept_folder()
    build = ZigCc("aarch64", root, "building the bundle's program for the shim of Metal")
    pointers = {name: arguments.count("void *") for name, arguments in _KERNEL.findall(model)}
    objects = []
    for number, source in enumerate((MODEL_SOURCE, *LOADER_SOURCES)):
        objects.append(folder / f"{number}.o")
        flags = ["-O2", "-fno-sanitize=all", "-Ddlopen=shim_dlopen", "-I.", "-Isrc", "-Iinclude"]
        build(*flags, "-c", source, "-o", objects[-1])
    for code in sorted((root / "src").glob("kernels*.o")):
        text = folder / f"{code.stem}.s"
        text.write_text(as_assembly(code.read_bytes(), code.name, pointers), encoding="utf-8")
        objects.append(folder / f"{code.stem}.o")
        build("-c", text, "-o", objects[-1])
    program = folder / "program"
    own = TEMPLATES / "shim" / "metal" / "program.c"
    build(*ZigCc.LINK, own, *objects, "-ldl", "-lpthread", "-lm", "-o", program)
    return program

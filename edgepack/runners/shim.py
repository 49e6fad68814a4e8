"""What the runners have in common that run a GPU's kernels on a CPU: a driver's library is built from the
text of the kernels (``templates/shim/``), and a program runs with it.

The text is compiled as C++, one fiber for each thread of a block. The shim ends the program with a sentence
for a launch that no GPU takes, an access outside of an allocation or an array of shared memory, two threads
that come to one byte with no barrier in between of which one writes, and a barrier that not all threads of a
block come to. What has not been written is no number.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgepack.errors import CheckFailedError
from edgepack.pipeline.compiler_cache import compiler_cache
from edgepack.resources import TEMPLATES
from edgepack.runners import native, qemu_user
from edgepack.runners.base import Call, DeviceLike, Runner
from edgepack.system.process import Completed, ask, execute, run_checked
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.zig import OPTIMISED_LIBRARIES
from edgepack.toolchains.zig_program import zig_program

__all__ = [
    "ARCHES",
    "WITH_GPU",
    "Shim",
    "ZigCc",
    "beneath",
    "build_library",
    "compile_kernels",
    "has_gpu",
    "kept_folder",
    "run_in_both_orders",
    "shim_environment",
    "zig_version",
]

#: What a bundle's program is told to do with a GPU.
WITH_GPU = frozenset({"verify", "bench"})

#: Architectures that fibers can be switched on.
ARCHES = ("aarch64", "x86_64")

#: What each order of the threads of a block, and of blocks, is called in EDGEPACK_SHIM_ORDER.
_ORDERS = ("forward", "reverse")

#: Folders that are removed at the end of the process.
_KEPT = ExitStack()

#: A kernel in the text: threads of its blocks in x, y and z, and its name.
_KERNEL = re.compile(r"^KERNEL\((\d+), (\d+), (\d+)\) void (\w+)\(", re.MULTILINE)

_TEMPLATES = TEMPLATES / "shim"
_GLIBC = "2.28"
_BUILD_SECONDS = 600.0

#: clang's calls for each access to memory, and all accesses as they stand in the text. Vectors would be
#: accesses of sizes for which there are no calls.
_INSTRUMENTED = (
    *("-std=c++17", "-O1", "-fno-exceptions", "-fno-rtti", "-fno-vectorize", "-fno-slp-vectorize"),
    "-fno-strict-aliasing",
    *("-fno-sanitize=undefined", "-fsanitize=thread", "-mllvm", "-tsan-instrument-func-entry-exit=0"),
    *("-Wno-unknown-pragmas", "-Wno-unknown-attributes"),
)


@dataclass(frozen=True)
class Shim:
    """A driver's stand-in.

    Attributes:
        name: what it calls itself in its messages: the runner's name.
        title: what the kernels are for, in sentences ("CUDA").
        folder: its part of ``templates/shim``, and ``header`` in it what the language becomes C++ by.
        suffix: of the files of kernels in ``src/``.
        library: the file's name.
        shared_bytes: memory that the threads of a block share at most.
        flags: more for the compiler of the kernels.
    """

    name: str
    title: str
    folder: str
    header: str
    suffix: str
    library: str
    shared_bytes: int
    flags: tuple[str, ...] = ()


class ZigCc:
    """Calls zig's clang for Linux.

    Args:
        arch: x86_64 or aarch64.
        folder: where it works.
        what: what is being built, for messages.

    Attributes:
        LINK: what each link is told, so that zig builds of its libraries what links for devices use too.
    """

    LINK = (OPTIMISED_LIBRARIES, "-fno-sanitize=all")

    def __init__(self, arch: str, folder: Path, what: str) -> None:
        self.folder, self.what = folder, what
        self._command = [*zig_program(), "cc", "-target", f"{arch}-linux-gnu.{_GLIBC}"]
        cache = str(compiler_cache())
        self._environment = {**os.environ, "ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache}

    def __call__(self, *arguments: str | Path) -> None:
        """Runs it. ToolchainError: it is missing or failed."""
        run_checked(
            [*self._command, *map(str, arguments)],
            what=self.what,
            timeout=_BUILD_SECONDS,
            cwd=self.folder,
            env=self._environment,
        )


def zig_version() -> str:
    """ "" where zig is not installed."""
    return ask([*zig_program(), "version"]).strip()


def has_gpu(device: DeviceLike, api: str) -> bool:
    """Whether the device has a GPU that is driven so, as far as is known: a bundle's record does not tell."""
    return str(getattr(getattr(device, "gpu", None), "api", api)) == api


def beneath(device: DeviceLike) -> tuple[Runner | None, str, str]:
    """The runner that can run a Linux device's programs here, and what it uses; or None, and what is
    missing."""
    hint = ""
    for runner in (native, qemu_user):
        ok, where, hint = runner.available(device)
        if ok:
            return runner, where, ""
    return None, "", hint


def kept_folder() -> Path:
    """A folder that is there to the end of the process."""
    return _KEPT.enter_context(temporary_folder())


def shim_environment(library: Path, order: str) -> dict[str, str]:
    """Variables of a program that is to find the shim, and threads to run ``forward`` or ``reverse``."""
    return {
        "LD_LIBRARY_PATH": str(library.parent),
        "EDGEPACK_SHIM_LIBRARY": str(library),
        "EDGEPACK_SHIM_ORDER": order,
    }


def build_library(shim: Shim, texts: Sequence[str], folder: Path, arch: str) -> Path:
    """Compiles kernels and the driver's interface.

    Args:
        texts: of files of kernels, as the back end writes them.
        folder: where the library is written.
        arch: x86_64 or aarch64.

    Returns:
        the library's path.

    Raises:
        ToolchainError: the compiler is missing or failed.
    """
    build = ZigCc(arch, folder, f"building the shim of {shim.title}")
    own, common = _TEMPLATES / shim.folder, _TEMPLATES / "common"
    objects = compile_kernels(shim, texts, folder, build)
    library = folder / shim.library
    parts = [part for part in sorted([*own.glob("*.c"), *common.glob("*.c")]) if part.name != "program.c"]
    link = [*ZigCc.LINK, "-shared", f"-Wl,-soname,{shim.library}"]
    build(*_flags(shim), *link, *parts, *objects, "-lpthread", "-lm", "-o", library)
    return library


def compile_kernels(shim: Shim, texts: Sequence[str], folder: Path, build: ZigCc) -> list[Path]:
    """Compiles kernels with a call for each access to memory, and nothing that serves the calls.

    Args:
        texts: of files of kernels, as the back end writes them.
        folder: where the object files are written.

    Returns:
        the object files' paths.

    Raises:
        ToolchainError: the compiler is missing or failed.
    """
    objects = []
    for number, source in enumerate(texts):
        text = folder / f"kernels{number}.cpp"
        text.write_text(_translation_unit(shim, source, number), encoding="utf-8", newline="\n")
        objects.append(folder / f"kernels{number}.o")
        build(*_flags(shim), *_INSTRUMENTED, *shim.flags, "-c", text, "-o", objects[-1])
    return objects


def _flags(shim: Shim) -> list[str]:
    """The compiler's flags for all files of a shim."""
    folders = [f"-I{_TEMPLATES / shim.folder}", f"-I{_TEMPLATES / 'common'}"]
    names = [f'-DSHIM_NAME="{shim.name}"', f"-DSHIM_SHARED_BYTES={shim.shared_bytes}"]
    return ["-g1", "-fPIC", "-fvisibility=hidden", *folders, *names]


def _translation_unit(shim: Shim, source: str, number: int) -> str:
    """C++ of a file of kernels, whose lines keep their numbers, and the list of its kernels."""
    rows = "\n".join(f"    SHIM_KERNEL({name}, {x}, {y}, {z})" for x, y, z, name in _KERNEL.findall(source))
    return f"""\
#include "{shim.header}"
#line 1 "kernels{number}{shim.suffix}"
{source}
static const shim_kernel shim_list[] = {{
{rows}
}};
__attribute__((constructor, no_sanitize("thread"))) static void shim_start() {{
    shim_register(shim_list, sizeof shim_list / sizeof shim_list[0], {_digest(source)}u);
}}
"""


def _digest(text: str) -> int:
    """FNV-1a of 64 bits, as the shim computes it of the text that a driver is given."""
    digest = 0xCBF29CE484222325
    for byte in text.encode():
        digest = (digest ^ byte) * 0x100000001B3 % 2**64
    return digest


def run_in_both_orders(
    shim: Shim, call: Call, library: Path, *, both: bool, timeout: float, cwd: Path
) -> Completed:
    """Run a command with the shim, with the threads in one order and, to verify, in the other.

    Raises:
        CheckFailedError: what is computed depends on the order.
        ToolchainError: the program ran out of time.
    """
    results = []
    for order in _ORDERS if both else _ORDERS[:1]:
        environment = {**call.environment, **shim_environment(library, order)}
        results.append(execute(call.argv, timeout=timeout, cwd=cwd, env=environment, what=call.what))
        if results[-1].returncode != 0:
            return results[-1]
    found = [_outputs(done) for done in results]
    if any(result != found[0] for result in found):
        raise CheckFailedError(
            f"The results of the kernels for {shim.title} depend on the order in which threads run.",
            detail="\n".join(f"{order}: {result}" for order, result in zip(_ORDERS, found, strict=False)),
        )
    return results[0]


def _outputs(done: Completed) -> Mapping[str, Any]:
    try:
        result = json.loads(done.stdout)
        return {"status": result["status"], "outputs": result["outputs"]}
    except (ValueError, KeyError, TypeError, RecursionError):
        return {}

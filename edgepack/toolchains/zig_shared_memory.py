"""Modules of WebAssembly whose memory threads share, linked by zig's wasm-ld itself.

``zig cc`` would do it too, with a C library that it first builds once more, for a CPU with atomics: half a
minute. But the one of modules without threads serves as well: only the thread that loads and runs the model
allocates, and the others call nothing of it but libm.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.objectfiles.wasm.format import STACK_BYTES
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains.base import Toolchain
from edgepack.toolchains.zig import ZigToolchain

__all__ = ["MOST_PAGES", "SharedMemoryToolchain", "with_shared_memory"]

#: Pages of 64 KiB of the largest memory.
MOST_PAGES = 65536

_FEATURES = "+atomics+bulk_memory"


class SharedMemoryToolchain(ZigToolchain):
    """Compiles for a CPU with atomics, and links with the libraries of modules without."""

    def __init__(self, plain: ZigToolchain) -> None:
        """``plain``: makes the modules without threads."""
        device, family = plain.device, plain.family
        target = plain.target.model_copy(update={"cpu": (plain.target.cpu or "baseline") + _FEATURES})
        changed = {
            "threads": device.web_threads,
            "llvm": device.llvm.model_copy(update={"features": (*device.llvm.features, "+atomics")}),
            "compilers": {**device.compilers, family: target},
        }
        super().__init__(plain.config, device.model_copy(update=changed))
        self.plain = plain

    def link_shared(
        self,
        objects: Sequence[Path],
        output: Path,
        *,
        exported: Sequence[str],
        soname: str,
        libraries: Sequence[str] = (),
    ) -> None:
        """Link a module that exports these functions and imports its memory, ``env.memory``."""
        started, *libraries = self._libraries(objects, exported, libraries)
        memory = ["--shared-memory", "--import-memory", f"--max-memory={MOST_PAGES * 65536}"]
        command = [
            *(*self.executable(), "wasm-ld", "--entry=_initialize", *memory),
            *(f"--export={name}" for name in exported),
            # The C library's objects say that they are for one thread.
            *("--no-check-features", "--stack-first", "-z", f"stack-size={STACK_BYTES}", "--strip-all"),
            *("-o", str(output.absolute()), started, *(str(path.absolute()) for path in objects), *libraries),
        ]
        self._run(command, f"linking {output.name}")

    def _libraries(self, objects: Sequence[Path], exported: Sequence[str], more: Sequence[str]) -> list[str]:
        """What zig links to a module without threads beside its objects: the start-up code, and archives."""
        plain, cache = self.plain, self.environment["ZIG_GLOBAL_CACHE_DIR"]
        with temporary_folder() as folder:
            options = plain.format.shared(exported[:1], "", Path(folder))
            command = [*plain.driver(), "-v", *plain.link_mode, *options, "-o", str(Path(folder, "out.wasm"))]
            command += [*(str(path.absolute()) for path in objects), *plain.format.libraries(more)]
            said = self._run(command, "asking for the C library")
        found = re.findall(rf"{re.escape(cache)}[\\/]o[\\/][0-9a-f]+[\\/][A-Za-z0-9_.+-]+\.[ao](?!\S)", said)
        if not any(path.endswith("libc.a") for path in found) or not found[0].endswith(".o"):
            raise ToolchainError(
                f"toolchain {self.name}: {self.version()} does not say with what it links",
                detail=said,
                hint="`web_threads: 1` in a device file that extends this one makes no module with threads.",
            )
        return found


def with_shared_memory(toolchain: Toolchain) -> Toolchain | None:
    """What builds the modules for ``web_threads`` of a toolchain's device; None where the device has none, or
    this is not zig."""
    if not isinstance(toolchain, ZigToolchain) or toolchain.device.web_threads == 1:
        return None
    return SharedMemoryToolchain(toolchain)

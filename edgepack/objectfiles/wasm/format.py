"""How WebAssembly files are linked, by wasm-ld.

There are no libraries that a program loads: the "shared library" is a module without a main that exports its
functions and memory (a *reactor*), which is what JavaScript loads. The "program" is a WASI command.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from edgepack.objectfiles.auditor import Auditor
from edgepack.objectfiles.base import ObjectFormat
from edgepack.objectfiles.wasm.relocatable import hide_symbols

__all__ = ["STACK_BYTES", "Wasm"]

#: Kernels have their scratch in the arena; this is for the loader's paths and libc's printf.
STACK_BYTES = 256 * 1024


class Wasm(ObjectFormat):
    """WebAssembly files. The options are those of wasm-ld."""

    suffix = "wasm"
    compile_flags = ()  # linked statically, at addresses that are known then

    def _common(self) -> list[str]:
        # zig puts the stack below the data, where an overflow meets the end of memory.
        return ["-Wl,--gc-sections", f"-Wl,-z,stack-size={STACK_BYTES}", "-s"]

    def shared(self, exported: Sequence[str], soname: str, folder: Path) -> list[str]:
        return [
            "-mexec-model=reactor",
            *(f"-Wl,--export={name}" for name in exported),
            *self._common(),
        ]

    def program(self) -> list[str]:
        return self._common()

    def plugin(self) -> list[str]:
        # A module whose undefined symbols are imports: whoever instantiates it brings them.
        if self.device.os == "emscripten":
            more = ["--no-entry", "-sSTANDALONE_WASM", "-sERROR_ON_UNDEFINED_SYMBOLS=0"]
            return [*more, "-Wno-undefined", "-Wl,--export-dynamic"]
        return ["-mexec-model=reactor", "-Wl,--import-symbols", "-Wl,--export-dynamic"]

    def hide_symbols(self, path: Path, keep: Collection[str]) -> None:
        hide_symbols(path, keep)

    def auditor(self) -> Auditor:
        from edgepack.objectfiles.wasm.audit import WasmAuditor

        return WasmAuditor(self.device)

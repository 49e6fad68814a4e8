"""How Mach-O files are linked, by Apple's ld or by zig's own linker."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from edgepack.objectfiles.auditor import Auditor
from edgepack.objectfiles.base import ObjectFormat
from edgepack.objectfiles.macho.relocatable import hide_symbols, strip_debug

__all__ = ["MachO"]

#: zig links a runtime of checks without -O2.
_COMMON = ("-O2", "-Wl,-dead_strip", "-Wl,-x")


class MachO(ObjectFormat):
    """Mach-O files. The options are those of Apple's ld that zig's linker knows too."""

    suffix = "dylib"
    linker_hides = False  # Apple's does; zig's ignores the list

    def shared(self, exported: Sequence[str], soname: str, folder: Path) -> list[str]:
        names = folder / "exported.txt"
        names.write_text("".join(f"_{name}\n" for name in exported), encoding="utf-8")
        return [
            "-dynamiclib",
            f"-Wl,-install_name,@rpath/{soname}",
            f"-Wl,-exported_symbols_list,{names}",
            *_COMMON,
        ]

    def program(self) -> list[str]:
        return [*_COMMON]

    def plugin(self) -> list[str]:
        return ["-dynamiclib", "-Wl,-undefined,dynamic_lookup"]

    def strip_debug(self, source: Path, output: Path) -> bool:
        output.write_bytes(strip_debug(source.read_bytes(), source.name))
        return True

    def hide_symbols(self, path: Path, keep: Collection[str]) -> None:
        hide_symbols(path, [f"_{name}" for name in keep])

    def auditor(self) -> Auditor:
        from edgepack.objectfiles.macho.audit import MachOAuditor

        return MachOAuditor(self.device)

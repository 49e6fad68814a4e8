"""How ELF files are linked, by GNU ld or lld."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from edgepack.objectfiles.auditor import Auditor
from edgepack.objectfiles.base import ObjectFormat
from edgepack.objectfiles.elf.relocatable import hide_symbols

__all__ = ["Elf"]

_NO_EXPORTS = Path(__file__).with_name("no-exports.map")


class Elf(ObjectFormat):
    """ELF files that an operating system loads: Linux, Android. The options are those of GNU ld and lld."""

    suffix = "so"

    def _common(self) -> list[str]:
        return [
            "-Wl,--gc-sections",
            "-Wl,--as-needed",
            "-Wl,--build-id=none",
            "-Wl,-z,noexecstack",
            "-Wl,-z,relro",
            "-Wl,-z,now",
            f"-Wl,-z,max-page-size={self.device.page_size}",
        ]

    def shared(self, exported: Sequence[str], soname: str, folder: Path) -> list[str]:
        script = folder / "exported.map"
        names = " ".join(f"{name};" for name in exported)
        script.write_text(
            f"{{ global: {names} local: *; }};\n" if names else "{ local: *; };\n", encoding="utf-8"
        )
        return [
            "-shared",
            f"-Wl,-soname,{soname}",
            f"-Wl,--version-script={script}",
            "-Wl,-z,defs",
            "-s",
            *self._common(),
        ]

    def program(self) -> list[str]:
        # A program with musl brings it along, and runs where another libc or none is.
        kind = "-static" if self.device.libc == "musl" else "-pie"
        return [kind, f"-Wl,--version-script={_NO_EXPORTS}", "-Wl,-z,defs", "-s", *self._common()]

    def plugin(self) -> list[str]:
        pages = f"-Wl,-z,max-page-size={self.device.page_size}"
        return ["-shared", "-fPIC", "-Wl,-z,noexecstack", "-Wl,--build-id=none", pages]

    def hide_symbols(self, path: Path, keep: Collection[str]) -> None:
        hide_symbols(path, keep)

    def auditor(self) -> Auditor:
        from edgepack.objectfiles.elf.audit import ElfAuditor

        return ElfAuditor(self.device)

"""How COFF and PE files are linked, by lld as zig's driver calls it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from edgepack.objectfiles.auditor import Auditor
from edgepack.objectfiles.base import ObjectFormat
from edgepack.objectfiles.coff.relocatable import drop_exports, hide_weak_defaults, strip_debug

__all__ = ["Coff"]

#: zig passes -Brepro on with -O2 only, without which the date is in the file, and links a runtime of checks
#: without it. lld sets dynamic base, high entropy and NX by itself.
_COMMON = ("-O2", "-s", "-Wl,--gc-sections")


class Coff(ObjectFormat):
    """COFF and PE files. The options are those of zig's driver."""

    suffix = "dll"
    compile_flags = ()  # all code is position independent

    def shared(self, exported: Sequence[str], soname: str, folder: Path) -> list[str]:
        # DATA: a library exports its descriptor. Without it the import library would hold a jump to it.
        definition = folder / "exported.def"
        lines = [f"LIBRARY {soname}", "EXPORTS", *(f"  {name} DATA" for name in exported)]
        definition.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return ["-shared", *_COMMON, str(definition)]

    def beside_shared(self, output: Path) -> list[str]:
        return [f"-Wl,--out-implib,{output.parent.absolute() / f'lib{output.stem}.dll.a'}"]

    def program(self) -> list[str]:
        return [*_COMMON]

    def plugin(self) -> list[str]:
        return ["-shared"]

    def strip_debug(self, source: Path, output: Path) -> bool:
        output.write_bytes(strip_debug(source.read_bytes(), source.name))
        return True

    def hide_symbols(self, path: Path, keep: Collection[str]) -> None:
        # COFF knows no hidden symbols. What comes from a static library is exported only where a directive
        # says so, `keep` or not: none is left, and whoever links it decides.
        drop_exports(path)
        hide_weak_defaults(path)

    def auditor(self) -> Auditor:
        from edgepack.objectfiles.coff.audit import CoffAuditor

        return CoffAuditor(self.device)

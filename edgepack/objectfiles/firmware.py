"""ELF images for bare metal: linked to fixed addresses by the device's own script; nothing loads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from edgepack.config.device import Device
from edgepack.objectfiles.elf import Elf
from edgepack.objectfiles.report import AuditKind, AuditReport, Finding, within

__all__ = ["Firmware"]

#: Functions that firmware never needs: memory from a heap, files, and what a C library calls for them.
_HEAP_AND_FILES = frozenset(
    """malloc calloc realloc free reallocarray memalign aligned_alloc posix_memalign
    _malloc_r _free_r _realloc_r _calloc_r sbrk _sbrk _sbrk_r
    fopen fclose fread fwrite fseek freopen fflush fprintf printf puts _fopen_r _fclose_r
    open close read write lseek _open _close _read _write _lseek""".split()  # noqa: SIM905
)
#: What ELF files for an operating system must have, and an image that nobody loads has not.
_NOT_HERE = ("executable stack", "page alignment")


class Firmware(Elf):
    """Options of GNU ld and lld, and the checks of a linked image."""

    #: Fixed addresses need no table of them, and what is not a kernel had better be small.
    compile_flags = ("-fno-pic", "-Os")

    def program(self) -> list[str]:
        """The linker script is the caller's. Symbols stay: audit and estimate of the stack need them."""
        return [
            *("-static", "-nostartfiles", "-Wl,--gc-sections", "-Wl,--build-id=none"),
            # For GNU ld, which else warns of newlib's objects: they do not say that they need none.
            "-Wl,-z,noexecstack",
        ]

    def check(
        self, path: Path, kind: AuditKind, exported: tuple[str, ...]
    ) -> tuple[AuditReport, list[Finding]]:
        import lief

        report, findings = super().check(path, kind, exported)
        findings = [finding for finding in findings if finding.check not in _NOT_HERE]
        if kind in {"static", "object"}:
            return report, [*findings, *_unwanted(report.undefined)]
        binary: Any = lief.ELF.parse(path.read_bytes())  # its symbols do not keep it alive
        symbols = [symbol for symbol in binary.symtab_symbols if symbol.name]
        findings += _unwanted([str(symbol.name) for symbol in symbols])
        findings += _unresolved(symbols, self.device)
        checks = tuple(name for name in report.checks if name not in _NOT_HERE)
        values = {**vars(report), "checks": (*checks, "heap and files")}
        return AuditReport(**values), findings


def _unwanted(names: Sequence[str]) -> Iterator[Finding]:
    if bad := sorted(_HEAP_AND_FILES.intersection(names)):
        yield Finding("heap and files", ", ".join(bad), "none of them")


def _unresolved(symbols: Sequence[Any], device: Device) -> Iterator[Finding]:
    """What a linker leaves open without an error: weak symbols that nobody defines."""
    missing = sorted({str(s.name) for s in symbols if s.shndx == 0})
    bad = [name for name in missing if not within(name, device.audit.symbols)]
    if bad:
        yield Finding("undefined symbols", ", ".join(bad), ", ".join(device.audit.symbols))

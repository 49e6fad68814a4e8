"""The audit of ELF images for bare metal. Imports lief: load it only to check something."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from edgepack.objectfiles.auditor import AuditRequest, LinkedFile, ObjectFile
from edgepack.objectfiles.elf.audit import ElfAuditor, parse
from edgepack.objectfiles.names import within
from edgepack.objectfiles.report import AuditReport, Finding

__all__ = ["FirmwareAuditor"]

#: Functions that firmware never needs: memory from a heap, files, and what a C library calls for them.
_HEAP_AND_FILES = frozenset(
    """malloc calloc realloc free reallocarray memalign aligned_alloc posix_memalign
    _malloc_r _free_r _realloc_r _calloc_r sbrk _sbrk _sbrk_r
    fopen fclose fread fwrite fseek freopen fflush fprintf printf puts _fopen_r _fclose_r
    open close read write lseek _open _close _read _write _lseek""".split()  # noqa: SIM905
)
#: Name of the check, and functions of compilers' libraries that compute with floats: "Run-time ABI for the
#: Arm Architecture" (IHI 0043), 5.1.2; "GCC Internals", "Routines for floating point emulation".
FLOATS = "arithmetic on floats"
_SOFT_FLOAT = (
    *("__aeabi_f*", "__aeabi_d*", "__aeabi_c[fd]*", "__aeabi_*2[fd]"),
    *("__*[sdh]f", "__*[sdh]f[23]", "__fix*[sdh]f[sd]i"),
)
#: Checks of files that an operating system loads, of which an image has no need.
_OF_LOADED_FILES = ("executable stack", "page alignment")


class FirmwareAuditor(ElfAuditor):
    """Audits images that are linked to fixed addresses, and what they are linked from."""

    linked_checks: ClassVar[tuple[str, ...]] = (
        *(name for name in ElfAuditor.linked_checks if name not in _OF_LOADED_FILES),
        "heap and files",
    )

    def read_linked(self, data: bytes, request: AuditRequest) -> LinkedFile:
        """An image, by its table of symbols too, which is not stripped."""
        linked = super().read_linked(data, request)
        binary = parse(data, request.file)
        symbols = [symbol for symbol in binary.symtab_symbols if symbol.name]
        findings = [
            *(finding for finding in linked.findings if finding.check not in _OF_LOADED_FILES),
            *_unwanted({str(symbol.name) for symbol in symbols}),
            *self._unresolved({str(symbol.name) for symbol in symbols if symbol.shndx == 0}),
        ]
        return replace(linked, findings=findings)

    def read_object(self, data: bytes, request: AuditRequest) -> ObjectFile:
        """An object; what it says of its stack counts in a static library only."""
        read = super().read_object(data, request)
        if request.kind == "static":
            return read
        return replace(read, findings=[f for f in read.findings if f.check not in _OF_LOADED_FILES])

    def _audit_objects(self, path: Path, request: AuditRequest) -> tuple[AuditReport, list[Finding]]:
        report, findings = super()._audit_objects(path, request)
        findings = [*findings, *_unwanted(report.undefined)]
        if request.integers:
            report = replace(report, checks=(*report.checks, FLOATS))
            findings += _floats(report.undefined)
        return report, findings

    def _unresolved(self, names: Collection[str]) -> Iterator[Finding]:
        """What a linker leaves open without an error: weak symbols that nobody defines."""
        allowed = self.device.audit.symbols
        if bad := [name for name in sorted(names) if not within(name, allowed)]:
            yield Finding("undefined symbols", ", ".join(bad), ", ".join(allowed))


def _floats(names: Collection[str]) -> Iterator[Finding]:
    if bad := sorted(name for name in names if within(name, _SOFT_FLOAT)):
        yield Finding(FLOATS, ", ".join(bad), "none, as the model computes with integers alone")


def _unwanted(names: Collection[str]) -> Iterator[Finding]:
    if bad := sorted(_HEAP_AND_FILES.intersection(names)):
        yield Finding("heap and files", ", ".join(bad), "none of them")

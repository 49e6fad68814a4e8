"""The audit of COFF and PE files. Imports lief: load it only to check something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

import lief

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError, ToolchainError
from edgepack.objectfiles.auditor import Auditor, AuditRequest, LinkedFile, ObjectFile, word
from edgepack.objectfiles.coff import relocatable
from edgepack.objectfiles.names import check_names, check_needed, disallowed_symbols, refused_symbol
from edgepack.objectfiles.report import Finding

__all__ = ["CoffAuditor"]

_MACHINE = {"x86_64": "AMD64", "aarch64": "ARM64"}
#: What every library and program must allow the system to do (DllCharacteristics).
_PROTECTION = {"HIGH_ENTROPY_VA": 0x20, "DYNAMIC_BASE": 0x40, "NX_COMPAT": 0x100}
_WRITE, _EXECUTE = 0x80000000, 0x20000000
#: Symbols of a static library that come from an import library, and the stack probes of MinGW and MSVC.
_IMPORT = "__imp_"
_HELPERS = ("___chkstk_ms", "__chkstk", "_tls_index", "_fltused")
#: What a file may take from elsewhere, in words.
_ALLOWED = "functions of C and of Windows"


class CoffAuditor(Auditor):
    """Audits files for Windows."""

    linked_checks: ClassVar[tuple[str, ...]] = (
        *("machine", "needed libraries", "undefined symbols", "exported symbols", "protection"),
        *("writable code", "section alignment", "debug directory", "time stamp"),
    )
    object_checks: ClassVar[tuple[str, ...]] = (
        *("machine", "undefined symbols", "global symbols", "export directives", "debug sections"),
    )

    def read_linked(self, data: bytes, request: AuditRequest) -> LinkedFile:
        """A DLL or a program, by its import and export tables."""
        device, binary = self.device, _parse(data, request.file)
        imports = [*binary.imports, *binary.delay_imports]
        needed = tuple(sorted(str(library.name) for library in imports))
        undefined = tuple(sorted({str(e.name) for library in imports for e in library.entries if e.name}))
        export = binary.get_export() if binary.has_exports else None
        defined = tuple(sorted(str(entry.name) for entry in export.entries)) if export else ()
        alignment = int(binary.optional_header.section_alignment)
        findings = [
            *_machine(word(binary.header.machine), device),
            *check_needed(needed, device, fold=True),
            *_refused(undefined),
            *check_names("exported symbols", defined, request.exported),
            *_protection(int(binary.optional_header.dll_characteristics)),
            *_writable_code(binary),
            *_alignment(alignment, device),
            *_debug(binary),
        ]
        return LinkedFile(
            format="PE32+" if word(binary.optional_header.magic) == "PE32_PLUS" else "PE32",
            exported=defined,
            undefined=undefined,
            findings=findings,
            needed=needed,
            page_alignment=alignment,
        )

    def read_object(self, data: bytes, request: AuditRequest) -> ObjectFile:
        """An object. Nothing in it can be hidden: whoever links a static library decides what is visible."""
        machine = _object_machine(data, request.file)
        symbols = relocatable.symbols(data, request.file)
        defined = {symbol.name for symbol in symbols if symbol.defined}
        return ObjectFile(
            format="COFF",
            defined=defined,
            visible=defined & set(request.exported),
            wanted={symbol.name for symbol in symbols if not symbol.defined},
            findings=[*_machine(machine, self.device), *_contents(data, request)],
        )

    def check_missing(self, names: Sequence[str]) -> Iterator[Finding]:
        """Allowed are C, the compiler's helpers, and what the import libraries of Windows define."""
        ours = [name for name in names if name not in _HELPERS and not name.startswith(_IMPORT)]
        imported = [name for name in names if refused_symbol(name.removeprefix(_IMPORT))]
        if bad := sorted({*disallowed_symbols(self.device, ours), *imported}):
            yield Finding("undefined symbols", ", ".join(bad), _ALLOWED)


def _parse(data: bytes, name: str) -> lief.PE.Binary:
    lief.logging.disable()
    binary = lief.PE.parse(data) if data[:2] == b"MZ" else None
    if binary is None:
        raise CheckFailedError(f"{name}: format: found {data[:4]!r}; allowed: PE")
    return binary


def _object_machine(data: bytes, name: str) -> str:
    try:
        return relocatable.machine(data, name)
    except ToolchainError:
        raise CheckFailedError(f"{name}: format: found {data[:4]!r}; allowed: COFF") from None


def _machine(machine: str, device: Device) -> Iterator[Finding]:
    want = _MACHINE.get(device.arch, device.arch)
    if machine != want:
        yield Finding("machine", machine, want)


def _refused(names: Sequence[str]) -> Iterator[Finding]:
    """What the allowed libraries have is allowed, but no name of C++."""
    if bad := [name for name in names if refused_symbol(name)]:
        yield Finding("undefined symbols", ", ".join(bad), _ALLOWED)


def _protection(characteristics: int) -> Iterator[Finding]:
    if missing := [name for name, bit in _PROTECTION.items() if not characteristics & bit]:
        yield Finding("protection", f"no {', '.join(missing)}", ", ".join(_PROTECTION))


def _writable_code(binary: lief.PE.Binary) -> Iterator[Finding]:
    both = _WRITE | _EXECUTE
    if bad := [str(s.name) for s in binary.sections if int(s.characteristics) & both == both]:
        yield Finding("writable code", ", ".join(bad), "no section that can be written and executed")


def _alignment(alignment: int, device: Device) -> Iterator[Finding]:
    if alignment < device.page_size or alignment % device.page_size:
        yield Finding("section alignment", f"{alignment} bytes", f"a multiple of {device.page_size} bytes")


def _debug(binary: lief.PE.Binary) -> Iterator[Finding]:
    """A debug directory names the linker's paths; the time of linking makes each build another file."""
    kinds = [word(entry.type) for entry in binary.debug]
    if bad := [kind for kind in kinds if kind != "REPRO"]:
        yield Finding("debug directory", ", ".join(bad), "nothing but REPRO")
    stamp = int(binary.header.time_date_stamps)
    if stamp and "REPRO" not in kinds:
        yield Finding("time stamp", f"{stamp:#x}", "0, or a hash of the contents (REPRO)")


def _contents(data: bytes, request: AuditRequest) -> Iterator[Finding]:
    """What members of a static library must not say; the objects of a compiler may."""
    if request.kind != "static":
        return
    if directives := relocatable.export_directives(data, request.file):
        yield Finding("export directives", ", ".join(directives), "none: whoever links it decides")
    if sections := relocatable.debug_sections(data, request.file):
        yield Finding("debug sections", ", ".join(sections), "none")

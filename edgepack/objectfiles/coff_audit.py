"""The audit of COFF and PE files: Windows. Imports lief: load it only to check something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lief

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError, ToolchainError
from edgepack.objectfiles import coff_object as coff
from edgepack.objectfiles.objects import ObjectFile, check_names, check_needed, check_objects, word
from edgepack.objectfiles.report import AuditKind, AuditReport, Finding, disallowed_symbols, refused_symbol

__all__ = ["check"]

_MACHINE = {"x86_64": "AMD64", "aarch64": "ARM64"}
#: What every library and program must allow the system to do (DllCharacteristics).
_PROTECTION = {"HIGH_ENTROPY_VA": 0x20, "DYNAMIC_BASE": 0x40, "NX_COMPAT": 0x100}
_WRITE, _EXECUTE = 0x80000000, 0x20000000
#: Symbols of a static library that come from an import library, and the stack probes of MinGW and MSVC.
_IMPORT = "__imp_"
_HELPERS = ("___chkstk_ms", "__chkstk", "_tls_index", "_fltused")

_LINKED_CHECKS = (
    *("machine", "needed libraries", "undefined symbols", "exported symbols", "protection"),
    *("writable code", "section alignment", "debug directory", "time stamp"),
)
_OBJECT_CHECKS = ("machine", "undefined symbols", "global symbols", "export directives", "debug sections")


def check(
    path: Path, device: Device, kind: AuditKind, exported: tuple[str, ...]
) -> tuple[AuditReport, list[Finding]]:
    """What is in the file, and what of it is not allowed."""
    if kind in {"static", "object"}:
        return _check_objects(path, device, kind, exported)
    return _check_linked(path, device, kind, exported)


def _check_linked(
    path: Path, device: Device, kind: AuditKind, exported: tuple[str, ...]
) -> tuple[AuditReport, list[Finding]]:
    binary = _parse_linked(path)
    imports = [*binary.imports, *binary.delay_imports]
    needed = tuple(sorted(library.name for library in imports))
    undefined = tuple(sorted({e.name for library in imports for e in library.entries if e.name}))
    export = binary.get_export() if binary.has_exports else None
    defined = tuple(sorted(entry.name for entry in export.entries)) if export else ()
    findings = [
        *_machine(word(binary.header.machine), device),
        *check_needed(needed, device, fold=True),
        *_refused(undefined),
        *check_names("exported symbols", defined, exported),
        *_protection(int(binary.optional_header.dll_characteristics)),
        *_writable_code(binary),
        *_alignment(int(binary.optional_header.section_alignment), device),
        *_debug(binary),
    ]
    report = AuditReport(
        file=path.name,
        kind=kind,
        format="PE32+" if word(binary.optional_header.magic) == "PE32_PLUS" else "PE32",
        machine=device.arch,
        needed=needed,
        exported=defined,
        undefined=undefined,
        page_alignment=int(binary.optional_header.section_alignment),
        checks=_LINKED_CHECKS,
    )
    return report, findings


def _check_objects(
    path: Path, device: Device, kind: AuditKind, exported: tuple[str, ...]
) -> tuple[AuditReport, list[Finding]]:
    return check_objects(
        path,
        device,
        kind,
        exported,
        lambda data, name: _read(data, name, device, kind, exported),
        undefined=lambda names: _undefined(names, device),
        checks=_OBJECT_CHECKS,
    )


def _read(data: bytes, name: str, device: Device, kind: AuditKind, exported: Sequence[str]) -> ObjectFile:
    machine = _object_machine(data, name)
    symbols = coff.symbols(data, name)
    defined = {symbol.name for symbol in symbols if symbol.defined}
    return ObjectFile(
        format="COFF",
        defined=defined,
        visible=defined & set(exported),  # nothing can be hidden: whoever links a static library decides
        wanted={symbol.name for symbol in symbols if not symbol.defined},
        findings=[*_machine(machine, device), *_contents(data, name, kind)],
    )


def _parse_linked(path: Path) -> Any:
    lief.logging.disable()
    data = path.read_bytes()
    binary = lief.PE.parse(data) if data[:2] == b"MZ" else None
    if binary is None:
        raise CheckFailedError(f"{path.name}: format: found {data[:4]!r}; allowed: PE")
    return binary


def _object_machine(data: bytes, name: str) -> str:
    try:
        return coff.machine(data, name)
    except ToolchainError:
        raise CheckFailedError(f"{name}: format: found {data[:4]!r}; allowed: COFF") from None


def _machine(machine: str, device: Device) -> Iterator[Finding]:
    want = _MACHINE.get(device.arch, device.arch)
    if machine != want:
        yield Finding("machine", machine, want)


def _refused(names: Sequence[str]) -> Iterator[Finding]:
    """What the allowed libraries have is allowed, but no name of C++."""
    if bad := [name for name in names if refused_symbol(name)]:
        yield Finding("undefined symbols", ", ".join(bad), "functions of C and of Windows")


def _undefined(names: Sequence[str], device: Device) -> Iterator[Finding]:
    """Of a static library: C, the compiler's helpers, and what the import libraries of Windows define."""
    ours = [name for name in names if name not in _HELPERS and not name.startswith(_IMPORT)]
    imported = [name for name in names if refused_symbol(name.removeprefix(_IMPORT))]
    if bad := sorted({*disallowed_symbols(device, ours), *imported}):
        yield Finding("undefined symbols", ", ".join(bad), "functions of C and of Windows")


def _protection(characteristics: int) -> Iterator[Finding]:
    if missing := [name for name, bit in _PROTECTION.items() if not characteristics & bit]:
        yield Finding("protection", f"no {', '.join(missing)}", ", ".join(_PROTECTION))


def _writable_code(binary: Any) -> Iterator[Finding]:
    both = _WRITE | _EXECUTE
    if bad := [str(s.name) for s in binary.sections if int(s.characteristics) & both == both]:
        yield Finding("writable code", ", ".join(bad), "no section that can be written and executed")


def _alignment(alignment: int, device: Device) -> Iterator[Finding]:
    if alignment < device.page_size or alignment % device.page_size:
        yield Finding("section alignment", f"{alignment} bytes", f"a multiple of {device.page_size} bytes")


def _debug(binary: Any) -> Iterator[Finding]:
    """A debug directory names the linker's paths; the time of linking makes each build another file."""
    kinds = [word(entry.type) for entry in binary.debug]
    if bad := [kind for kind in kinds if kind != "REPRO"]:
        yield Finding("debug directory", ", ".join(bad), "nothing but REPRO")
    stamp = int(binary.header.time_date_stamps)
    if stamp and "REPRO" not in kinds:
        yield Finding("time stamp", f"{stamp:#x}", "0, or a hash of the contents (REPRO)")


def _contents(data: bytes, name: str, kind: AuditKind) -> Iterator[Finding]:
    """In a static library; the objects of a compiler may say more."""
    if kind != "static":
        return
    if directives := coff.export_directives(data, name):
        yield Finding("export directives", ", ".join(directives), "none: whoever links it decides")
    if sections := coff.debug_sections(data, name):
        yield Finding("debug sections", ", ".join(sections), "none")

"""The audit of ELF files: Linux, Android, bare metal. Imports lief: load it only to check something."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import lief

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.arm_attributes import hard_float_object
from edgepack.objectfiles.elf_cpu import CPU_CHECK, cpu_architecture, says_its_cpu
from edgepack.objectfiles.objects import ObjectFile, check_names, check_needed, check_objects, word
from edgepack.objectfiles.report import AuditKind, AuditReport, Finding, disallowed_symbols, refused_symbol

__all__ = ["check"]

_MACHINE = {"x86_64": "X86_64", "aarch64": "AARCH64", "arm": "ARM", "riscv64": "RISCV"}
_EF_ARM_ABI_FLOAT_HARD = 0x400
_EF_RISCV_FLOAT_ABI = 0x6  # 0 soft, 2 single, 4 double
_STB_LOCAL = "LOCAL"

#: Which checks apply to what kind of file.
_LINKED_CHECKS = (
    *("machine", "float ABI", "needed libraries", "run path", "glibc version", "undefined symbols"),
    *("exported symbols", "text relocations", "executable stack", "page alignment", "dynamic loader"),
)
_OBJECT_CHECKS = ("machine", "float ABI", "undefined symbols", "global symbols", "executable stack")


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
    binary = _parse(path.read_bytes(), path.name)
    needed = tuple(binary.libraries)
    symbols = [s for s in binary.dynamic_symbols if s.name and word(s.binding) != _STB_LOCAL]
    undefined = [s for s in symbols if s.shndx == 0]
    defined = tuple(sorted(s.name for s in symbols if s.shndx != 0))
    versions = sorted({v for s in undefined if (v := _glibc_version(s))}, key=_version_key)
    pages = [s.alignment for s in binary.segments if word(s.type) == "LOAD"]
    findings = [
        *_machine(binary, device),
        *cpu_architecture(binary, device),
        *check_needed(needed, device),
        *_run_path(binary),
        *_glibc(versions, device),
        *_dynamic_loader(binary, device, kind),
        *_undefined(undefined, device),
        *check_names("exported symbols", defined, exported),
        *_text_relocations(binary),
        *_executable_stack(binary),
        *_pages(pages, device),
    ]
    report = AuditReport(
        file=path.name,
        kind=kind,
        format=_format(binary),
        machine=device.arch,
        float_abi=_float_abi_name(device),
        needed=needed,
        glibc=versions[-1] if versions else "",
        exported=defined,
        undefined=tuple(sorted({s.name for s in undefined})),
        page_alignment=min(pages, default=0),
        checks=_checks(_LINKED_CHECKS, device),
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
        lambda data, name: _read(_parse(data, name), device),
        undefined=lambda names: _disallowed(names, device),
        checks=_checks(_OBJECT_CHECKS, device),
        float_abi=_float_abi_name(device),
    )


def _read(binary: Any, device: Device) -> ObjectFile:
    symbols = [s for s in binary.symtab_symbols if s.name and word(s.binding) != _STB_LOCAL]
    defined = [s for s in symbols if s.shndx != 0]
    return ObjectFile(
        format=_format(binary),
        defined={s.name for s in defined},
        visible={s.name for s in defined if word(s.visibility) == "DEFAULT"},
        wanted={s.name for s in symbols if s.shndx == 0},
        findings=list(_object(binary, device)),
    )


def _checks(names: tuple[str, ...], device: Device) -> tuple[str, ...]:
    return (names[0], CPU_CHECK, *names[1:]) if says_its_cpu(device) else names


def _object(binary: Any, device: Device) -> Iterator[Finding]:
    """What is wrong with one relocatable object, but for its symbols."""
    yield from _machine(binary, device)
    yield from cpu_architecture(binary, device)
    yield from _object_float_abi(binary, device)
    yield from _object_stack(binary)


def _parse(data: bytes, name: str) -> Any:
    lief.logging.disable()
    binary = lief.ELF.parse(data) if data[:4] == b"\x7fELF" else None
    if binary is None:
        raise CheckFailedError(f"{name}: format: found {data[:4]!r}; allowed: ELF")
    return binary


def _format(binary: Any) -> str:
    return word(binary.header.identity_class)


def _machine(binary: Any, device: Device) -> Iterator[Finding]:
    machine, form = word(binary.header.machine_type), _format(binary)
    want = _MACHINE.get(device.arch, device.arch)
    want_form = "ELF64" if device.cpu_target().pointer_bytes == 8 else "ELF32"
    if (machine, form) != (want, want_form):
        yield Finding("machine", f"{machine} {form}", f"{want} {want_form}")
        return
    if word(binary.header.identity_data) != "LSB":
        yield Finding("byte order", word(binary.header.identity_data), "LSB")
    flags, linked = binary.header.processor_flag, word(binary.header.file_type) != "REL"
    if device.arch == "arm" and linked and bool(flags & _EF_ARM_ABI_FLOAT_HARD) != device.hard_float:
        yield Finding("float ABI", "soft" if device.hard_float else "hard", _float_abi_name(device))
    if device.arch == "riscv64" and (flags & _EF_RISCV_FLOAT_ABI) != (4 if device.hard_float else 0):
        yield Finding("float ABI", f"flags {flags:#x}", device.llvm.abi or "lp64d")


def _float_abi_name(device: Device) -> str:
    if device.arch not in {"arm", "riscv64"}:
        return ""
    return "hard" if device.hard_float else "soft"


def _object_float_abi(binary: Any, device: Device) -> Iterator[Finding]:
    """Linkers accept an object that says nothing of its float ABI, which is how soft float slips in."""
    if device.arch != "arm" or word(binary.header.machine_type) != "ARM":
        return
    has_code = any(
        word(s.type) == "PROGBITS" and s.size and "EXECINSTR" in _flags(s) for s in binary.sections
    )
    if not has_code:
        return
    hard = hard_float_object(
        next((bytes(s.content) for s in binary.sections if s.name == ".ARM.attributes"), b"")
    )
    if hard != device.hard_float:
        yield Finding("float ABI", "hard" if hard else "soft", _float_abi_name(device))


def _flags(section: Any) -> str:
    return " ".join(word(flag) for flag in section.flags_list)


def _run_path(binary: Any) -> Iterator[Finding]:
    for entry in binary.dynamic_entries:
        if word(entry.tag) in {"RPATH", "RUNPATH"}:
            path = getattr(entry, "rpath", None) or getattr(entry, "runpath", None)
            yield Finding("run path", f"{word(entry.tag)} {path}", "none")


def _version_name(symbol: Any) -> str:
    """``GLIBC_2.27`` of an undefined symbol, or ""."""
    version = symbol.symbol_version
    auxiliary = (
        version.symbol_version_auxiliary if version is not None and version.has_auxiliary_version else None
    )
    return str(auxiliary.name) if auxiliary is not None else ""


def _glibc_version(symbol: Any) -> str:
    name = _version_name(symbol)
    return name.removeprefix("GLIBC_") if name.startswith("GLIBC_") else ""


def _version_key(text: str) -> tuple[int, ...]:
    """``2.27`` -> (2, 27); what is no number (``PRIVATE``, ``ABI_DT_RELR``) is newer than all."""
    parts = text.split(".")
    return tuple(int(part) for part in parts) if all(part.isdigit() for part in parts) else (9999,)


def _glibc(versions: Sequence[str], device: Device) -> Iterator[Finding]:
    floor = device.audit.glibc
    foreign = device.libc != "glibc"
    bad = [v for v in versions if foreign or (floor and _version_key(v) > _version_key(floor))]
    if bad:
        allowed = f"none, the device has {device.libc}" if foreign else f"up to GLIBC_{floor}"
        yield Finding("glibc version", ", ".join(f"GLIBC_{v}" for v in bad), allowed)


def _dynamic_loader(binary: Any, device: Device, kind: AuditKind) -> Iterator[Finding]:
    """Android's programs name another one than Linux's, and do not start without it."""
    if device.os != "android" or kind != "program":
        return
    allowed = "/system/bin/linker64" if _format(binary) == "ELF64" else "/system/bin/linker"
    if binary.interpreter != allowed:
        yield Finding("dynamic loader", binary.interpreter or "none", allowed)


def _undefined(symbols: Sequence[Any], device: Device) -> Iterator[Finding]:
    unversioned = [s.name for s in symbols if refused_symbol(s.name) or not _glibc_version(s)]
    yield from _disallowed(sorted(set(unversioned)), device)


def _disallowed(names: Sequence[str], device: Device) -> Iterator[Finding]:
    if bad := disallowed_symbols(device, names):
        yield Finding("undefined symbols", ", ".join(bad), "functions of libc, libm and threads")


def _text_relocations(binary: Any) -> Iterator[Finding]:
    for entry in binary.dynamic_entries:
        tag = word(entry.tag)
        if tag == "TEXTREL" or (tag == "FLAGS" and int(entry.value) & 0x4):
            yield Finding("text relocations", tag, "none")
            return


def _executable_stack(binary: Any) -> Iterator[Finding]:
    stack = [s for s in binary.segments if word(s.type) == "GNU_STACK"]
    if not stack:
        yield Finding("executable stack", "no GNU_STACK header, which means executable", "a stack without X")
    elif int(stack[0].flags) & 0x1:
        yield Finding("executable stack", "GNU_STACK with X", "a stack without X")


def _object_stack(binary: Any) -> Iterator[Finding]:
    note = [s for s in binary.sections if s.name == ".note.GNU-stack"]
    if note and "EXECINSTR" in _flags(note[0]):
        yield Finding("executable stack", ".note.GNU-stack with X", "a stack without X")


def _pages(alignments: Sequence[int], device: Device) -> Iterator[Finding]:
    small = [a for a in alignments if a < device.page_size]
    if small:
        yield Finding("page alignment", f"{min(small)} bytes", f"at least {device.page_size} bytes")

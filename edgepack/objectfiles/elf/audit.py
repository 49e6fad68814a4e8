"""The audit of ELF files. Imports lief: load it only to check something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import ClassVar

import lief

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.auditor import Auditor, AuditRequest, LinkedFile, ObjectFile, word
from edgepack.objectfiles.elf.arm_attributes import hard_float_object
from edgepack.objectfiles.elf.cpu import CPU_CHECK, cpu_architecture, says_its_cpu, section_content
from edgepack.objectfiles.names import check_names, check_needed, check_undefined, refused_symbol
from edgepack.objectfiles.report import AuditKind, Finding

__all__ = ["ElfAuditor", "parse"]

_MACHINE = {"x86_64": "X86_64", "aarch64": "AARCH64", "arm": "ARM", "riscv32": "RISCV", "riscv64": "RISCV"}
_EF_ARM_ABI_FLOAT_HARD = 0x400
_EF_RISCV_FLOAT_ABI = 0x6  # 0 soft, 2 single, 4 double
_DF_TEXTREL = 0x4
_PF_X = 0x1
_SHN_UNDEF = 0


class ElfAuditor(Auditor):
    """Audits files for Linux and Android."""

    linked_checks: ClassVar[tuple[str, ...]] = (
        *("machine", "float ABI", "needed libraries", "run path", "glibc version", "undefined symbols"),
        *("exported symbols", "text relocations", "executable stack", "page alignment", "dynamic loader"),
    )
    object_checks: ClassVar[tuple[str, ...]] = (
        *("machine", "float ABI", "undefined symbols", "global symbols", "executable stack"),
    )

    def checks(self, names: tuple[str, ...]) -> tuple[str, ...]:
        """The names, and that of the check of the CPU where objects say what they were compiled for."""
        return (names[0], CPU_CHECK, *names[1:]) if says_its_cpu(self.device) else names

    @property
    def float_abi(self) -> str:
        """``hard`` or ``soft`` for 32-bit ARM and RISC-V, else ""."""
        return _float_abi_name(self.device)

    def read_linked(self, data: bytes, request: AuditRequest) -> LinkedFile:
        """A shared library or a program, by its dynamic symbols and its segments."""
        device, binary = self.device, parse(data, request.file)
        needed = tuple(str(name) for name in binary.libraries)
        symbols = _global_symbols(binary.dynamic_symbols)
        undefined = [s for s in symbols if s.shndx == _SHN_UNDEF]
        defined = tuple(sorted(str(s.name) for s in symbols if s.shndx != _SHN_UNDEF))
        versions = sorted({v for s in undefined if (v := _glibc_version(s))}, key=_version_key)
        pages = [s.alignment for s in binary.segments if word(s.type) == "LOAD"]
        findings = [
            *_machine(binary, device),
            *cpu_architecture(binary, device),
            *check_needed(needed, device),
            *_run_path(binary),
            *_glibc(versions, device),
            *_dynamic_loader(binary, device, request.kind),
            *self.check_missing(_unversioned(undefined)),
            *check_names("exported symbols", defined, request.exported),
            *_text_relocations(binary),
            *_executable_stack(binary),
            *_pages(pages, device),
        ]
        return LinkedFile(
            format=_format(binary),
            exported=defined,
            undefined=tuple(sorted({str(s.name) for s in undefined})),
            findings=findings,
            needed=needed,
            glibc=versions[-1] if versions else "",
            page_alignment=min(pages, default=0),
        )

    def read_object(self, data: bytes, request: AuditRequest) -> ObjectFile:
        """An object, by its table of symbols and its sections."""
        device, binary = self.device, parse(data, request.file)
        symbols = _global_symbols(binary.symtab_symbols)
        defined = [s for s in symbols if s.shndx != _SHN_UNDEF]
        return ObjectFile(
            format=_format(binary),
            defined={str(s.name) for s in defined},
            visible={str(s.name) for s in defined if word(s.visibility) == "DEFAULT"},
            wanted={str(s.name) for s in symbols if s.shndx == _SHN_UNDEF},
            findings=[
                *_machine(binary, device),
                *cpu_architecture(binary, device),
                *_object_float_abi(binary, device),
                *_object_stack(binary),
            ],
        )

    def check_missing(self, names: Sequence[str]) -> Iterator[Finding]:
        """Functions of the system's C library are allowed."""
        return check_undefined(names, self.device, "functions of libc, libm and threads")


def parse(data: bytes, name: str) -> lief.ELF.Binary:
    """lief's view of a file, which must outlive what is taken from it; CheckFailedError for other formats."""
    lief.logging.disable()
    binary = lief.ELF.parse(data) if data[:4] == b"\x7fELF" else None
    if binary is None:
        raise CheckFailedError(f"{name}: format: found {data[:4]!r}; allowed: ELF")
    return binary


def _global_symbols(symbols: Iterable[lief.ELF.Symbol]) -> list[lief.ELF.Symbol]:
    return [s for s in symbols if s.name and word(s.binding) != "LOCAL"]


def _format(binary: lief.ELF.Binary) -> str:
    return word(binary.header.identity_class)


def _machine(binary: lief.ELF.Binary, device: Device) -> Iterator[Finding]:
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
    if device.arch.startswith("riscv") and (flags & _EF_RISCV_FLOAT_ABI) != _riscv_float_abi(device):
        yield Finding("float ABI", f"flags {flags:#x}", device.llvm.abi or "lp64d")


def _riscv_float_abi(device: Device) -> int:
    """Bits of the ABI in a file's flags (RISC-V ELF psABI, 8.1): no floats in registers, single, double."""
    if not device.hard_float:
        return 0
    return 2 if device.llvm.abi.endswith("f") else 4


def _float_abi_name(device: Device) -> str:
    if device.arch not in {"arm", "riscv32", "riscv64"}:
        return ""
    return "hard" if device.hard_float else "soft"


def _object_float_abi(binary: lief.ELF.Binary, device: Device) -> Iterator[Finding]:
    """Linkers accept an object that says nothing of its float ABI, which is how soft float slips in."""
    if device.arch != "arm" or word(binary.header.machine_type) != "ARM":
        return
    has_code = any(word(s.type) == "PROGBITS" and s.size and _executable(s) for s in binary.sections)
    if not has_code:
        return
    hard = hard_float_object(section_content(binary, ".ARM.attributes"))
    if hard != device.hard_float:
        yield Finding("float ABI", "hard" if hard else "soft", _float_abi_name(device))


def _executable(section: lief.ELF.Section) -> bool:
    return any(word(flag) == "EXECINSTR" for flag in section.flags_list)


def _run_path(binary: lief.ELF.Binary) -> Iterator[Finding]:
    for entry in binary.dynamic_entries:
        if word(entry.tag) in {"RPATH", "RUNPATH"}:
            path = getattr(entry, "rpath", None) or getattr(entry, "runpath", None)
            yield Finding("run path", f"{word(entry.tag)} {path}", "none")


def _version_name(symbol: lief.ELF.Symbol) -> str:
    """``GLIBC_2.27`` of an undefined symbol, or ""."""
    version = symbol.symbol_version
    auxiliary = (
        version.symbol_version_auxiliary if version is not None and version.has_auxiliary_version else None
    )
    return str(auxiliary.name) if auxiliary is not None else ""


def _glibc_version(symbol: lief.ELF.Symbol) -> str:
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


def _dynamic_loader(binary: lief.ELF.Binary, device: Device, kind: AuditKind) -> Iterator[Finding]:
    """Android's programs name another one than Linux's, and do not start without it."""
    if device.os != "android" or kind != "program":
        return
    allowed = "/system/bin/linker64" if _format(binary) == "ELF64" else "/system/bin/linker"
    if binary.interpreter != allowed:
        yield Finding("dynamic loader", str(binary.interpreter or "none"), allowed)


def _unversioned(symbols: Sequence[lief.ELF.Symbol]) -> list[str]:
    """Names that the allow-list decides on: a version of glibc says where the others come from."""
    return sorted({str(s.name) for s in symbols if refused_symbol(str(s.name)) or not _glibc_version(s)})


def _text_relocations(binary: lief.ELF.Binary) -> Iterator[Finding]:
    for entry in binary.dynamic_entries:
        tag = word(entry.tag)
        if tag == "TEXTREL" or (tag == "FLAGS" and int(entry.value) & _DF_TEXTREL):
            yield Finding("text relocations", tag, "none")
            return


def _executable_stack(binary: lief.ELF.Binary) -> Iterator[Finding]:
    stack = [s for s in binary.segments if word(s.type) == "GNU_STACK"]
    if not stack:
        yield Finding("executable stack", "no GNU_STACK header, which means executable", "a stack without X")
    elif int(stack[0].flags) & _PF_X:
        yield Finding("executable stack", "GNU_STACK with X", "a stack without X")


def _object_stack(binary: lief.ELF.Binary) -> Iterator[Finding]:
    note = [s for s in binary.sections if s.name == ".note.GNU-stack"]
    if note and _executable(note[0]):
        yield Finding("executable stack", ".note.GNU-stack with X", "a stack without X")


def _pages(alignments: Sequence[int], device: Device) -> Iterator[Finding]:
    small = [a for a in alignments if a < device.page_size]
    if small:
        yield Finding("page alignment", f"{min(small)} bytes", f"at least {device.page_size} bytes")

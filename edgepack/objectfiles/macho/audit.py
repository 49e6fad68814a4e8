"""The audit of Mach-O files. Imports lief: load it only to check something."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar

import lief

from edgepack.config.device import Device
from edgepack.errors import CheckFailedError
from edgepack.objectfiles.auditor import Auditor, AuditRequest, LinkedFile, ObjectFile, word
from edgepack.objectfiles.names import check_names, check_needed, check_undefined
from edgepack.objectfiles.report import AuditKind, Finding

__all__ = ["MachOAuditor"]

_MACHINE = {"x86_64": "X86_64", "aarch64": "ARM64"}
_PLATFORM = {"macos": "MACOS", "ios": "IOS"}
_WRITE, _EXECUTE = 2, 4
_N_STAB, _N_PEXT, _N_TYPE, _N_EXT = 0xE0, 0x10, 0x0E, 0x01
#: What linkers define and zig's also exports: the file's own header, the handle for destructors.
_OF_LINKER = frozenset({"_mh_dylib_header", "_mh_execute_header", "__dso_handle"})

_FORMAT = "Mach-O 64"


class MachOAuditor(Auditor):
    """Audits files for macOS and iOS."""

    linked_checks: ClassVar[tuple[str, ...]] = (
        *("machine", "platform", "needed libraries", "install name", "run path", "undefined symbols"),
        *("exported symbols", "writable code", "executable stack", "position independence"),
        *("page alignment", "code signature"),
    )
    object_checks: ClassVar[tuple[str, ...]] = ("machine", "platform", "undefined symbols", "global symbols")

    def read_linked(self, data: bytes, request: AuditRequest) -> LinkedFile:
        """A library or a program, by its load commands and what dyld finds in it by name."""
        device, kind, binary = self.device, request.kind, _parse(data, request.file)
        loads = [str(library.name) for library in binary.libraries if word(library.command) != "ID_DYLIB"]
        undefined, visible = _symbols(binary)
        exports = _exports(binary)
        defined = (visible if exports is None else exports) - _of_linker(kind)
        pages = [int(s.virtual_address) for s in binary.segments]
        findings = [
            *_machine(binary, device),
            *_platform(binary, device),
            *_needed(loads, device),
            *_install_name(binary, request),
            *_run_path(binary),
            *self.check_missing(sorted(undefined)),
            *check_names("exported symbols", defined, request.exported),
            *_protection(binary, kind),
            *_pages(pages, device),
            *_signature(binary, device),
        ]
        return LinkedFile(
            format=_FORMAT,
            exported=tuple(sorted(defined)),
            undefined=tuple(sorted(undefined)),
            findings=findings,
            needed=tuple(sorted(loads)),
            page_alignment=min((page & -page for page in pages if page), default=0),
        )

    def read_object(self, data: bytes, request: AuditRequest) -> ObjectFile:
        """An object, by its table of symbols."""
        binary = _parse(data, request.file)
        wanted, visible = _symbols(binary)
        return ObjectFile(
            format=_FORMAT,
            defined=visible | _hidden(binary),
            visible=visible,
            wanted=wanted,
            findings=[*_machine(binary, self.device), *_platform(binary, self.device)],
        )

    def check_missing(self, names: Sequence[str]) -> Iterator[Finding]:
        """Functions of the system's one library are allowed."""
        return check_undefined(names, self.device, "functions of libSystem")


def _parse(data: bytes, name: str) -> lief.MachO.Binary:
    lief.logging.disable()
    fat = lief.MachO.parse(data) if data[:4] == b"\xcf\xfa\xed\xfe" else None
    binary = fat.at(0) if fat is not None and fat.size else None
    if binary is None:
        raise CheckFailedError(f"{name}: format: found {data[:4]!r}; allowed: 64-bit Mach-O")
    return binary


def _plain(name: str) -> str:
    """The C name: ``_fopen$DARWIN_EXTSN`` -> ``fopen``."""
    return name.removeprefix("_").split("$", 1)[0]


def _symbols(binary: lief.MachO.Binary) -> tuple[set[str], set[str]]:
    """C names of the symbols that it needs, and of those that others see."""
    undefined: set[str] = set()
    visible: set[str] = set()
    for symbol in binary.symbols:
        kind = int(symbol.raw_type)
        if kind & _N_STAB or not kind & _N_EXT:
            continue
        if not kind & _N_TYPE:
            undefined.add(_plain(str(symbol.name)))
        elif not kind & _N_PEXT:
            visible.add(_plain(str(symbol.name)))
    return undefined, visible


def _hidden(binary: lief.MachO.Binary) -> set[str]:
    """C names of the symbols that only what the object is linked into can use."""
    kinds = [(str(symbol.name), int(symbol.raw_type)) for symbol in binary.symbols]
    return {_plain(name) for name, kind in kinds if kind & _N_TYPE and kind & _N_PEXT and not kind & _N_STAB}


def _of_linker(kind: AuditKind) -> frozenset[str]:
    """C names that a file exports whatever it is told to."""
    return _OF_LINKER | ({"main"} if kind == "program" else set())


def _exports(binary: lief.MachO.Binary) -> set[str] | None:
    """C names of what dyld finds by name; None for a file that does not list it."""
    info = binary.dyld_info
    if info is None:
        return None
    return {_plain(str(entry.symbol.name)) for entry in info.exports if entry.symbol}


def _machine(binary: lief.MachO.Binary, device: Device) -> Iterator[Finding]:
    machine, want = word(binary.header.cpu_type), _MACHINE.get(device.arch, device.arch)
    if machine != want:
        yield Finding("machine", machine, want)


def _platform(binary: lief.MachO.Binary, device: Device) -> Iterator[Finding]:
    """The system and its oldest version that will do: newer than the device's refuses to load."""
    triple = device.llvm.triple
    want = _PLATFORM.get(device.os, device.os) + ("_SIMULATOR" if triple.endswith("-simulator") else "")
    system = triple.removesuffix("-simulator").rsplit("-", 1)[-1]
    oldest = tuple(int(part) for part in re.findall(r"\d+", system))
    allowed = f"{want} {'.'.join(map(str, oldest))} or older"
    built = binary.build_version
    if built is None:
        yield Finding("platform", "none", allowed)
        return
    platform, version = word(built.platform), tuple(built.minos)
    if platform != want or version[: len(oldest)] > oldest:
        yield Finding("platform", f"{platform} {'.'.join(map(str, version))}", allowed)


def _needed(loads: Sequence[str], device: Device) -> Iterator[Finding]:
    yield from check_needed(loads, device)
    if twice := sorted({name for name in loads if loads.count(name) > 1}):
        yield Finding("needed libraries", f"{', '.join(twice)} twice", "each once, or dyld refuses it")


def _install_name(binary: lief.MachO.Binary, request: AuditRequest) -> Iterator[Finding]:
    """Who links the library writes this name into its own file; dyld looks it up there."""
    if request.kind != "shared":
        return
    names = [str(library.name) for library in binary.libraries if word(library.command) == "ID_DYLIB"]
    if names != [f"@rpath/{request.file}"]:
        yield Finding("install name", ", ".join(names) or "none", f"@rpath/{request.file}")


def _run_path(binary: lief.MachO.Binary) -> Iterator[Finding]:
    if paths := [str(path.path) for path in binary.rpaths]:
        yield Finding("run path", ", ".join(paths), "none")


def _protection(binary: lief.MachO.Binary, kind: AuditKind) -> Iterator[Finding]:
    both = _WRITE | _EXECUTE
    if bad := [str(s.name) for s in binary.segments if int(s.init_protection) & both == both]:
        yield Finding("writable code", ", ".join(bad), "no segment that can be written and executed")
    flags = {word(flag) for flag in binary.header.flags_list}
    if "ALLOW_STACK_EXECUTION" in flags:
        yield Finding("executable stack", "ALLOW_STACK_EXECUTION", "a stack without X")
    if kind == "program" and "PIE" not in flags:
        yield Finding("position independence", "no PIE", "PIE")


def _pages(starts: Sequence[int], device: Device) -> Iterator[Finding]:
    if bad := [start for start in starts if start % device.page_size]:
        yield Finding("page alignment", f"a segment at {bad[0]:#x}", f"multiples of {device.page_size} bytes")


def _signature(binary: lief.MachO.Binary, device: Device) -> Iterator[Finding]:
    """Macs with Apple's CPUs run nothing unsigned; what goes into an app for iOS is signed with the app."""
    if device.os == "macos" and device.arch == "aarch64" and not binary.has_code_signature:
        yield Finding("code signature", "none", "at least an ad-hoc signature")

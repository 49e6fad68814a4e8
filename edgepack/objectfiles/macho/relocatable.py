"""Edits relocatable Mach-O objects: drops debug sections, makes symbols private to what they are linked into.

lief is not used: 1.0 loses the symbols of a relocatable object that it writes. Layouts: Apple's
``mach-o/loader.h``, ``mach-o/nlist.h`` and ``mach-o/reloc.h``; 64-bit, little-endian.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from edgepack.errors import ToolchainError

__all__ = ["MACHINES", "Relocation", "Section", "Symbol", "hide_symbols", "read_object", "strip_debug"]

#: cputype -> name.
MACHINES = {0x01000007: "X86_64", 0x0100000C: "ARM64"}

_MAGIC, _OBJECT = 0xFEEDFACF, 1
_HEADER = "<IIIIIIII"  # magic, CPU, its subtype, file type, commands, their bytes, flags, reserved
_SEGMENT = (
    "<II16sQQQQIIII"  # cmd, cmdsize, name, vmaddr, vmsize, fileoff, filesize, 2 protections, nsects, flags
)
_SECTION = "<16s16sQQIIIIIIII"  # name, segment, addr, size, offset, align, reloff, nreloc, flags, 3 reserved
_LC_SYMTAB, _LC_DYSYMTAB, _LC_SEGMENT = 0x2, 0xB, 0x19
#: Commands of one block of bytes at (offset, size): data in code, optimization hints, function starts.
_LC_BLOCKS = (0x26, 0x29, 0x2E)
_INDIRECT_AT = 56  # in LC_DYSYMTAB: offset and number of indirect symbols
_ZERO_FILL = (0x1, 0xC, 0x12)  # section types that have no bytes in the file
_RELOCATION, _SYMBOL = 8, 16
_ADDEND = 10  # ARM64_RELOC_ADDEND: the number in it is no section
_N_STAB, _N_PEXT, _N_TYPE, _N_SECT, _N_ABS, _N_EXT = 0xE0, 0x10, 0x0E, 0x0E, 0x02, 0x01
_N_WEAK_DEF = 0x80


@dataclass(frozen=True)
class Relocation:
    """A word that the linker writes: where in its section, 2 to the power of ``length`` bytes, and the number
    of a symbol, or if not ``external`` of a section."""

    at: int
    kind: int
    length: int
    external: bool
    target: int


@dataclass(frozen=True)
class Section:
    """What an object has under one name; ``align`` is a power of two, ``address`` what values count from."""

    name: str
    segment: str
    address: int
    size: int
    align: int
    flags: int
    content: bytes
    relocations: tuple[Relocation, ...]


@dataclass(frozen=True)
class Symbol:
    """A name, for the linker of other objects too if ``external``; section 0: it is in another object."""

    name: str
    external: bool
    section: int
    value: int


@dataclass
class _Section:
    """A section's header, its fields in the order of the file; the place is a file offset."""

    name: bytes
    segment: bytes
    address: int
    size: int
    place: int
    align: int  # as a power of two
    relocations_at: int
    relocations: int
    flags: int
    reserved1: int
    reserved2: int
    reserved3: int

    def pack(self) -> bytes:
        """The header's bytes."""
        return struct.pack(_SECTION, *astuple(self))


@dataclass
class _Command:
    """A load command: its bytes, and the sections of a segment."""

    kind: int
    data: bytearray
    sections: list[_Section]

    def pack(self) -> bytes:
        """The command's bytes, with its sections' headers."""
        return bytes(self.data) + b"".join(section.pack() for section in self.sections)


class _Body:
    """What comes after the load commands."""

    def __init__(self, base: int) -> None:
        self.base = base
        self.content = bytearray()

    @property
    def end(self) -> int:
        """The file's size up to here."""
        return self.base + len(self.content)

    def put(self, content: bytes, align: int) -> int:
        """Append bytes; returns where in the file they are."""
        self.content += bytes(-self.end % align)
        place = self.end
        self.content += content
        return place


def strip_debug(data: bytes, name: str) -> bytes:
    """The object without its debug sections; ToolchainError for what is no 64-bit Mach-O object."""
    header, commands = _read(data, name)
    kept = _drop_debug(commands)
    header[5] = sum(len(command.pack()) for command in commands)
    body = _Body(struct.calcsize(_HEADER) + header[5])
    for command in commands:
        if command.kind == _LC_SEGMENT:
            _move_segment(command, data, body, kept)
    for command in commands:
        if command.kind in _LC_BLOCKS:
            at, size = struct.unpack_from("<II", command.data, 8)
            struct.pack_into("<I", command.data, 8, body.put(data[at : at + size], 8))
        elif command.kind == _LC_DYSYMTAB:
            at, count = struct.unpack_from("<II", command.data, _INDIRECT_AT)
            place = body.put(data[at : at + 4 * count], 8) if count else 0
            struct.pack_into("<I", command.data, _INDIRECT_AT, place)
        elif command.kind == _LC_SYMTAB:
            at, count, strings_at, size = struct.unpack_from("<IIII", command.data, 8)
            symbols = _renumbered_symbols(data[at : at + count * _SYMBOL], kept)
            struct.pack_into("<I", command.data, 8, body.put(symbols, 8))
            struct.pack_into("<I", command.data, 16, body.put(data[strings_at : strings_at + size], 8))
    return b"".join((struct.pack(_HEADER, *header), *(command.pack() for command in commands), body.content))


def read_object(data: bytes, name: str) -> tuple[tuple[Section, ...], tuple[Symbol, ...]]:
    """The sections, which are numbered from 1, and the symbols; ToolchainError for what is no 64-bit Mach-O
    object."""
    _, commands = _read(data, name)
    sections = tuple(_read_section(data, section) for command in commands for section in command.sections)
    symbols: list[Symbol] = []
    for command in commands:
        if command.kind == _LC_SYMTAB:
            at, count, strings, _ = struct.unpack_from("<IIII", command.data, 8)
            for position in range(at, at + count * _SYMBOL, _SYMBOL):
                name_at, kind, section, _, value = struct.unpack_from("<IBBHQ", data, position)
                start = strings + name_at
                text = data[start : data.index(0, start)].decode("utf-8", errors="replace")
                symbols.append(Symbol(text, bool(kind & _N_EXT), 0 if kind & _N_STAB else section, value))
    return sections, tuple(symbols)


def _read_section(data: bytes, section: _Section) -> Section:
    relocations = []
    for at in range(
        section.relocations_at, section.relocations_at + section.relocations * _RELOCATION, _RELOCATION
    ):
        place, word = struct.unpack_from("<iI", data, at)
        relocations.append(
            Relocation(place, word >> 28, word >> 25 & 3, bool(word >> 27 & 1), word & 0xFFFFFF)
        )
    filled = section.flags & 0xFF not in _ZERO_FILL
    return Section(
        section.name.rstrip(b"\0").decode(),
        section.segment.rstrip(b"\0").decode(),
        section.address,
        section.size,
        section.align,
        section.flags,
        data[section.place : section.place + section.size] if filled else b"",
        tuple(relocations),
    )


def hide_symbols(path: Path, keep: Collection[str]) -> None:
    """Make each external symbol that the object defines private external, but for the names in ``keep``
    (with their underscore): it still links with the other objects of a library, which does not export it.

    A weak one becomes local: zig's linker would take a system library's instead. Raises ToolchainError for a
    file that is no 64-bit Mach-O object.
    """
    data = bytearray(path.read_bytes())
    _, commands = _read(bytes(data), path.name)
    for command in commands:
        if command.kind != _LC_SYMTAB:
            continue
        at, count, strings, _ = struct.unpack_from("<IIII", command.data, 8)
        for position in range(at, at + count * _SYMBOL, _SYMBOL):
            name_at, kind, _, description = struct.unpack_from("<IBBH", data, position)
            if kind & _N_STAB or not kind & _N_EXT or kind & _N_TYPE != _N_SECT:
                continue
            start = strings + name_at
            if data[start : data.index(0, start)].decode("utf-8", errors="replace") in keep:
                continue
            local = description & _N_WEAK_DEF
            data[position + 4] = kind & ~(_N_EXT | _N_PEXT) if local else kind | _N_PEXT
            struct.pack_into("<H", data, position + 6, description & ~_N_WEAK_DEF)
        _sort_symbols(data, commands, at, count)
    path.write_bytes(data)


def _sort_symbols(data: bytearray, commands: Sequence[_Command], at: int, count: int) -> None:
    """Bring the symbols into the order that the format demands: local, defined, undefined."""
    records = [bytes(data[at + i * _SYMBOL : at + (i + 1) * _SYMBOL]) for i in range(count)]
    ranks = [(2 if not r[4] & _N_TYPE else 1) if r[4] & _N_EXT and not r[4] & _N_STAB else 0 for r in records]
    order = sorted(range(count), key=ranks.__getitem__)
    place = {old: new for new, old in enumerate(order)}
    data[at : at + count * _SYMBOL] = b"".join(records[old] for old in order)
    for section in (section for command in commands for section in command.sections):
        start = section.relocations_at
        for position in range(start, start + section.relocations * _RELOCATION, _RELOCATION):
            (word,) = struct.unpack_from("<I", data, position + 4)
            if word >> 27 & 1:
                struct.pack_into("<I", data, position + 4, word & ~0xFFFFFF | place[word & 0xFFFFFF])
    position = struct.calcsize(_HEADER)
    for command in commands:
        if command.kind == _LC_DYSYMTAB:
            local, defined = ranks.count(0), ranks.count(1)
            numbers = (0, local, local, defined, local + defined, ranks.count(2))
            struct.pack_into("<6I", data, position + 8, *numbers)
        position += len(command.pack())


def _read(data: bytes, name: str) -> tuple[list[int], list[_Command]]:
    size = struct.calcsize(_HEADER)
    header = list(struct.unpack_from(_HEADER, data)) if len(data) >= size else [0] * 8
    if header[0] != _MAGIC or header[1] not in MACHINES or header[3] != _OBJECT:
        raise ToolchainError(f"{name}: is not a 64-bit Mach-O object")
    commands: list[_Command] = []
    at = size
    for _ in range(header[4]):
        kind, length = struct.unpack_from("<II", data, at) if at + 8 <= len(data) else (0, 0)
        if length < 8 or at + length > len(data):
            raise ToolchainError(f"{name}: is not a 64-bit Mach-O object: it ends within its load commands")
        commands.append(_command(kind, bytearray(data[at : at + length])))
        at += length
    return header, commands


def _command(kind: int, data: bytearray) -> _Command:
    if kind != _LC_SEGMENT:
        return _Command(kind, data, [])
    start, size = struct.calcsize(_SEGMENT), struct.calcsize(_SECTION)
    sections = [_Section(*struct.unpack_from(_SECTION, data, at)) for at in range(start, len(data), size)]
    return _Command(kind, data[:start], sections)


def _drop_debug(commands: list[_Command]) -> dict[int, int]:
    """Forget the debug sections; returns the old number of each other section -> its new one."""
    kept: dict[int, int] = {}
    number = 0
    for command in commands:
        sections = []
        for section in command.sections:
            number += 1
            if section.segment.rstrip(b"\0") != b"__DWARF":
                sections.append(section)
                kept[number] = len(kept) + 1
        command.sections = sections
    return kept


def _move_segment(command: _Command, data: bytes, body: _Body, kept: Mapping[int, int]) -> None:
    """Copy the bytes and relocations of a segment's sections; write the new places into the command."""
    fields = list(struct.unpack_from(_SEGMENT, command.data))
    start = end = 0
    for section in command.sections:
        if section.flags & 0xFF not in _ZERO_FILL:
            content = data[section.place : section.place + section.size]
            section.place = body.put(content, 1 << section.align)
            start, end = start or section.place, body.end
    for section in command.sections:
        at, size = section.relocations_at, section.relocations * _RELOCATION
        relocations = _renumbered_relocations(data[at : at + size], kept)
        section.relocations_at = body.put(relocations, 8) if size else 0
    fields[1] = len(command.pack())
    extent = max((s.address + s.size for s in command.sections), default=fields[3]) - fields[3]
    # Readers refuse a segment that is larger in the file than in memory, which padding may make it.
    fields[4:7] = [max(extent, end - start), start, end - start]
    fields[9] = len(command.sections)
    command.data[:] = struct.pack(_SEGMENT, *fields)


def _renumbered_relocations(data: bytes, kept: Mapping[int, int]) -> bytes:
    """A relocation that is not against a symbol names a section by its number."""
    edited = bytearray(data)
    for at in range(0, len(edited), _RELOCATION):
        (word,) = struct.unpack_from("<I", edited, at + 4)
        external, kind = word >> 27 & 1, word >> 28
        if not external and kind != _ADDEND:
            struct.pack_into("<I", edited, at + 4, word & ~0xFFFFFF | kept.get(word & 0xFFFFFF, 0))
    return bytes(edited)


def _renumbered_symbols(data: bytes, kept: Mapping[int, int]) -> bytes:
    """Labels of dropped sections become absolute zeros: dropping them would renumber all symbols."""
    edited = bytearray(data)
    for at in range(0, len(edited), _SYMBOL):
        kind, section = edited[at + 4], edited[at + 5]
        if kind & _N_STAB or kind & _N_TYPE != _N_SECT:
            continue
        edited[at + 5] = kept.get(section, 0)
        if section not in kept:
            edited[at + 4] = kind & ~_N_TYPE | _N_ABS
            edited[at + 8 : at + 16] = bytes(8)
    return bytes(edited)

"""Reads and edits relocatable COFF objects: drops debug sections, the directives by which TVM exports each
kernel, and the public names of what weak symbols stand for.

lief is not used: 1.0 cannot write COFF, and 0.17 loses the name of the first symbol. Layouts: "PE Format",
sections "COFF File Header", "Section Table", "COFF Symbol Table" (Microsoft).
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

from edgepack.errors import ToolchainError

__all__ = [
    "Symbol",
    "debug_sections",
    "drop_exports",
    "export_directives",
    "hide_weak_defaults",
    "machine",
    "strip_debug",
    "symbols",
]

_MACHINES = {0x8664: "AMD64", 0xAA64: "ARM64"}
_HEADER = "<HHIIIHH"  # machine, sections, time stamp, symbol table, symbols, size of optional header, flags
_SECTION = (
    "<8sIIIIIIHHI"  # name, 2 x virtual, raw size, raw offset, relocations, line numbers, 2 counts, flags
)
_SYMBOL, _RELOCATION = 18, 10
_EXTERNAL, _STATIC, _WEAK = 2, 3, 105  # IMAGE_SYM_CLASS_*
_STORAGE = 16  # where a symbol has its class
_MANY_RELOCATIONS = 0x01000000  # IMAGE_SCN_LNK_NRELOC_OVFL
_EMPTY = 0x00000080  # IMAGE_SCN_CNT_UNINITIALIZED_DATA: no bytes in the file

#: ``-export:name`` and ``/EXPORT:"name",data``, with the space before them.
_EXPORT = re.compile(rb"\s*[-/]export:((?:\"[^\"]*\"|[^\s\"])+)", re.IGNORECASE)


@dataclass
class _Section:
    """An entry of the section table, its fields in the order of the file."""

    name: bytes
    virtual_size: int
    virtual_address: int
    size: int
    place: int
    relocations_at: int
    line_numbers_at: int
    relocations: int
    line_numbers: int
    flags: int

    def empty(self) -> None:
        """Say that it has no bytes, no relocations and no line numbers."""
        self.size = self.place = self.relocations_at = self.relocations = 0
        self.line_numbers_at = self.line_numbers = 0
        self.flags &= ~_MANY_RELOCATIONS


class Symbol(NamedTuple):
    """A symbol that other objects see; a weak one has a default here, so it is defined."""

    name: str
    defined: bool


def machine(data: bytes, name: str) -> str:
    """``AMD64`` or ``ARM64``; ToolchainError for what is no COFF object for one of them."""
    return _MACHINES[_header(data, name)[0]]


def symbols(data: bytes, name: str) -> list[Symbol]:
    """The external symbols."""
    _, _, _, at, count, _, _ = _header(data, name)
    names = _long_names(data, at, count)
    found: list[Symbol] = []
    for place, storage, section in _entries(data, at, count):
        if storage in {_EXTERNAL, _WEAK}:
            text = _symbol_name(data, place, names)
            found.append(Symbol(text.decode("utf-8", errors="replace"), storage == _WEAK or section != 0))
    return found


def _entries(data: bytes, at: int, count: int) -> Iterator[tuple[int, int, int]]:
    """Where each symbol stands, its class and its section; ``at`` is the table, of ``count`` records."""
    index = 0
    while index < count:
        place = at + index * _SYMBOL
        section, _, storage, more = struct.unpack_from("<12xhHBB", data, place)
        yield place, storage, section
        index += 1 + more


def _symbol_name(data: bytes, place: int, names: bytes) -> bytes:
    short = data[place : place + 8]
    long_at = 0 if any(short[:4]) else int.from_bytes(short[4:], "little")
    return names[long_at:].split(b"\0", 1)[0] if long_at else short.rstrip(b"\0")


def strip_debug(data: bytes, name: str) -> bytes:
    """The object without the contents of its debug sections; their headers stay, so that numbers of sections
    and symbols do. ToolchainError for what is no COFF object."""
    machine, count, stamp, symbols_at, symbols, optional, flags = _header(data, name)
    names = _long_names(data, symbols_at, symbols)
    start = struct.calcsize(_HEADER) + optional
    sections = _sections(data, start, count)
    body = bytearray()
    base = start + count * struct.calcsize(_SECTION)
    emptied = set()
    for number, section in enumerate(sections, 1):
        if _is_debug(_section_name(section, names)):
            section.empty()
            emptied.add(number)
            continue
        _move(data, section, body, base)
    head = struct.pack(_HEADER, machine, count, stamp, base + len(body), symbols, optional, flags)
    head += data[struct.calcsize(_HEADER) : start]
    head += b"".join(struct.pack(_SECTION, *astuple(section)) for section in sections)
    table = bytearray(data[symbols_at : symbols_at + symbols * _SYMBOL])
    _empty_definitions(table, emptied)
    return head + bytes(body) + bytes(table) + data[symbols_at + symbols * _SYMBOL :]


def debug_sections(data: bytes, name: str) -> list[str]:
    """Names of the debug sections that hold anything."""
    _, count, _, symbols_at, symbols, optional, _ = _header(data, name)
    names = _long_names(data, symbols_at, symbols)
    sections = _sections(data, struct.calcsize(_HEADER) + optional, count)
    return [n.decode("latin-1") for s in sections if s.size and _is_debug(n := _section_name(s, names))]


def export_directives(data: bytes, name: str) -> list[str]:
    """Symbols that the object tells the linker to export."""
    found: list[str] = []

    def note(match: re.Match[bytes]) -> bytes:
        found.append(match.group(1).split(b",")[0].strip(b'"').decode("utf-8", errors="replace"))
        return match.group()

    _edit_directives(data, name, note)
    return found


def drop_exports(path: Path) -> None:
    """Blank the directives that export symbols from whatever the object is linked into."""
    data = path.read_bytes()
    path.write_bytes(_edit_directives(data, path.name, lambda match: b" " * len(match.group())))


def hide_weak_defaults(path: Path) -> None:
    """Make what a weak symbol stands for known in its own object only.

    LLVM calls it ``.weak.NAME.default`` wherever it is: two objects of one library with the same weak symbol,
    or one and the compiler's own library, would define that twice.
    """
    data = path.read_bytes()
    edited = bytearray(data)
    _, _, _, at, count, _, _ = _header(data, path.name)
    names = _long_names(data, at, count)
    for place, storage, section in _entries(data, at, count):
        if storage == _EXTERNAL and section != 0 and _symbol_name(data, place, names).startswith(b".weak."):
            edited[place + _STORAGE] = _STATIC
    path.write_bytes(edited)


def _edit_directives(data: bytes, name: str, edit: Callable[[re.Match[bytes]], bytes]) -> bytes:
    _, count, _, symbols_at, symbols, optional, _ = _header(data, name)
    names = _long_names(data, symbols_at, symbols)
    edited = bytearray(data)
    for section in _sections(data, struct.calcsize(_HEADER) + optional, count):
        if _section_name(section, names) == b".drectve":
            size, at = section.size, section.place
            edited[at : at + size] = _EXPORT.sub(edit, data[at : at + size])
    return bytes(edited)


def _header(data: bytes, name: str) -> tuple[int, int, int, int, int, int, int]:
    fields = struct.unpack_from(_HEADER, data) if len(data) >= struct.calcsize(_HEADER) else (0,) * 7
    machine, count, stamp, symbols_at, symbols, optional, flags = fields
    table_end = struct.calcsize(_HEADER) + optional + count * struct.calcsize(_SECTION)
    if machine not in _MACHINES or max(table_end, symbols_at + symbols * _SYMBOL) > len(data):
        raise ToolchainError(f"{name}: is not a COFF object for x86_64 or aarch64")
    return machine, count, stamp, symbols_at, symbols, optional, flags


def _sections(data: bytes, start: int, count: int) -> list[_Section]:
    size = struct.calcsize(_SECTION)
    return [_Section(*struct.unpack_from(_SECTION, data, start + i * size)) for i in range(count)]


def _long_names(data: bytes, symbols_at: int, symbols: int) -> bytes:
    return data[symbols_at + symbols * _SYMBOL :]


def _section_name(section: _Section, names: bytes) -> bytes:
    short = section.name.rstrip(b"\0")
    if short[:1] == b"/" and short[1:].isdigit():
        return names[int(short[1:]) :].split(b"\0", 1)[0]
    return short


def _is_debug(name: bytes) -> bool:
    return name.startswith((b".debug_", b".debug$", b".zdebug_"))


def _move(data: bytes, section: _Section, body: bytearray, base: int) -> None:
    """Append a section's bytes and relocations to ``body`` and point its header at them."""
    at, relocations_at, relocations = section.place, section.relocations_at, section.relocations
    if at and not section.flags & _EMPTY:
        section.place = base + len(body)
        body += data[at : at + section.size]
    if relocations_at and relocations:
        if section.flags & _MANY_RELOCATIONS:  # the first entry holds the number
            (relocations,) = struct.unpack_from("<I", data, relocations_at)
        section.relocations_at = base + len(body)
        body += data[relocations_at : relocations_at + relocations * _RELOCATION]
    section.line_numbers_at = section.line_numbers = 0  # nobody writes them any more


def _empty_definitions(table: bytearray, sections: set[int]) -> None:
    """Section symbols repeat their section's size, relocations and checksum in the record after them."""
    at = 0
    while at < len(table):
        number, _, storage, more = struct.unpack_from("<hHBB", table, at + 12)
        if number in sections and storage == _STATIC and more:
            table[at + _SYMBOL : at + _SYMBOL + 12] = bytes(12)
        at += _SYMBOL * (1 + more)

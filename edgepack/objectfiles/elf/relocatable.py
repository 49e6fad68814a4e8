"""Changes symbols of a relocatable ELF object: LLVM makes every kernel visible, and TVM defines more.

lief is not used: 1.0 moves sections when it writes an object. Here only entries of the symbol table change.
Layouts: System V ABI (gABI), chapter 4, "Object Files".
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection
from pathlib import Path
from typing import NamedTuple

from edgepack.errors import ToolchainError

__all__ = ["forget_definitions", "hide_symbols"]

_SHT_SYMTAB = 2
_STB_LOCAL, _STB_GLOBAL, _STV_HIDDEN = 0, 1, 2
_SHN_UNDEF = 0
# By ELF class (1: 32 bits, 2: 64 bits), each a layout and the size.
# File header: e_shoff, e_shentsize, e_shnum. Section header: type, offset, size, link, entsize.
# Symbol: name, info, other, shndx.
_HEADER = {1: ("<32xI10xHH", 52), 2: ("<40xQ10xHH", 64)}
_SECTION = {1: ("<4xI8xIII8xI", 40), 2: ("<4xI16xQQI12xQ", 64)}
_SYMBOL = {1: ("<I8xBBH", 16), 2: ("<IBBH16x", 24)}
# Where `info` stands in a symbol, which `other` and `shndx` follow; where `value` and `size` stand.
_INFO_AT = {1: 12, 2: 4}
_VALUE = {1: ("<II", 4), 2: ("<QQ", 8)}


#: ELFCLASS64, SHT_PROGBITS, SHF_EXECINSTR.
_CLASS64, _PROGBITS, _EXECUTABLE = 2, 1, 4


class _Symbol(NamedTuple):
    """An entry of a symbol table: the file's bytes, the ELF class, where it stands, and what it says."""

    data: bytearray
    kind: int
    position: int
    name: str
    info: int
    other: int
    section: int

    @property
    def global_definition(self) -> bool:
        return self.info >> 4 != _STB_LOCAL and self.section != _SHN_UNDEF


def hide_symbols(path: Path, keep: Collection[str]) -> None:
    """Give each global symbol that the object defines hidden visibility, but for the names in ``keep``.

    A hidden symbol still links with the other objects of a library, and is not exported by what that library
    is linked into. Raises ToolchainError for a file that is no little-endian ELF object.
    """

    def hide(symbol: _Symbol) -> None:
        if symbol.global_definition and symbol.name not in keep:
            symbol.data[symbol.position + _INFO_AT[symbol.kind] + 1] = (symbol.other & ~3) | _STV_HIDDEN

    _edit(path, hide)


def forget_definitions(path: Path, names: Collection[str]) -> None:
    """Make these symbols of an object global and undefined, so that the linker takes them from elsewhere.

    ``path`` is rewritten in place. What the symbols named stays in the file until a linker drops it. Raises
    ToolchainError for a file that is no little-endian ELF object.
    """

    def forget(symbol: _Symbol) -> None:
        if symbol.name in names:
            at = symbol.position + _INFO_AT[symbol.kind]
            struct.pack_into("<BBH", symbol.data, at, _STB_GLOBAL << 4, 0, _SHN_UNDEF)
            form, value_at = _VALUE[symbol.kind]
            struct.pack_into(form, symbol.data, symbol.position + value_at, 0, 0)

    _edit(path, forget)


def _edit(path: Path, change: Callable[[_Symbol], None]) -> None:
    """Let ``change`` see each symbol of the object, and write what it made of the file's bytes."""
    data = bytearray(path.read_bytes())
    kind = data[4] if len(data) > 64 and data[:4] == b"\x7fELF" and data[5] == 1 else 0
    if kind not in _HEADER:
        raise ToolchainError(f"{path.name}: is not a little-endian ELF object")
    table, entry_size, count = struct.unpack_from(_HEADER[kind][0], data)
    sections = [struct.unpack_from(_SECTION[kind][0], data, table + i * entry_size) for i in range(count)]
    form, symbol_size = _SYMBOL[kind]
    for section_type, offset, size, link, _ in sections:
        if section_type != _SHT_SYMTAB:
            continue
        strings = sections[link][1]
        for position in range(offset, offset + size, symbol_size):
            name_at, info, other, section = struct.unpack_from(form, data, position)
            start = strings + name_at
            name = data[start : data.index(0, start)].decode("utf-8", errors="replace")
            change(_Symbol(data, kind, position, name, info, other, section))
    path.write_bytes(data)


def code_bytes(data: bytes) -> int:
    """Bytes of the executable sections of a file in ELF that this process has made itself."""
    wide = data[4] == _CLASS64
    (sections,) = struct.unpack_from("<Q", data, 40) if wide else struct.unpack_from("<I", data, 32)
    size, count = struct.unpack_from("<HH", data, 58 if wide else 46)
    total = 0
    for at in range(sections, sections + size * count, size):
        _, kind, flags, _, _, nbytes = struct.unpack_from("<IIQQQQ" if wide else "<IIIIII", data, at)
        total += nbytes if kind == _PROGBITS and flags & _EXECUTABLE else 0
    return total

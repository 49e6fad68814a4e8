"""Changes the visibility of symbols in a relocatable ELF object: LLVM makes every kernel visible to all."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path

from edgepack.errors import ToolchainError

__all__ = ["hide_symbols"]

_SHT_SYMTAB = 2
_STB_LOCAL, _STV_HIDDEN = 0, 2
_SHN_UNDEF = 0
# By ELF class (1: 32 bits, 2: 64 bits), each a layout and the size.
# File header: e_shoff, e_shentsize, e_shnum. Section header: type, offset, size, link, entsize.
# Symbol: name, info, other, shndx, and where `other` stands in it.
_HEADER = {1: ("<32xI10xHH", 52), 2: ("<40xQ10xHH", 64)}
_SECTION = {1: ("<4xI8xIII8xI", 40), 2: ("<4xI16xQQI12xQ", 64)}
_SYMBOL = {1: ("<I8xBBH", 16, 13), 2: ("<IBBH16x", 24, 5)}


def hide_symbols(path: Path, keep: Collection[str]) -> None:
    """Give each global symbol that the object defines hidden visibility, but for the names in ``keep``.

    A hidden symbol still links with the other objects of a library, and is not exported by what that library
    is linked into. Raises ToolchainError for a file that is no little-endian ELF object.
    """
    data = bytearray(path.read_bytes())
    kind = data[4] if len(data) > 64 and data[:4] == b"\x7fELF" and data[5] == 1 else 0
    if kind not in _HEADER:
        raise ToolchainError(f"{path.name}: is not a little-endian ELF object")
    table, entry_size, count = struct.unpack_from(_HEADER[kind][0], data)
    sections = [struct.unpack_from(_SECTION[kind][0], data, table + i * entry_size) for i in range(count)]
    for section_type, offset, size, link, _ in sections:
        if section_type == _SHT_SYMTAB:
            _hide(data, kind, range(offset, offset + size, _SYMBOL[kind][1]), sections[link][1], keep)
    path.write_bytes(data)


def _hide(data: bytearray, kind: int, symbols: range, strings: int, keep: Collection[str]) -> None:
    form, _, other_at = _SYMBOL[kind]
    for position in symbols:
        name_at, info, other, section = struct.unpack_from(form, data, position)
        if info >> 4 == _STB_LOCAL or section == _SHN_UNDEF:
            continue
        start = strings + name_at
        name = data[start : data.index(0, start)].decode("utf-8", errors="replace")
        if name not in keep:
            data[position + other_at] = (other & ~3) | _STV_HIDDEN

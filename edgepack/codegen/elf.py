"""Edits relocatable objects as LLVM writes them (ELF, 64 bits, little-endian)."""

from __future__ import annotations

import struct
from collections.abc import Collection
from pathlib import Path

__all__ = ["forget_definitions"]

_SHT_SYMTAB = 2
_STB_GLOBAL = 1
_SECTION_BYTES, _SYMBOL_BYTES = 64, 24


def forget_definitions(path: Path, names: Collection[str]) -> None:
    """Make these global symbols undefined, so that the linker takes them from elsewhere.

    ``path`` is rewritten in place. What the symbols named stays in the file until a linker drops it.
    """
    data = bytearray(path.read_bytes())
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    # type, offset, size, link
    sections = [struct.unpack_from("<4xI16xQQI", data, table + i * _SECTION_BYTES) for i in range(count)]
    for kind, offset, size, link in sections:
        if kind != _SHT_SYMTAB:
            continue
        strings = sections[link][1]
        for symbol in range(offset, offset + size, _SYMBOL_BYTES):
            start = strings + struct.unpack_from("<I", data, symbol)[0]
            if data[start : data.index(0, start)].decode() in names:
                # info, other, section (0: undefined), value, size
                struct.pack_into("<BBHQQ", data, symbol + 4, _STB_GLOBAL << 4, 0, 0, 0, 0)
    path.write_bytes(data)

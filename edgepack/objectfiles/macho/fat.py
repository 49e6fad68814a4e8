"""Files for several CPUs in one (``mach-o/fat.h``): what ``lipo -create`` makes."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

from edgepack.objectfiles.ar import members

__all__ = ["archive_machine", "fat_file"]

_FAT_MAGIC, _MACHO_MAGIC = 0xCAFEBABE, 0xFEEDFACF
_LARGEST = 1 << 32
#: Slices begin at multiples of 2**14 bytes, the largest page.
_ALIGN = 14


def archive_machine(path: Path) -> tuple[int, int]:
    """CPU type and subtype of the objects in a static library.

    Raises:
        ValueError: they are no Mach-O files of 64 bits, or not all for one machine.
    """
    machines = set()
    for name, content in members(path):
        magic, machine, subtype = struct.unpack_from("<3I", content.ljust(12, b"\0"))
        if magic != _MACHO_MAGIC:
            raise ValueError(f"its member {name!r} is no Mach-O file of 64 bits")
        machines.add((machine, subtype))
    if len(machines) != 1:
        raise ValueError(f"its members are for {len(machines)} machines")
    return machines.pop()


def fat_file(libraries: Sequence[Path]) -> bytes:
    """The libraries in one file, sorted by CPU; of one library that itself.

    Raises:
        ValueError: two are for one machine, or the file would have 4 GiB or more.
    """
    slices = sorted((archive_machine(path), path.read_bytes()) for path in libraries)
    if len(slices) == 1:
        return slices[0][1]
    if len({machine for machine, _ in slices}) != len(slices):
        raise ValueError("two libraries are for the same machine")
    unit = 1 << _ALIGN
    offset = unit
    header = struct.pack(">2I", _FAT_MAGIC, len(slices))
    body = b""
    for (machine, subtype), data in slices:
        header += struct.pack(">5I", machine, subtype, offset, len(data), _ALIGN)
        padded = data + bytes(-len(data) % unit)
        body += padded
        offset += len(padded)
    if offset >= _LARGEST:
        raise ValueError("the file would have 4 GiB or more")
    return header.ljust(unit, b"\0") + body

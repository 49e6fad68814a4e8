"""The directory at a zip archive's end, its end, and the extra fields that entries may have.

Sources: PKWARE's APPNOTE.TXT 6.3; Info-ZIP's extrafld.txt.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from edgepack.release.archives.policy import Where
from edgepack.release.archives.source import Source

__all__ = ["Directory", "Record", "directory", "extra_fields"]

_END = struct.Struct("<4s4H2LH")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_MOST_BYTES = 64 << 20
_SHORT, _BIG = 0xFFFF, 0xFFFFFFFF
_ZIP64 = 0x0001
#: Fields that say times and owners, and Java's mark -> the sizes that they have.
_EXTRAS: dict[int, frozenset[int]] = {
    0x5455: frozenset((1, 5, 9, 13)),  # times
    0x7875: frozenset((11, 15)),  # owner by number
    0x5855: frozenset((8, 12)),  # times and owner, old
    0x7855: frozenset((0, 4)),  # owner, old
    0x000A: frozenset((32,)),  # times of NTFS
    0xCAFE: frozenset((0,)),
}


@dataclass(frozen=True)
class Record:
    """What the directory says of an entry.

    Attributes:
        name: its bytes.
        offset: where its own header begins.
        packed: its bytes in the archive.
        size: its bytes when unpacked.
        attributes: those of DOS, and the mode of Unix above them.
    """

    name: bytes
    flags: int
    method: int
    time: int
    date: int
    crc: int
    packed: int
    size: int
    offset: int
    attributes: int

    @property
    def shown(self) -> str:
        """The name for messages, with quotes."""
        return repr(self.name[:100].decode("utf-8", errors="replace"))


@dataclass(frozen=True)
class Directory:
    """Where the directory begins, and what it says."""

    start: int
    records: tuple[Record, ...]


def directory(source: Source, where: Where) -> Directory:
    """The directory of a zip archive, which ends where the archive ends.

    Raises:
        CheckFailedError: there is none, it is not whole, or there is something around it.
    """
    start, nbytes, count = _end(source, where)
    if nbytes > _MOST_BYTES:
        raise where.unsafe(f"its directory has more than {_MOST_BYTES} bytes")
    where.budget.room(count)
    data = source.read(start, nbytes)
    records: list[Record] = []
    at = 0
    while at < len(data) and len(records) <= count:
        record, at = _record(data, at, where)
        records.append(record)
    if len(records) != count:
        raise where.differs(f"it has {len(records)} entries in its directory and says {count}")
    return Directory(start, tuple(records))


def _end(source: Source, where: Where) -> tuple[int, int, int]:
    """Begin and bytes of the directory, and how many entries are in it."""
    at = source.size - _END.size
    data = source.read(at, _END.size) if at >= 0 else b""
    if not data.startswith(b"PK\5\6"):
        raise where.differs("it does not end with a directory, or has a comment")
    _, disk, first_disk, here, count, nbytes, start, comment = _END.unpack(data)
    locator = source.read(at - _LOCATOR.size, _LOCATOR.size) if at >= _LOCATOR.size else b""
    if locator.startswith(b"PK\6\7"):
        place = at - _LOCATOR.size - _END64.size
        if place < 0 or locator != _LOCATOR.pack(b"PK\6\7", 0, place, 1):
            raise where.differs("the end of its directory is not where it is said to be")
        short = (here, count, nbytes, start)
        magic, size, made, needed, disk64, first64, *long = _END64.unpack(source.read(place, _END64.size))
        if (magic, size, disk64, first64) != (b"PK\6\6", _END64.size - 12, 0, 0) or max(
            made & 255, needed
        ) > 63:
            raise where.differs("the end of its directory is not as tools write it")
        limits = (_SHORT, _SHORT, _BIG, _BIG)
        if any(a not in (limit, b) for a, b, limit in zip(short, long, limits, strict=True)):
            raise where.differs("its directory has two sizes")
        here, count, nbytes, start = long
        at = place
    elif _SHORT in (here, count) or _BIG in (nbytes, start):
        raise where.differs("its directory says no size")
    if disk or first_disk or here != count or comment or start + nbytes != at:
        raise where.differs("its directory is not where it is said to be, or in several files")
    return start, nbytes, count


def _record(data: bytes, at: int, where: Where) -> tuple[Record, int]:
    if len(data) - at < _CENTRAL.size or data[at : at + 4] != b"PK\1\2":
        raise where.differs("its directory has something else than entries")
    fields = _CENTRAL.unpack_from(data, at)
    made, needed, flags, method, time, date, crc, packed, size, name_size, extra_size = fields[1:12]
    comment_size, disk, internal, attributes, offset = fields[12:]
    at += _CENTRAL.size
    name, extra = data[at : at + name_size], data[at + name_size : at + name_size + extra_size]
    shown = repr(name[:100].decode("utf-8", errors="replace"))
    if len(name) != name_size or len(extra) != extra_size:
        raise where.differs(f"its directory ends within {shown}")
    if made >> 8 not in (0, 3) or needed > 45 or disk or internal > 1 or comment_size:
        raise where.differs(f"{shown} was made by another system, or has a comment")
    big = extra_fields(extra, shown, where)
    long = [size, packed, offset]
    for place, number in enumerate(long):
        if number == _BIG and big is not None and len(big) >= 8:
            long[place], big = struct.unpack("<Q", big[:8])[0], big[8:]
            if long[place] >= 1 << 62:
                raise where.differs(f"{shown} has no size")
        elif number == _BIG:
            raise where.differs(f"{shown} has no size")
    if big:
        raise where.differs(f"{shown} has more than one size")
    size, packed, offset = long
    found = Record(name, flags, method, time, date, crc, packed, size, offset, attributes)
    return found, at + name_size + extra_size


def extra_fields(data: bytes, shown: str, where: Where) -> bytes | None:
    """The long sizes of an entry's extra fields; None where it has none.

    Raises:
        CheckFailedError: there are fields that tools do not agree about, such as another name (0x7075).
    """
    found: dict[int, bytes] = {}
    at = 0
    while at < len(data):
        if len(data) - at < 4:
            raise where.differs(f"{shown} has a piece of an extra field")
        kind, nbytes = struct.unpack_from("<2H", data, at)
        field = data[at + 4 : at + 4 + nbytes]
        if kind in found or len(field) != nbytes:
            raise where.differs(f"{shown} has a piece of an extra field, or one twice")
        if kind != _ZIP64 and nbytes not in _EXTRAS.get(kind, ()):
            raise where.differs(f"{shown} has the extra field 0x{kind:04x} of {nbytes} bytes")
        found[kind] = field
        at += 4 + nbytes
    return found.get(_ZIP64)

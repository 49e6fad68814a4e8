"""Zip archives: directory and local headers say the same, and there is no byte that neither speaks of.

Sources: PKWARE's APPNOTE.TXT 6.3; UnZip's ``unix.c`` (entries that were made under DOS have modes too).
"""

from __future__ import annotations

import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from edgepack.release.archives.policy import Where
from edgepack.release.archives.source import Member, Source
from edgepack.release.archives.streams import unpacked
from edgepack.release.archives.tree import Tree, wrong_mode
from edgepack.release.archives.zip_directory import Directory, Record, directory, extra_fields

__all__ = ["read_zip"]

_LOCAL = struct.Struct("<4s5H3L2H")
_DESCRIPTOR = struct.Struct("<4s3L")
_DESCRIBED, _UTF8 = 8, 0x800
#: Beside these, how well it was deflated.
_FLAGS = _DESCRIBED | _UTF8 | 6
_STORED, _DEFLATED = 0, 8
_DOS_FOLDER = 0x10
_BIG = 0xFFFFFFFF


@dataclass(frozen=True)
class _Entry:
    """An entry whose two headers agree.

    Attributes:
        name: with ``/`` at the end of a folder's.
        data: its bytes in the archive.
        end: position behind it.
    """

    name: str
    data: Source
    end: int


def read_zip(source: Source, where: Where) -> Iterator[Member]:
    """The files of a zip archive.

    Raises:
        CheckFailedError: it is not in the form that tools agree about, or an entry would do harm.
    """
    tree, at = Tree(where), 0
    found = directory(source, where)
    for record in found.records:
        if record.offset != at:
            raise where.differs(f"the entry {record.shown} does not begin where the one before it ends")
        entry = _entry(source, record, found, where)
        at = entry.end
        folder = entry.name.endswith("/")
        tree.add(entry.name, "folder" if folder else "file")
        with unpacked(entry.data, record.method == _DEFLATED, where) as content:
            if content.size != record.size or _crc(content) != record.crc:
                raise where.unsafe(f"it cannot be read: {entry.name!r} is damaged")
            if not folder:
                yield Member(entry.name, content)
    if at != found.start:
        raise where.differs("there is something between its entries and its directory")
    tree.end()


def _crc(content: Source) -> int:
    crc = 0
    for chunk in content.chunks():
        crc = zlib.crc32(chunk, crc)
    return crc


def _entry(source: Source, record: Record, found: Directory, where: Where) -> _Entry:
    """One that an entry of the directory describes."""
    name = _name(record, where)
    at = record.offset
    head = source.read(at, _LOCAL.size)
    if len(head) != _LOCAL.size or not head.startswith(b"PK\3\4"):
        raise where.differs(f"{record.shown} has no header of its own")
    _, needed, flags, method, time, date, crc, packed, size, name_size, extra_size = _LOCAL.unpack(head)
    rest = source.read(at + _LOCAL.size, name_size + extra_size)
    start = at + _LOCAL.size + name_size + extra_size
    end = start + record.packed
    if end > found.start:
        raise where.differs(f"{record.shown} ends behind the entries")
    big = extra_fields(rest[name_size:], record.shown, where)
    if big is not None:
        if len(big) != 16 or flags & _DESCRIBED:
            raise where.differs(f"{record.shown} has sizes that were said otherwise")
        said_before = packed, size
        size, packed = struct.unpack("<2Q", big)
        # Python before 3.11.4 says them twice.
        if said_before not in ((_BIG, _BIG), (packed, size)):
            raise where.differs(f"{record.shown} has sizes that were said otherwise")
    if (rest[:name_size], flags, method, time, date) != (
        record.name,
        record.flags,
        record.method,
        record.time,
        record.date,
    ) or needed > 45:
        raise where.differs(f"{record.shown} has another name, method, time or flags in its own header")
    said = (record.crc, record.packed, record.size)
    if flags & _DESCRIBED:
        descriptor = source.read(end, _DESCRIPTOR.size) if end + _DESCRIPTOR.size <= found.start else b""
        if descriptor != _DESCRIPTOR.pack(b"PK\7\x08", *(one & _BIG for one in said)) or max(said) >= _BIG:
            raise where.differs(f"{record.shown} is described otherwise behind its data")
        end += _DESCRIPTOR.size
    for one, other in zip((crc, packed, size), said, strict=True):
        if one == other or (flags & _DESCRIBED and not one):
            continue
        raise where.differs(f"{record.shown} has another size or checksum in its own header")
    return _Entry(name, source.part(start, record.packed), end)


def _name(record: Record, where: Where) -> str:
    """An entry's name, where its kind, flags and mode are those of an ordinary file or folder."""
    if record.flags & ~_FLAGS or record.flags & 1:
        raise where.unsafe(f"{record.shown} is neither file nor folder, or is encrypted")
    if record.method not in (_STORED, _DEFLATED):
        raise where.differs(f"{record.shown} is compressed by method {record.method}")
    if record.method == _STORED and record.flags & ~_UTF8:
        raise where.differs(f"{record.shown} is stored, and described behind its data")
    try:
        name = record.name.decode("utf-8" if record.flags & _UTF8 else "ascii")
    except UnicodeDecodeError:
        raise where.differs(f"the name {record.shown} is not in UTF-8") from None
    folder = name.endswith("/")
    mode = record.attributes >> 16
    if stat.S_IFMT(mode) not in (0, stat.S_IFREG, *((stat.S_IFDIR,) if folder else ())):
        raise where.unsafe(f"{record.shown} is neither file nor folder")
    if record.attributes & _DOS_FOLDER and not folder:
        raise where.differs(f"{record.shown} is a folder by its attributes alone")
    if folder and record.size:
        raise where.differs(f"the folder {record.shown} has content")
    if error := wrong_mode(mode, record.shown, where):
        raise error
    return name

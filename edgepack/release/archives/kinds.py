"""What kind of archive a file is to any tool: by its first bytes, and by what tools look for elsewhere.

Sources: the bidders of libarchive (``archive_read_support_format_*.c``, ``..._filter_*.c``), GNU tar's
``buffer.c`` and ``list.c``, UnZip's ``process.c``.
"""

from __future__ import annotations

import re
import struct
from typing import Literal

from edgepack.release.archives.mtree import is_mtree
from edgepack.release.archives.policy import Where
from edgepack.release.archives.source import Source
from edgepack.release.archives.streams import lzma_alone
from edgepack.release.archives.tar_blocks import hidden_header, is_first_header

__all__ = ["Kind", "kind_of"]

Kind = Literal["tar", "zip", "ar", "gzip", "bzip2", "xz"]

_ZIP = tuple(b"PK" + rest for rest in (b"\1\2", b"\3\4", b"\5\6", b"\6\6", b"\7\x08", b"00"))
_COMPRESSED: dict[bytes, Kind] = {
    b"\x1f\x8b\x08": "gzip",
    b"\xfd7zXZ\0": "xz",
    **{b"BZh%d" % level + magic: "bzip2" for level in range(1, 10) for magic in (b"1AY&SY", b"\x17rE8P\x90")},
}
#: Where in a file which bytes lie, and of what: archives and compressed files that are not read here.
_OTHERS: tuple[tuple[int, bytes, str], ...] = (
    (0, b"!<thin>\n", "ar (thin)"),
    (0, b"<bigaf>\n", "ar (AIX)"),
    (0, b"070701", "cpio"),
    (0, b"070702", "cpio"),
    (0, b"070707", "cpio"),
    (0, b"070727", "cpio"),
    (0, b"\xc7\x71", "cpio"),
    (0, b"\x71\xc7", "cpio"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (0, b"Rar!\x1a\x07", "RAR"),
    (0, b"MSCF\0\0\0\0", "cabinet"),
    (0, b"ISc(", "InstallShield cabinet"),
    (0, b"xar!\0", "xar"),
    (0, b"WARC/", "WARC"),
    (0, b"MSWIM\0\0\0", "WIM"),
    (0, b"ITSF", "CHM"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "compound file"),
    (0, b"hsqs", "SquashFS"),
    (0, b"sqsh", "SquashFS"),
    (0, b"\x45\x3d\xcd\x28", "cramfs"),
    (0, b"\xed\xab\xee\xdb", "RPM"),
    (7, b"**ACE**", "ACE"),
    (20, b"\xdc\xa7\xc4\xfd", "ZOO"),
    (257, b"ustar", "tar"),
    (32769, b"CD001", "ISO 9660"),
    (32769, b"BEA01", "UDF"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard"),
    *((0, bytes([first]) + b"\x2a\x4d\x18", "Zstandard or LZ4") for first in range(0x50, 0x60)),
    (0, b"\x04\x22\x4d\x18", "LZ4"),
    (0, b"\x02\x21\x4c\x18", "LZ4"),
    (0, b"\x89LZO\0\r\n\x1a\n", "lzop"),
    (0, b"LZIP", "lzip"),
    (0, b"LRZI", "lrzip"),
    (0, b"GRZipII\0\2\4:)", "grzip"),
    (0, b"\x1f\x9d", "compress"),
    (0, b"\x1f\xa0", "compress"),
    (0, b"\x1f\x1e", "pack"),
    (0, b"\xffLZMA", "LZMA"),
)
_LHA = re.compile(rb".{2}-(l[hz][0-9ds]|pm[0-2])-", re.DOTALL)
#: What a program unpacks of itself: bsdtar looks so far into it.
_IN_PROGRAMS = re.compile(rb"7z\xbc\xaf\x27\x1c|Rar!\x1a\x07|MSCF\0\0\0\0", re.DOTALL)
_PROGRAMS, _PROGRAM_BYTES = (b"MZ", b"\x7fELF"), 0x61000
#: uuencoded, after any text, with its first line; bsdtar reads so far.
_UUENCODED, _TEXT = (
    re.compile(
        rb"(?:^|[\r\n])begin(?: [0-7]{3} [^\r\n]+(?:\r\n|[\r\n])[ -`]+[a-z]?"
        rb"|-base64 [0-7]{3} [^\r\n]+(?:\r\n|[\r\n])[+/-9=A-Za-z]*)[\r\n]"
    ),
    256 << 10,
)
#: UnZip looks for a zip's end in 66,000 bytes and a block.
_TAIL = 72_000
_END = struct.Struct("<4s4H2LH")


def kind_of(source: Source, where: Where) -> Kind | None:
    """The kind of archive or compressed stream that is read here; None for what no tool unpacks.

    Raises:
        CheckFailedError: a tool would unpack it, as a kind that is not read here or as two of them.
    """
    if not (start := source.read(0, 512)):
        return None
    if start.startswith(_ZIP):
        kind: Kind | None = "zip"
    elif start.startswith(b"!<arch>\n"):
        kind = "ar"
    elif is_first_header(start):
        return "tar"
    else:
        kind = next((kind for magic, kind in _COMPRESSED.items() if start.startswith(magic)), None)
    if kind is None and (why := _other(source, start)):
        raise where.unsafe(f"it is an archive or compressed ({why}) in a way that is not read here")
    if kind in ("zip", "ar") and source.read(32769, 5) in (b"CD001", b"BEA01"):
        raise where.differs("it is a file system of a CD as well")
    if kind != "zip" and _has_zip(source):
        raise where.differs("it is a zip archive with something else before it")
    if kind in (None, "ar") and _uuencoded(source):
        raise where.differs("it has something uuencoded in it, which bsdtar unpacks")
    if kind in (None, "ar", "zip") and (at := hidden_header(source)) is not None:
        raise where.differs(f"GNU tar finds a tar archive in it, at byte {at}")
    return kind


def _other(source: Source, start: bytes) -> str:
    for at, magic, name in _OTHERS:
        if (source.read(at, len(magic)) if at > 500 else start[at : at + len(magic)]) == magic:
            return name
    if _LHA.match(start):
        return "LHA"
    if start.startswith(_PROGRAMS) and _IN_PROGRAMS.search(source.read(0, _PROGRAM_BYTES)):
        return "a program that unpacks itself"
    if source.read(max(0, source.size - 512), 4) == b"koly":
        return "disk image"
    if inner := lzma_alone(source.read(0, 64 << 10)):
        if is_first_header(inner[:512]) or inner.startswith((*_ZIP, b"!<arch>\n", *_COMPRESSED)):
            return "LZMA"
        if any(inner[at : at + len(magic)] == magic for at, magic, _ in _OTHERS):
            return "LZMA"
    return "mtree" if is_mtree(source) else ""


def _uuencoded(source: Source) -> bool:
    """Whether a line begins what bsdtar takes for uuencoded: only behind lines of ASCII."""
    text = source.read(0, _TEXT)
    found = _UUENCODED.search(text)
    return found is not None and text[: found.end()].isascii() and b"\0" not in text[: found.end()]


def _has_zip(source: Source) -> bool:
    """Whether a zip's directory and its end stand at the end of a file, where tools look for them."""
    first = max(0, source.size - _TAIL)
    tail = source.read(first, _TAIL)
    at = tail.rfind(b"PK\5\6")
    while at >= 0:
        if len(tail) - at >= _END.size:
            _, _, _, _, _, nbytes, offset, _ = _END.unpack_from(tail, at)
            directories = {first + at - nbytes, offset}
            if tail[max(0, at - 20) : at].startswith(b"PK\6\7"):
                return True
            if any(one >= 0 and source.read(one, 4) == b"PK\1\2" for one in directories):
                return True
        at = tail.rfind(b"PK\5\6", 0, at)
    return False

"""Blocks of 512 bytes that some reader of tar takes for a header, however odd; :mod:`tar` reads good ones.

Sources: GNU tar's ``tar_checksum`` and ``from_header``, Python's ``tarfile.TarInfo.frombuf``, libarchive's
``checksum``.
"""

from __future__ import annotations

import re
import tarfile

from edgepack.release.archives.policy import CHUNK
from edgepack.release.archives.source import Source

__all__ = ["BLOCK", "hidden_header", "is_first_header"]

BLOCK = 512
_SIZE, _SUM = slice(124, 136), slice(148, 156)
#: Flags of links, devices and pipes.
_SPECIAL = b"12346"
_ZEROS = bytes(BLOCK)
_ASCII = bytes(range(128))
#: How a checksum may begin for GNU tar, by which most blocks are passed over.
_BEGIN = re.compile(rb"[\0\t-\r 0-7]")
#: A number for GNU tar: a NUL, spaces, octal digits, and a NUL or a space behind them.
_GNU = re.compile(rb"\0?[\t-\r ]*([0-7]*)(?:[\0\t-\r ].*)?", re.DOTALL)
_ANY = re.compile(rb"[\0\t-\r ]*[+-]?(?:0o)?([0-7_]*)")


def is_first_header(block: bytes) -> bool:
    """Whether an archive of any tar, also one of before 1988, begins with this block."""
    if len(block) < BLOCK or block == _ZEROS:
        return False
    if block[257:262] == b"ustar":
        return True
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        found = _ANY.match(block[_SUM])
        digits = found[1].replace(b"_", b"") if found else b""
        return bool(digits) and int(digits, 8) in _sums(block)
    return True


def hidden_header(source: Source) -> int | None:
    """Position of the header at which GNU tar begins to unpack a file that has something else before it.

    It passes over blocks that are no headers, up to the first that is all zeros.
    """
    ends = True
    for first in range(0, source.size, CHUNK):
        chunk = source.read(first, CHUNK)
        for found in _BEGIN.finditer(chunk[_SUM.start :: BLOCK]):
            at = found.start() * BLOCK
            block = chunk[at : at + BLOCK]
            if block == _ZEROS and ends:
                return None
            if len(block) < BLOCK or not _is_header(block):
                continue
            if not _is_noise(block):
                return first + at
            ends = False  # there may be zeros in what it takes for this one's content
    return None


def _sums(block: bytes) -> tuple[int, int]:
    """A header block's checksums of unsigned and of signed bytes."""
    rest = block[: _SUM.start] + block[_SUM.stop :]
    unsigned = sum(rest) + 8 * ord(" ")
    return unsigned, unsigned - 256 * len(rest.translate(None, _ASCII))


def _is_header(block: bytes) -> bool:
    found = _GNU.fullmatch(block[_SUM])
    return found is not None and int(found[1] or b"0", 8) in _sums(block)


def _is_noise(block: bytes) -> bool:
    """Whether it is a header by chance: its checksum that of signed bytes, and all that GNU tar makes of it
    nothing, an empty file, or one whose name is no text.

    In numbers of which most are 0 that sum is 0, and the field empty, once in a thousand blocks.
    """
    found = _GNU.fullmatch(block[_SUM])
    if found is not None and int(found[1] or b"0", 8) == _sums(block)[0]:
        return False
    name = block[:100].partition(b"\0")[0].decode("utf-8", errors="replace")
    size = _GNU.fullmatch(block[_SIZE])
    empty = not int(size[1] or b"0", 8) if size is not None else block[_SIZE.start] not in b"\x80\xff+-"
    return not name or not name.isprintable() or "\ufffd" in name or (empty and block[156] not in _SPECIAL)

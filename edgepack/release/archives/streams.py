"""Compressed streams: one stream, nothing behind it, and no byte more than the budget has."""

from __future__ import annotations

import bz2
import lzma
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Protocol, cast

from edgepack.release.archives.policy import CHUNK, Where
from edgepack.release.archives.source import Source

__all__ = ["FORMATS", "Inflate", "expand", "lzma_alone", "pieces", "unpacked"]

#: Bytes of what was decompressed that are held in memory; more lies in a file without a name.
_IN_MEMORY = 64 << 20
#: Bytes that xz's dictionary may take; its strongest preset takes 65 MiB.
_MOST_MEMORY = 256 << 20
#: Formats that tools decompress and unpack in one go.
FORMATS = ("gzip", "bzip2", "xz")


class _Decompressor(Protocol):
    """bz2's and lzma's interface."""

    @property
    def eof(self) -> bool: ...

    @property
    def needs_input(self) -> bool: ...

    @property
    def unused_data(self) -> bytes: ...

    def decompress(self, data: bytes, max_length: int) -> bytes: ...


class Inflate:
    """zlib's decompressor with the interface of the others.

    Args:
        wbits: 31 for gzip, -15 for a bare stream.
    """

    def __init__(self, wbits: int) -> None:
        self._inflate = zlib.decompressobj(wbits)
        self.needs_input = True

    @property
    def eof(self) -> bool:
        """Whether the stream ended."""
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        """What stood behind its end."""
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int) -> bytes:
        """At most ``max_length`` bytes of what the data unpack to. Raises zlib.error for other streams."""
        out = self._inflate.decompress(self._inflate.unconsumed_tail + data, max_length)
        self.needs_input = len(out) < max_length and not self._inflate.unconsumed_tail
        return out


def pieces(source: Source, stream: _Decompressor, where: Where) -> Iterator[bytes]:
    """What leaves a decompressor, in pieces of at most a mebibyte that the budget was asked for.

    Raises:
        CheckFailedError: it is damaged or not whole, something stands behind it, or the budget is spent.
    """
    at = 0
    while not stream.eof:
        data = source.read(at, CHUNK) if stream.needs_input else b""
        if stream.needs_input and not data:
            raise where.unsafe("it cannot be read: a compressed stream is not whole")
        at += len(data)
        try:
            out = stream.decompress(data, where.budget.most())
        except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
            raise where.unsafe(f"it cannot be read: {error}") from error
        where.budget.take(len(out))
        yield out
    if at - len(stream.unused_data) != source.size:
        raise where.differs("there is something behind a compressed stream's end")


@contextmanager
def expand(source: Source, name: str, where: Where) -> Iterator[Source]:
    """What a compressed file holds, while the context lasts.

    Args:
        source: the file.
        name: one of :data:`FORMATS`.
        where: for messages, and for the budget.

    Raises:
        CheckFailedError: as :func:`pieces`.
    """
    stream = cast(
        "_Decompressor",
        Inflate(31)
        if name == "gzip"
        else bz2.BZ2Decompressor()
        if name == "bzip2"
        else lzma.LZMADecompressor(lzma.FORMAT_XZ, _MOST_MEMORY),
    )
    with _kept(pieces(source, stream, where)) as content:
        yield content


@contextmanager
def _kept(content: Iterator[bytes]) -> Iterator[Source]:
    with tempfile.SpooledTemporaryFile(_IN_MEMORY) as kept:
        size = 0
        for piece in content:
            size += kept.write(piece)
        yield Source(cast("IO[bytes]", kept), 0, size)


def lzma_alone(data: bytes) -> bytes:
    """The first mebibyte of what a file of LZMA's old format begins with; empty for another file.

    Args:
        data: the file's begin.
    """
    if len(data) < 14 or data[0] > 224 or data[13]:
        return b""
    stream = lzma.LZMADecompressor(lzma.FORMAT_ALONE, _MOST_MEMORY)
    found = b""
    try:
        for at in range(0, len(data), 64):  # what comes before an error counts
            found += stream.decompress(data[at : at + 64], CHUNK - len(found))
            if stream.eof or len(found) >= CHUNK:
                break
    except (lzma.LZMAError, EOFError):
        pass
    return found


@contextmanager
def unpacked(source: Source, deflated: bool, where: Where) -> Iterator[Source]:
    """An entry of a zip archive, inflated where it is deflated, while the context lasts.

    Raises:
        CheckFailedError: as :func:`pieces`.
    """
    if not deflated:
        yield source
        return
    with _kept(pieces(source, Inflate(-15), where)) as content:
        yield content

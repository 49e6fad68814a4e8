"""A range of bytes of an open file, read anywhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from edgepack.release.archives.policy import CHUNK

__all__ = ["Member", "Source"]


class Source:
    """Bytes of a file from ``start`` on; reading moves the file's position.

    Args:
        file: open for reading, and seekable.
        start: the first byte's position in it.
        size: how many bytes.
    """

    def __init__(self, file: IO[bytes], start: int, size: int) -> None:
        self._file, self._start, self.size = file, start, size

    def read(self, at: int, nbytes: int) -> bytes:
        """The bytes from ``at`` on; fewer where it ends, none behind its end.

        Raises:
            OSError: they cannot be read, or the file became shorter.
        """
        nbytes = min(nbytes, self.size - at)
        if nbytes <= 0:
            return b""
        self._file.seek(self._start + at)
        data = self._file.read(nbytes)
        if len(data) != nbytes:
            raise OSError("the file became shorter")
        return data

    def part(self, at: int, nbytes: int) -> Source:
        """A range of it, which lies inside."""
        assert at >= 0 and nbytes >= 0 and at + nbytes <= self.size
        return Source(self._file, self._start + at, nbytes)

    def chunks(self) -> Iterator[bytes]:
        """All of it, in pieces of a mebibyte."""
        for at in range(0, self.size, CHUNK):
            yield self.read(at, CHUNK)


@dataclass(frozen=True)
class Member:
    """A regular file in an archive.

    Attributes:
        name: its path there.
        content: its bytes, readable until the next member is asked for.
    """

    name: str
    content: Source

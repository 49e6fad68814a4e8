"""A file as the readers of headers see it: every read is checked against its size."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

__all__ = ["LibraryFile", "Part"]


class Part(NamedTuple):
    """Bytes of a file.

    Attributes:
        what: in words (``section 3``).
        offset, size: in bytes.
        passive: the system's loader maps it and does not look into it: code and constants.
    """

    what: str
    offset: int
    size: int
    passive: bool = False


class LibraryFile:
    """An opened file; a context manager."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("rb")
        self.size = os.fstat(self._file.fileno()).st_size

    def __enter__(self) -> LibraryFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def check(self, part: Part) -> None:
        """Raise ValueError for a part that is not all in the file."""
        if part.offset < 0 or part.size < 0 or part.offset + part.size > self.size:
            end = part.offset + part.size
            raise ValueError(f"its {part.what} ends at byte {end}, the file at byte {self.size}")

    def read(self, what: str, offset: int, size: int) -> bytes:
        """Bytes of the file. ValueError if it does not have them."""
        self.check(Part(what, offset, size))
        self._file.seek(offset)
        data = self._file.read(size)
        if len(data) != size:
            raise ValueError(f"its {what} cannot be read whole")
        return data

    def unpack(self, what: str, form: str, offset: int) -> tuple[Any, ...]:
        """Numbers at an offset, as :func:`struct.unpack` gives them. ValueError if they are not there."""
        return struct.unpack(form, self.read(what, offset, struct.calcsize(form)))

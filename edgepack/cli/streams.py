"""Standard output and standard error as they may be: closed, full, or with nobody who reads.

What is written there never ends the work. Who pipes a command into ``head`` gets its exit code all the same;
a standard output that takes nothing, for its disk is full, say, is said once, at the end.
"""

from __future__ import annotations

import errno
import io
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

__all__ = ["with_safe_streams"]

#: Seconds after which a stream that takes nothing now, and does not wait itself, is tried again.
_LATER = 0.01

#: The exit code where results could not be printed: what :class:`~edgepack.errors.ConfigError` has, as for a
#: folder that is full.
_UNWRITABLE = 2

#: What a pipe says that nobody reads any more; on Windows the second.
_UNREAD = {errno.EPIPE, *([errno.EINVAL] if os.name == "nt" else [])}


class _Tolerant(io.RawIOBase):
    """Writes to another stream until that fails; from then on nowhere.

    Attributes:
        error: why it failed.
    """

    def __init__(self, raw: io.RawIOBase) -> None:
        self._raw = raw
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._raw.fileno()

    def isatty(self) -> bool:
        return self._raw.isatty()

    def write(self, data: bytes | bytearray | memoryview) -> int:  # type: ignore[override]
        while self.error is None:
            try:
                written = self._raw.write(data)
            except OSError as error:
                self.error = error
                break
            if written is not None:
                return written
            time.sleep(_LATER)
        return len(data)


def with_safe_streams(function: Callable[[], int]) -> int:
    """What the function returns, with streams that it can print to whatever becomes of them.

    Returns:
        its exit code; 2 where that is 0 and standard output could not be written to.
    """
    if sys.stdout is not sys.__stdout__ or sys.stderr is not sys.__stderr__:
        return function()  # somebody else's, a test's say, or these already
    with _safe() as (text, output):
        code = function()
        text.flush()
        failed = output.error
        if failed is None or failed.errno in _UNREAD:
            return code
        print(
            f"edgepack: error: Standard output cannot be written to: {failed.strerror or failed}.\n"
            "  hint: Make room where it goes to, or send it elsewhere; all else was done.",
            file=sys.stderr,
        )
        return code or _UNWRITABLE


@contextmanager
def _safe() -> Iterator[tuple[TextIO, _Tolerant]]:
    """Replaces both streams; yields standard output, and what it writes to."""
    kept = sys.stdout, sys.stderr
    _open_closed()
    output, text = _tolerant(sys.stdout, 1)
    _, errors = _tolerant(sys.stderr, 2)
    sys.stdout, sys.stderr = text, errors
    try:
        yield text, output
    finally:
        for stream in (text, errors):
            with suppress(OSError, ValueError):
                stream.flush()
        sys.stdout, sys.stderr = kept


def _open_closed() -> None:
    """Standard streams that are closed lead nowhere: else the next file that is opened would be one of
    them."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            with suppress(OSError):
                os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free


def _tolerant(stream: TextIO | None, descriptor: int) -> tuple[_Tolerant, TextIO]:
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # of `python -u` it is unbuffered
    if stream is not None:
        with suppress(OSError):
            stream.flush()
    made = _Tolerant(io.FileIO(descriptor, "w", closefd=False) if raw is None else raw)
    text = io.TextIOWrapper(
        io.BufferedWriter(made),  # type: ignore[type-var]
        encoding=getattr(stream, "encoding", None) or "utf-8",
        errors=getattr(stream, "errors", None) or "backslashreplace",
        line_buffering=descriptor == 2 or made.isatty() or raw is buffer,
    )
    return made, text

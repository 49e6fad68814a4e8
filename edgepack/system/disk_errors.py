"""Says which folder it is that cannot be written to, and why: a disk or a quota is used up, or what is
mounted is read-only. Compilers say so in many ways, or end by a signal."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from edgepack.errors import ConfigError
from edgepack.system.paths import CACHE_ENV
from edgepack.system.refusals import said_by_a_program

__all__ = ["blamed", "refusal", "writing_to"]

#: What is the matter with a folder.
_WHY = {
    errno.ENOSPC: "is full",
    errno.EDQUOT: "is full: this user's quota is used up",
    errno.EROFS: "is read-only",
    errno.EFBIG: "takes no file of this size (ulimit -f)",
    errno.EACCES: "may not be written to by this user",
    errno.EPERM: "may not be written to by this user",
}

#: How programs say it: C libraries, zig, Windows.
_SAID = {
    errno.ENOSPC: r"No space left on device|\bNoSpaceLeft\b|not enough space on the disk",
    errno.EDQUOT: r"Disk quota exceeded|\bDiskQuota\b",
    errno.EROFS: r"Read-only file system|\bReadOnlyFileSystem\b",
    errno.EFBIG: r"File too large|\bFileTooBig\b",
    errno.EACCES: r"Permission denied|\bAccessDenied\b|\bPermissionDenied\b",
}

#: Free bytes below which a file system counts as full: what failed for want of room may have been removed.
_LITTLE = 1 << 16
_SOME = 4 << 20

_places: ContextVar[Mapping[str, Path]] = ContextVar("edgepack_places", default={})  # noqa: B039 (not changed)


@contextmanager
def writing_to(places: Mapping[str, Path]) -> Iterator[None]:
    """An error of the body says so, if its cause is that one of these folders cannot be written to.

    Args:
        places: what each is, for the message ("cache folder"), and its path.

    Raises:
        ConfigError: instead of the body's OSError, and by those who ask :func:`blamed`.
    """
    token = _places.set(places)
    try:
        yield
    except OSError as error:
        if (said := refusal(error)) is not None:
            raise said from error
        raise
    finally:
        _places.reset(token)


def refusal(error: OSError) -> ConfigError | None:
    """The error for a file that the system refused to write; None for any other."""
    number, file = error.errno, str(error.filename or "")
    if number in (errno.EACCES, errno.EPERM):  # of what is read too
        return _error(number, file) if _holding(file) and _with(number, 0) else None
    if number in _WHY:
        return _error(number, file)
    # NumPy's, for one, has no number.
    return _error(errno.ENOSPC, "") if number is None and _with(errno.ENOSPC, _LITTLE) else None


def blamed(output: str, code: int) -> ConfigError | None:
    """The error for a program that failed because it could not write, or for want of descriptors, memory or
    threads; None where nothing says so.

    Args:
        output: what it printed.
        code: its exit code; negative where a signal ended it.
    """
    if code and (said := said_by_a_program(output)) is not None:
        return said
    for number, pattern in _SAID.items():
        if re.search(pattern, output) and (number != errno.EACCES or _with(number, 0)):
            return _error(number, "", output)
    if code == -getattr(signal, "SIGXFSZ", 0):
        return _error(errno.EFBIG, "", output)
    # A linker that writes by way of memory gets SIGBUS; others write half a file, and another one stumbles.
    room = _SOME if code == -getattr(signal, "SIGBUS", 0) else _LITTLE
    return _error(errno.ENOSPC, "", output) if code and _with(errno.ENOSPC, room) else None


def _error(number: int, file: str, detail: str = "") -> ConfigError:
    places = _places.get()
    found = _holding(file) or _with(number, _SOME)
    if not found and places and number != errno.EFBIG:
        found = min(places, key=_free)
    where = f"The {found} {places[found]}" if found else file or "A folder"
    cache = f"; {CACHE_ENV} names another cache folder" if found == "cache folder" else ""
    hint = {
        "output folder": "choose another one with --output",
        "temporary folder": "name another one by TMPDIR",
    }
    return ConfigError(
        f"{where} {_WHY[number]}.",
        hint=f"Make room there, or {hint.get(found, 'choose a folder that may be written to')}{cache}.",
        detail=_telling(detail),
    )


def _telling(output: str) -> str:
    """The lines of what a program printed that say what the system refused; else its last ones."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    said = [line for line in lines if re.search("|".join(_SAID.values()), line)]
    return "\n".join(dict.fromkeys(said[:5] or lines[-5:]))


def _holding(file: str) -> str:
    """The name of the innermost place that holds a file; "" for none."""
    if not Path(file).is_absolute():
        return ""
    holding = [
        (len(str(path)), name) for name, path in _places.get().items() if Path(file).is_relative_to(path)
    ]
    return max(holding)[1] if holding else ""


def _with(number: int, room: int) -> str:
    """The name of the first place of which this is true; "" for none."""
    for name, path in _places.get().items():
        folder = next((one for one in (path, *path.parents) if one.is_dir()), path)
        if number in (errno.EACCES, errno.EPERM):
            true = not os.access(folder, os.W_OK)
        elif number == errno.EROFS:
            true = bool(_status(folder).get("flags", 0) & getattr(os, "ST_RDONLY", 1))
        else:
            true = number in (errno.ENOSPC, errno.EDQUOT) and _free(name) < room
        if true:
            return name
    return ""


def _free(name: str) -> int:
    path = _places.get()[name]
    folder = next((one for one in (path, *path.parents) if one.is_dir()), path)
    return _status(folder).get("free", 1 << 62)


def _status(folder: Path) -> dict[str, int]:
    """Free bytes and flags of the file system, where the system tells them."""
    try:
        found = os.statvfs(folder)
    except (OSError, AttributeError):
        return {}
    free = 0 if found.f_files and not found.f_favail else found.f_bavail * found.f_frsize
    return {"free": free, "flags": found.f_flag}

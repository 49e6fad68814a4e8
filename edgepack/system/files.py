"""Lists and hashes files."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

__all__ = [
    "as_text",
    "begins_with",
    "combined_digest",
    "every_entry",
    "is_file",
    "is_text",
    "list_files",
    "open_regular",
    "read_regular",
    "sha256_file",
]

_CHUNK = 1 << 20


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex. OSError as :func:`open_regular` raises it."""
    digest = hashlib.sha256()
    with open_regular(path) as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def is_file(path: Path) -> bool:
    """Whether there is a regular file; also of a path that none can have, such as one that is too long."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def as_text(name: str) -> str:
    """A file's name as text that can be written anywhere: what in it is no UTF-8 becomes U+FFFD."""
    return os.fsencode(name).decode("utf-8", "replace")


def is_text(name: str) -> bool:
    """Whether a path can be written as UTF-8; one of other bytes has halves of characters for them."""
    return not any("\ud800" <= one <= "\udfff" for one in name)


def open_regular(path: Path) -> BinaryIO:
    """A file that somebody else may have put there, open for reading.

    Raises:
        OSError: it cannot be read, or is no regular file: a pipe may wait for ever, a device never end.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    file = os.fdopen(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise OSError(errno.EINVAL, "it is not a regular file")
    return file


def read_regular(path: Path, most: int) -> bytes:
    """The content of a file that somebody else may have put there.

    Raises:
        OSError: it cannot be read, is no regular file (a pipe may wait for ever, a device never end), or has
            more than ``most`` bytes.
    """
    with open_regular(path) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes")
    return content


def begins_with(path: Path, content: bytes) -> bool:
    """Whether there is a regular file that begins so, or is empty. A pipe is not waited for; False for what
    cannot be read."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        with os.fdopen(os.open(path, flags), "rb") as file:
            regular = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            return regular and file.read(len(content)) in (b"", content)
    except (OSError, ValueError):
        return False


def combined_digest(files: Iterable[Path]) -> str:
    """SHA-256, in hex, over the SHA-256 of each file in turn: of their contents, not of their names."""
    total = hashlib.sha256()
    for file in files:
        total.update(bytes.fromhex(sha256_file(file)))
    return total.hexdigest()


def every_entry(root: Path) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Whatever is below ``root`` but folders: its path from there, with ``/``, and its entry. No link is
    followed: one to a folder is an entry too. Raises OSError."""
    folders = [""]
    while folders:
        inside = folders.pop()
        with os.scandir(root / inside) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{inside}{entry.name}/")
                else:
                    yield f"{inside}{entry.name}", entry


def list_files(root: Path) -> list[str]:
    """Every file under ``root``, relative, with ``/``, sorted by code point: the same on any file system."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

"""Whether the system's loader may be given a shared library: it trusts what it reads, and ends the process
where that is damaged."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from edgepack.objectfiles.layout import LibraryFile, Part

__all__ = ["check_headers", "loader_digest"]

#: What only is mapped, code and constants, is left out of the digest where it is larger: weights.
_LARGEST_PASSIVE = 1 << 20


def check_headers(path: Path, os: str, arch: str) -> None:
    """Raise ValueError if a file is no shared library of this kind, or its headers do not hold together.

    The text is a sentence's end: ``its segment 2 ends at byte 9000, the file at byte 8000``. OSError if it
    cannot be read.
    """
    with LibraryFile(path) as file:
        _parts(file, os, arch)


def loader_digest(path: Path, os: str, arch: str) -> str:
    """SHA-256, in hex, over what the system's loader reads of a shared library, and over its sections of code
    and constants of up to 1 MiB. Errors as in :func:`check_headers`."""
    digest = hashlib.sha256()
    with LibraryFile(path) as file:
        found = [part for part in _parts(file, os, arch) if not part.passive or part.size <= _LARGEST_PASSIVE]
        if sum(part.size for part in found) > 4 * file.size:
            raise ValueError("its sections overlap")
        digest.update(struct.pack("<Q", file.size))
        for part in found:
            digest.update(struct.pack("<QQ", part.offset, part.size))
            digest.update(file.read(*part[:3]))
    return digest.hexdigest()


def _parts(file: LibraryFile, os: str, arch: str) -> list[Part]:
    """What the file is made of; ValueError if it does not hold together."""
    room = {"macos": "macho", "ios": "macho", "windows": "coff"}.get(os, "elf")
    read: Callable[[LibraryFile, str], list[Part]] = import_module(
        f"edgepack.objectfiles.{room}.headers"
    ).parts
    return read(file, arch)

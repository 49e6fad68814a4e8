"""Lists and hashes files."""

from __future__ import annotations

import hashlib
from pathlib import Path

__all__ = ["list_files", "sha256_file"]

_CHUNK = 1 << 20


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def list_files(root: Path) -> list[str]:
    """Every file under ``root``, relative, with ``/``, sorted by code point: the same on any file system."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

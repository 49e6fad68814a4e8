"""Lists and hashes files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

__all__ = ["combined_digest", "list_files", "sha256_file"]

_CHUNK = 1 << 20


def sha256_file(path: Path) -> str:
    """SHA-256 of a file's content, in hex."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def combined_digest(files: Iterable[Path]) -> str:
    """SHA-256, in hex, over the SHA-256 of each file in turn: of their contents, not of their names."""
    total = hashlib.sha256()
    for file in files:
        total.update(bytes.fromhex(sha256_file(file)))
    return total.hexdigest()


def list_files(root: Path) -> list[str]:
    """Every file under ``root``, relative, with ``/``, sorted by code point: the same on any file system."""
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())

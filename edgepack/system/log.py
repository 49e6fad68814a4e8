"""Saved logs of failures: the newest few, in the cache folder."""

from __future__ import annotations

import re
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from edgepack.system.paths import cache_dir
from edgepack.system.private_files import ours_alone, private_folder

__all__ = ["is_log", "save_log"]

_KEEP = 20
_NAME = re.compile(r"edgepack-.+-[0-9]{8}-[0-9]{6}-[a-z0-9_]{8}\.log", re.DOTALL)


def save_log(name: str, text: str) -> Path | None:
    """Write ``text`` to a new file named after ``name`` and the time.

    Returns:
        its path, or None if no folder could be written to (a log must never hide the failure that it is
        about).
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for folder in _folders():
        with suppress(OSError):
            descriptor, path = tempfile.mkstemp(prefix=f"edgepack-{name}-{stamp}-", suffix=".log", dir=folder)
            with open(descriptor, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                file.write(text)
            _forget_old(folder, Path(path))
            return Path(path)
    return None


def is_log(name: str) -> bool:
    """Whether a file of this name is a log that :func:`save_log` wrote."""
    return _NAME.fullmatch(name) is not None


def _folders() -> Iterator[Path]:
    with suppress(OSError):
        yield private_folder(cache_dir() / "logs")
    with suppress(OSError):
        yield Path(tempfile.gettempdir())


def _forget_old(folder: Path, newest: Path) -> None:
    """Remove the oldest logs of this user; a file of another name may be anybody's."""
    with suppress(OSError):
        others = [
            path
            for path in folder.glob("edgepack-*.log")
            if path != newest and is_log(path.name) and ours_alone(path.lstat())
        ]
        for old in sorted(others, key=lambda path: path.stat().st_mtime)[: -_KEEP + 1]:
            old.unlink()

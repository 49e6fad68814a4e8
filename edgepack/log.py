"""Saved logs of failures: the newest few, in the cache folder."""

from __future__ import annotations

import tempfile
import time
from contextlib import suppress
from pathlib import Path

from edgepack.paths import cache_dir

__all__ = ["save_log"]

_KEEP = 20


def save_log(name: str, text: str) -> Path | None:
    """Write ``text`` to a new file named after ``name`` and the time.

    Returns:
        its path, or None if no folder could be written to (a log must never hide the failure that it is
        about).
    """
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for folder in (cache_dir() / "logs", Path(tempfile.gettempdir())):
        with suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            descriptor, path = tempfile.mkstemp(prefix=f"edgepack-{name}-{stamp}-", suffix=".log", dir=folder)
            with open(descriptor, "w", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                file.write(text)
            _forget_old(folder, Path(path))
            return Path(path)
    return None


def _forget_old(folder: Path, newest: Path) -> None:
    with suppress(OSError):
        others = [path for path in folder.glob("edgepack-*.log") if path != newest]
        for old in sorted(others, key=lambda path: path.stat().st_mtime)[: -_KEEP + 1]:
            old.unlink()

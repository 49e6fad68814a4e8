"""The folder in which zig keeps what it compiles: held while it is used, and bounded.

zig itself forgets nothing, and only it knows which of its results a manifest stands for: where a manifest is
there and its result is not, a compilation fails. So the folder is emptied as a whole, manifests first, and
never while a process that may start zig is there: each has the folder's lock file locked, shared, as long as
it lives. Its libraries are then built again on the next link for a target (5 to 60 s).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from edgepack.pipeline.cache import cache_limit
from edgepack.system.deadline import TICK
from edgepack.system.private_files import OwnFolder, own_folder
from edgepack.system.temporary import cache_folder

__all__ = ["COMPILER_CACHE", "compiler_cache", "compiler_cache_limit", "empty", "folder_size"]

#: Its name in the cache folder.
COMPILER_CACHE = "zig"
#: The lock file, and the file whose time says when the folder was measured.
LOCK, MEASURED = ".in-use", ".measured"
#: The least limit in bytes: less than zig's libraries for a few targets would only be built over and over.
_LEAST = 256 << 20
#: Seconds between two measurements, and until a process that empties the folder is no longer waited for.
_MEASURE_AFTER, _PATIENCE = 3600.0, 60.0
#: zig's manifests.
_MANIFESTS = "h"


def compiler_cache_limit() -> int:
    """Bytes that it may take: a quarter of what the results may, and 256 MiB at least."""
    return max(cache_limit() // 4, _LEAST)


def compiler_cache() -> Path:
    """The folder, held until this process ends; emptied first if it is larger than the limit and no other
    process holds it."""
    return _held(cache_folder(COMPILER_CACHE), compiler_cache_limit())


@cache
def _held(path: Path, limit: int) -> Path:
    with suppress(OSError), own_folder(path) as folder:
        if _is_due(folder) and folder_size(path)[0] > limit:
            empty(path)
        # Never closed: the lock is this process's until it ends.
        lock = folder.open(LOCK, os.O_RDWR | os.O_CREAT)
        until = time.monotonic() + _PATIENCE
        while _lock(lock, shared=True) is False and time.monotonic() < until:
            time.sleep(TICK)
    return path


def _is_due(folder: OwnFolder) -> bool:
    """Whether the folder was not measured lately; if so, it is from now on."""
    with suppress(FileNotFoundError):
        if 0 <= time.time() - folder.status(MEASURED).st_mtime < _MEASURE_AFTER:
            return False
    os.close(folder.open(MEASURED, os.O_WRONLY | os.O_CREAT))
    path, where = folder.at(MEASURED)
    os.utime(path, **where)
    return True


def empty(path: Path) -> bool:
    """Remove all that is in the folder ``path`` but its lock.

    Returns:
        whether it could be: False while a process holds it, and where the system has no such locks.

    Raises:
        OSError: it is not this user's alone, is a link, or is not there.
    """
    with own_folder(path) as folder, _alone(folder) as alone:
        if alone:
            names = [name for name in folder.names() if name not in (LOCK, MEASURED)]
            for name in sorted(names, key=lambda one: (one != _MANIFESTS, one)):
                folder.remove(name)
        return alone


@contextmanager
def _alone(folder: OwnFolder) -> Iterator[bool]:
    lock = folder.open(LOCK, os.O_RDWR | os.O_CREAT)
    try:
        yield _lock(lock, shared=False) is True
    finally:
        os.close(lock)


def _lock(file: int, *, shared: bool) -> bool | None:
    """Whether this process got the lock; None where the system has none that can be shared."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def folder_size(path: Path) -> tuple[int, int, float]:
    """Bytes and number of the files below a folder, and when the newest was written (seconds since 1970; 0.0
    for none). No link is followed; what cannot be read counts as nothing."""
    total, number, newest = 0, 0, 0.0
    for root, _, files in os.walk(path):
        for name in files:
            with suppress(OSError):
                status = (Path(root) / name).lstat()
                if name not in (LOCK, MEASURED):
                    total, number = total + status.st_size, number + 1
                    newest = max(newest, status.st_mtime)
    return total, number, newest

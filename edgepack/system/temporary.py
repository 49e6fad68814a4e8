"""Folders for what is made on the way, and what killed processes left of such folders.

A folder of edgepack's ends in a random token, and its marker holds the same token. Its lock file is locked as
long as its process lives. (One whose process was killed before the marker was written is empty but for them.)
Only what is so marked, belongs to this user, and can be written by nobody else is
taken for edgepack's: in a folder that others write to, such as the system's for temporary files, they can
make folders of any name with anything in them (``private_files.py`` asks).
"""

from __future__ import annotations

import atexit
import json
import os
import re
import secrets
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import cache
from pathlib import Path

from edgepack.errors import EdgepackWarning
from edgepack.system.paths import CACHE_ENV, cache_dir
from edgepack.system.private_files import OwnFolder, check_around, entered, ours_alone, private_folder

__all__ = [
    "LOCK",
    "MARKER",
    "OLD",
    "before_removal",
    "cache_folder",
    "remove_dead",
    "temporary_folder",
    "try_lock",
]

#: File with the folder's token, and what it is to become; written when the lock is held.
MARKER = ".edgepack"
#: File that the folder's process has locked.
LOCK = ".lock"
#: What stood where the folder is to go, moved into it: a killed process' neighbour puts it back.
OLD = "old"

#: How often a folder is tried to be removed, and the seconds in between.
_ATTEMPTS, _PAUSE = 20, 0.05
#: Bytes that a cache must take to be used.
_PROBED = 1 << 16

_NAME = re.compile(r"(?:\..{0,40}\.)?edgepack-([0-9a-f]{12})", re.DOTALL)


@contextmanager
def temporary_folder(
    parent: Path | None = None, *, prefix: str = "", destination: str = ""
) -> Iterator[Path]:
    """A new folder that only this user may enter, removed at the end with all that is in it.

    Args:
        parent: where; default the system's folder for temporary files, from which what killed processes of
            this user left is removed first.
        prefix: of its name.
        destination: name beside it that it is to become, to which ``old`` in it belongs.

    Raises:
        OSError: it cannot be made.
    """
    if parent is None:
        parent = Path(tempfile.gettempdir())
        _remove_dead_once(parent)
    root, lock = _make(parent, prefix, destination)
    try:
        yield root
    finally:
        try:
            for ending in _endings.pop(root, {}).values():
                ending(root)
        finally:
            os.close(lock)
            with suppress(OSError), entered(parent) as beside, entered(Path(root.name), beside) as folder:
                _put_back(folder, beside, destination)
            _remove(root)


def before_removal(path: Path, key: Hashable, ending: Callable[[Path], None]) -> Path | None:
    """Have something done before the temporary folder that holds ``path`` is removed by who made it.

    Args:
        key: of what is done: once for each key, however often this is called.
        ending: is given the temporary folder; what it raises passes through.

    Returns:
        the temporary folder of this process that holds ``path``; None if none does.
    """
    for root in [root for root, process in _own.items() if process == os.getpid()]:
        if path.is_relative_to(root) or path.is_relative_to(root.resolve()):
            _endings.setdefault(root, {})[key] = ending
            return root
    return None


def remove_dead(parent: Path) -> None:
    """Remove the folders that killed processes of this user left in ``parent``; others stay as they are."""
    with suppress(OSError), entered(parent) as beside:
        for name in beside.names():
            if found := _NAME.fullmatch(name):
                with suppress(OSError, ValueError, RecursionError):
                    _remove_if_dead(beside, name, found[1])


def cache_folder(name: str) -> Path:
    """The folder ``name`` of the cache, which only this user may enter. Where it cannot be made or written
    (there is no home, the disk is full or read-only), or others can write to it, a temporary one, for as long
    as this process lives: what another user may have put there would end up in bundles."""
    return _cache_folder(cache_dir() / name)


@cache
def _cache_folder(path: Path) -> Path:
    try:
        folder = private_folder(path)
        check_around(folder)
        with tempfile.TemporaryFile(dir=folder) as probe:
            probe.write(bytes(_PROBED))
        return folder
    except OSError as error:
        text = f"the cache {path} is not used: {error.strerror or error}. {CACHE_ENV} names another folder."
        warnings.warn(text, EdgepackWarning, stacklevel=3)
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(temporary_folder())


@cache
def _remove_dead_once(parent: Path) -> None:
    remove_dead(parent)


#: This process's folders that are still there.
_own: dict[Path, int] = {}
#: What is done before one of them is removed.
_endings: dict[Path, dict[Hashable, Callable[[Path], None]]] = {}


def _order(name: str) -> int:
    return (MARKER, LOCK).index(name) + 1 if name in (MARKER, LOCK) else 0


def _remove(root: Path) -> None:
    """The marker and the lock last, when all else is gone: by them the rest is known if that cannot be
    removed, or this process is killed here. What was killed just now may still write for a moment."""
    with suppress(OSError):
        for _ in range(_ATTEMPTS):
            for inside in set(os.listdir(root)) - {MARKER, LOCK}:
                path = root / inside
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            if set(os.listdir(root)) <= {MARKER, LOCK}:
                for inside in (MARKER, LOCK):
                    (root / inside).unlink(missing_ok=True)
                root.rmdir()
                break
            time.sleep(_PAUSE)
    _own.pop(root, None)


@atexit.register
def _remove_own() -> None:
    """What an exception from outside (a signal), between two steps of this module, kept it from removing."""
    for root in [root for root, process in _own.items() if process == os.getpid()]:
        _remove(root)


def _make(parent: Path, prefix: str, destination: str) -> tuple[Path, int]:
    while True:
        token = secrets.token_hex(6)
        root = parent / f"{prefix}edgepack-{token}"
        _own[root] = os.getpid()
        try:
            root.mkdir(mode=0o700)
        except FileExistsError:
            del _own[root]
            continue
        except OSError:
            del _own[root]
            raise
        lock = _marked(root, token, destination)
        if lock is not None:
            return root, lock
        _remove(root)


def _marked(root: Path, token: str, destination: str) -> int | None:
    """Lock a new folder and write its marker. None if somebody took it for one that a killed process left."""
    new = os.O_RDWR | os.O_CREAT | os.O_EXCL
    lock = -1
    try:
        with entered(root) as folder:
            lock = folder.open(LOCK, new)
            if not try_lock(lock) or os.fstat(lock).st_nlink == 0:
                os.close(lock)
                return None
            with os.fdopen(folder.open(MARKER, new), "w", encoding="utf-8") as marker:
                json.dump({"token": token, "destination": destination}, marker)
    except BaseException as error:  # a full disk, an interrupt: without a marker nobody would ever remove it
        if lock >= 0:
            os.close(lock)
        elif isinstance(error, FileNotFoundError) and root.parent.is_dir():
            return None
        _remove(root)
        raise
    return lock


def _remove_if_dead(beside: OwnFolder, name: str, token: str) -> None:
    with entered(Path(name), beside) as folder:
        if not ours_alone(folder.own()):
            return
        if folder.names() and not _emptied(folder, beside, token):
            return
    path, where = beside.at(name)
    os.rmdir(path, **where)  # by its name, so no more than an empty folder


def _emptied(folder: OwnFolder, beside: OwnFolder, token: str) -> bool:
    """Remove all that a process left in its folder, if that process has ended."""
    lock = folder.open(LOCK, os.O_RDWR)
    try:
        if not ours_alone(os.fstat(lock)) or not try_lock(lock):
            return False
        destination = "" if _unfinished(folder) else _destination(folder, token)
        if destination is None:
            return False
        _put_back(folder, beside, destination)
        for inside in sorted(folder.names(), key=_order):
            path, where = folder.at(inside)
            if inside == MARKER and set(folder.names()) - {MARKER, LOCK}:
                return False  # something could not be removed, and is to be known by its marker
            if stat.S_ISDIR(folder.status(inside).st_mode):
                shutil.rmtree(path, ignore_errors=True, **where)
            else:
                os.unlink(path, **where)
        return True
    finally:
        os.close(lock)


def _unfinished(folder: OwnFolder) -> bool:
    """Whether its process was killed before the marker was written: nothing is in it but what that needs."""
    names = set(folder.names())
    return names == {LOCK} or (names == {LOCK, MARKER} and folder.status(MARKER).st_size == 0)


def _destination(folder: OwnFolder, token: str) -> str | None:
    """What the marker says that the folder is to become ("" for nothing); None if the marker is not ours."""
    file = folder.open(MARKER, os.O_RDONLY)
    try:
        status = os.fstat(file)
        if not ours_alone(status) or not stat.S_ISREG(status.st_mode):
            return None
        said = json.loads(os.read(file, 4096))
    finally:
        os.close(file)
    if not isinstance(said, dict) or said.get("token") != token:
        return None
    name = said.get("destination")
    sibling = isinstance(name, str) and "\0" not in name and name in {"", Path(name).name}
    return str(name) if sibling and name != ".." else None


def _put_back(folder: OwnFolder, beside: OwnFolder, destination: str) -> None:
    """Give a replaced folder its place again if the new one did not get there."""
    if not destination:
        return
    with suppress(FileNotFoundError):
        beside.status(destination)
        return
    with suppress(OSError):
        if stat.S_ISDIR(folder.status(OLD).st_mode):
            folder.rename(OLD, beside, destination)


def try_lock(file: int) -> bool:
    """Whether this process got the lock, which the system releases when the process ends."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True

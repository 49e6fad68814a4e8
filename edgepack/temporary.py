"""Folders for what is made on the way, and what killed processes left of such folders.

A folder of edgepack's ends in a random token, and its marker holds the same token. Its lock file is locked as
long as its process lives. Only what is so marked, belongs to this user, and can be written by nobody else is
taken for edgepack's: in a folder that others write to, such as the system's for temporary files, they can
make folders of any name with anything in them. All of this goes by descriptors and follows no symbolic link
(as git's ``safe.directory`` and OpenSSH's checks of owners and modes do), where the system has that.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["LOCK", "MARKER", "OLD", "remove_dead", "temporary_folder"]

#: File with the folder's token, and what it is to become; written when the lock is held.
MARKER = ".edgepack"
#: File that the folder's process has locked.
LOCK = ".lock"
#: What stood where the folder is to go, moved into it: a killed process' neighbour puts it back.
OLD = "old"

_NAME = re.compile(r"(?:\..{0,40}\.)?edgepack-([0-9a-f]{12})", re.DOTALL)
# shutil.rmtree takes descriptors since Python 3.11.
_BY_DESCRIPTOR = {os.open, os.stat, os.rename, os.rmdir} <= os.supports_dir_fd and sys.version_info >= (3, 11)
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


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
        os.close(lock)
        with suppress(OSError), _entered(parent) as beside, _entered(Path(root.name), beside) as folder:
            _put_back(folder, beside, destination)
        shutil.rmtree(root, ignore_errors=True)


def remove_dead(parent: Path) -> None:
    """Remove the folders that killed processes of this user left in ``parent``; others stay as they are."""
    with suppress(OSError), _entered(parent) as beside:
        for name in beside.names():
            if found := _NAME.fullmatch(name):
                with suppress(OSError, ValueError, RecursionError):
                    _remove_if_dead(beside, name, found[1])


@cache
def _remove_dead_once(parent: Path) -> None:
    remove_dead(parent)


def _make(parent: Path, prefix: str, destination: str) -> tuple[Path, int]:
    while True:
        token = secrets.token_hex(6)
        root = parent / f"{prefix}edgepack-{token}"
        try:
            root.mkdir(mode=0o700)
            break
        except FileExistsError:
            continue
    new = os.O_RDWR | os.O_CREAT | os.O_EXCL | _FLAGS
    try:
        lock = os.open(root / LOCK, new, 0o600)
        _try_lock(lock)
        with os.fdopen(os.open(root / MARKER, new, 0o600), "w", encoding="utf-8") as marker:
            json.dump({"token": token, "destination": destination}, marker)
    except BaseException:  # a full disk, an interrupt: without a marker nobody would ever remove it
        shutil.rmtree(root, ignore_errors=True)
        raise
    return root, lock


class _Folder:
    """An open folder; what is in it is reached by its descriptor where the system can do that."""

    def __init__(self, path: Path, within: _Folder | None) -> None:
        self.path: Path = path if within is None else within.path / path
        self.fd: int | None = None
        if _BY_DESCRIPTOR:
            flags = os.O_RDONLY | os.O_DIRECTORY | (0 if within is None else _FLAGS)
            self.fd = os.open(path, flags, dir_fd=None if within is None else within.fd)
        elif within is not None and (self.path.is_symlink() or not self.path.is_dir()):
            raise NotADirectoryError(str(self.path))

    def at(self, name: str) -> tuple[str, dict[str, Any]]:
        """The arguments by which a function of :mod:`os` reaches what is in it."""
        return (str(self.path / name), {}) if self.fd is None else (name, {"dir_fd": self.fd})

    def names(self) -> list[str]:
        return os.listdir(self.path if self.fd is None else self.fd)

    def status(self, name: str) -> os.stat_result:
        path, where = self.at(name)
        return os.stat(path, follow_symlinks=False, **where)

    def open(self, name: str, flags: int) -> int:
        path, where = self.at(name)
        return os.open(path, flags | _FLAGS, **where)

    def own(self) -> os.stat_result:
        return os.stat(self.path) if self.fd is None else os.fstat(self.fd)


@contextmanager
def _entered(path: Path, within: _Folder | None = None) -> Iterator[_Folder]:
    folder = _Folder(path, within)
    try:
        yield folder
    finally:
        if folder.fd is not None:
            os.close(folder.fd)


def _remove_if_dead(beside: _Folder, name: str, token: str) -> None:
    with _entered(Path(name), beside) as folder:
        if not _ours_alone(folder.own()):
            return
        destination = _destination(folder, token)
        lock = folder.open(LOCK, os.O_RDWR)
        try:
            if destination is None or not _ours_alone(os.fstat(lock)) or not _try_lock(lock):
                return
        finally:
            os.close(lock)
        _put_back(folder, beside, destination)
        for inside in folder.names():
            path, where = folder.at(inside)
            if stat.S_ISDIR(folder.status(inside).st_mode):
                shutil.rmtree(path, ignore_errors=True, **where)
            else:
                os.unlink(path, **where)
    path, where = beside.at(name)
    os.rmdir(path, **where)  # by its name, so no more than an empty folder


def _destination(folder: _Folder, token: str) -> str | None:
    """What the marker says that the folder is to become ("" for nothing); None if the marker is not ours."""
    file = folder.open(MARKER, os.O_RDONLY)
    try:
        status = os.fstat(file)
        if not _ours_alone(status) or not stat.S_ISREG(status.st_mode):
            return None
        said = json.loads(os.read(file, 4096))
    finally:
        os.close(file)
    if not isinstance(said, dict) or said.get("token") != token:
        return None
    name = said.get("destination")
    sibling = isinstance(name, str) and "\0" not in name and name in {"", Path(name).name}
    return str(name) if sibling and name != ".." else None


def _put_back(folder: _Folder, beside: _Folder, destination: str) -> None:
    """Give a replaced folder its place again if the new one did not get there."""
    if not destination:
        return
    with suppress(FileNotFoundError):
        beside.status(destination)
        return
    with suppress(OSError):
        if stat.S_ISDIR(folder.status(OLD).st_mode):
            old, new = folder.at(OLD), beside.at(destination)
            descriptors = {} if folder.fd is None else {"src_dir_fd": folder.fd, "dst_dir_fd": beside.fd}
            os.rename(old[0], new[0], **descriptors)


def _ours_alone(status: os.stat_result) -> bool:
    """Whether it belongs to this user, and nobody else may write it. (Windows has other means, and a folder
    for temporary files of each user's own.)"""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _try_lock(file: int) -> bool:
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

"""Folders and files that belong to this user, and that nobody else may write to.

What lies in a folder is reached by the folder's descriptor, without following symbolic links, and it is
asked for its owner and mode when it is open: so nobody puts something else there in between (git's
``safe.directory`` and OpenSSH look at owners and modes alike). Where the system cannot do that, by paths.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = [
    "NotOursError",
    "OwnFolder",
    "check_around",
    "entered",
    "ours_alone",
    "own_folder",
    "private_folder",
    "read_own_file",
]

# shutil.rmtree takes descriptors since Python 3.11.
_BY_DESCRIPTOR = {os.open, os.stat, os.rename, os.rmdir} <= os.supports_dir_fd and sys.version_info >= (3, 11)
_FLAGS = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_BINARY", 0)
)


#: root, and the user that a container shows for those that it does not know, such as the machine's root.
_SYSTEM = (0, 65534)


#: Folders and links on the way to a path, at most: links may go round.
_MOST_STEPS = 1000


class NotOursError(OSError):
    """The file or folder belongs to another user, or others may write to it."""


class OwnFolder:
    """An open folder; what is in it is reached by its descriptor where the system can do that."""

    def __init__(self, path: Path, within: OwnFolder | None) -> None:
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
        return os.open(path, flags | _FLAGS, 0o600, **where)

    def own(self) -> os.stat_result:
        return os.stat(self.path) if self.fd is None else os.fstat(self.fd)

    def make(self, prefix: str) -> str:
        """A new folder in it, for this user alone: its name."""
        while True:
            name = f"{prefix}{secrets.token_hex(6)}"
            path, where = self.at(name)
            try:
                os.mkdir(path, 0o700, **where)
                return name
            except FileExistsError:
                continue

    def make_known(self, name: str) -> None:
        """A folder of this name in it, for this user alone, if there is none."""
        path, where = self.at(name)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700, **where)

    def rename(self, name: str, to: OwnFolder, new: str) -> None:
        old, place = self.at(name), to.at(new)
        descriptors = {} if self.fd is None else {"src_dir_fd": self.fd, "dst_dir_fd": to.fd}
        os.rename(old[0], place[0], **descriptors)

    def remove(self, name: str) -> None:
        """Remove what has this name, with all that is in it; what cannot be removed stays."""
        path, where = self.at(name)
        try:
            os.unlink(path, **where)
        except FileNotFoundError:
            return
        except OSError:  # a folder; rmtree follows no link
            shutil.rmtree(path, ignore_errors=True, **where)

    def files(self) -> Iterator[tuple[str, OwnFolder, str]]:
        """Each file below it: its path from here, with ``/``, the open folder that holds it, and its name
        there, sorted by name. No link is followed.

        Raises:
            OSError: there is something that is neither file nor folder, or a folder cannot be read.
        """
        for name in sorted(self.names()):
            mode = self.status(name).st_mode
            if stat.S_ISDIR(mode):
                with entered(Path(name), self) as folder:
                    for path, holder, leaf in folder.files():
                        yield f"{name}/{path}", holder, leaf
            elif stat.S_ISREG(mode):
                yield name, self, name
            else:
                raise OSError(f"{self.path / name} is neither file nor folder")

    @contextmanager
    def hidden(self, prefix: str) -> Iterator[OwnFolder]:
        """A new folder in it, for this user alone, while it is open; removed at the end if it is still there.

        It is locked, where the system can lock folders: :meth:`remove_hidden` knows by that whether its
        process was killed.
        """
        while (folder := self._locked(name := self.make(prefix))) is None:
            pass  # between its making and its lock it looked as if its process had been killed
        try:
            yield folder
        finally:
            self.remove(name)
            if folder.fd is not None:
                os.close(folder.fd)

    def _locked(self, name: str) -> OwnFolder | None:
        try:
            folder = OwnFolder(Path(name), self)
        except FileNotFoundError:
            return None
        if folder.lock() is not False and folder.own().st_nlink > 0:
            return folder
        if folder.fd is not None:
            os.close(folder.fd)
        return None

    def lock(self) -> bool | None:
        """Whether this process got its lock, which the system releases with the descriptor; None where the
        system cannot lock folders."""
        if self.fd is None:
            return None
        try:
            import fcntl
        except ImportError:
            return None
        try:
            fcntl.flock(self.fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def remove_hidden(self, *prefixes: str) -> None:
        """Remove what killed processes left of :meth:`hidden`."""
        for name in self.names():
            if name.startswith(prefixes):
                with suppress(OSError), entered(Path(name), self) as folder:
                    if ours_alone(folder.own()) and folder.lock():
                        self.remove(name)

    def check(self) -> None:
        """Raise NotOursError unless it is ours alone."""
        if not ours_alone(self.own()):
            raise NotOursError(f"{self.path} belongs to another user, or others may write to it")


@contextmanager
def entered(path: Path, within: OwnFolder | None = None) -> Iterator[OwnFolder]:
    """The folder ``path``, in ``within`` if that is given (then no symbolic link is followed), while it is
    open. Raises OSError."""
    folder = OwnFolder(path, within)
    try:
        yield folder
    finally:
        if folder.fd is not None:
            os.close(folder.fd)


@contextmanager
def read_own_file(folder: OwnFolder, name: str) -> Iterator[int]:
    """The descriptor of a file in ``folder``.

    Raises:
        NotOursError: it belongs to another user, or others may write to it.
        OSError: it cannot be opened, or is no regular file.
    """
    file = folder.open(name, os.O_RDONLY)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{folder.path / name} is no regular file")
        if not ours_alone(status):
            raise NotOursError(f"{folder.path / name} belongs to another user, or others may write to it")
        yield file
    finally:
        os.close(file)


@contextmanager
def own_folder(path: Path) -> Iterator[OwnFolder]:
    """The folder ``path``, which is no symbolic link, while it is open.

    Raises:
        NotOursError: it belongs to another user, or others may write to it.
        OSError: it cannot be opened, or is a link: somebody who may write to the folder around it could have
            put it there, and it could lead to any other folder of this user.
    """
    with entered(path.parent) as beside, entered(Path(path.name), beside) as folder:
        folder.check()
        yield folder


def private_folder(path: Path) -> Path:
    """The folder ``path``, made if it is not there, that no other user may enter.

    Raises:
        OSError: as :func:`own_folder`, or it cannot be made.
    """
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)  # the mode holds for the last one only
    path.mkdir(exist_ok=True, mode=0o700)
    with own_folder(path) as folder:
        if folder.fd is not None and stat.S_IMODE(folder.own().st_mode) != 0o700:
            os.fchmod(folder.fd, 0o700)
    return path


def check_around(path: Path, *owners: int, group: bool = False) -> None:
    """Raise NotOursError if another user could put something else in the place of ``path``.

    What is reached by its path, by another program, is only as safe as the folders on the way to it, behind
    links too: each belongs to this user or to the system, and so does a link; and if others may write to such
    a folder, they may not rename what is not theirs (the sticky bit).

    Args:
        path: it need not exist.
        owners: numbers of other users who may own a folder around it: in a container, of whose project root
            works on.
        group: whether that a group may write to one is as bad. Otherwise it is left to the group.
    """
    if not hasattr(os, "geteuid"):
        return
    writable = stat.S_IWOTH | (stat.S_IWGRP if group else 0)
    for place in _on_the_way(path):
        try:
            status = os.stat(place, follow_symlinks=False)
        except FileNotFoundError:
            continue  # it is made when it is needed
        theirs = status.st_uid not in (os.geteuid(), *_SYSTEM, *owners)
        open_to_others = status.st_mode & writable and not status.st_mode & stat.S_ISVTX
        if theirs or (open_to_others and not stat.S_ISLNK(status.st_mode)):
            raise NotOursError(f"{place} around it belongs to another user, or others may write to it")


def _on_the_way(path: Path) -> Iterator[Path]:
    """The folders and links by which ``path`` is reached; itself only if it is a link."""
    path = path.absolute()
    here, todo = Path(path.anchor), [*reversed(path.parts[1:])]
    for _ in range(_MOST_STEPS):
        if not todo:
            return
        name = todo.pop()
        yield here
        place = here.parent if name == ".." else here / name
        if not place.is_symlink():
            here = place
            continue
        yield place
        target = place.readlink()
        if target.is_absolute():
            here = Path(target.anchor)
        todo += reversed(target.parts[1:] if target.is_absolute() else target.parts)
    raise NotOursError(f"{path} is reached by more than {_MOST_STEPS} folders and links")


def ours_alone(status: os.stat_result) -> bool:
    """Whether it belongs to this user, and nobody else may write it. (Windows has other means, and folders
    of each user's own.)"""
    if not hasattr(os, "geteuid"):
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)

"""Puts a file or a folder in another one's place as one act, which a power cut leaves done or not begun.

What is new lies beside its place already. It is flushed to the disk, then renamed; a folder changes places
with the one that stands there where the system can do that (``renameat2`` with ``RENAME_EXCHANGE`` on Linux,
``renamex_np`` with ``RENAME_SWAP`` on macOS), so that at each moment one of the two is there.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import stat
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

__all__ = ["flush_tree", "replace_file", "replace_folder", "write_file"]

#: Flushes at once: a journal's commit then holds several of them, at a fifth of the time.
_FLUSHES = 8
#: Characters of the token in the name of a file that is being written.
_TOKEN = 12
_AT_FDCWD, _RENAME_EXCHANGE, _RENAME_SWAP = -100, 2, 2
#: What file systems say that have no such exchange, or no flush of folders.
_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EBADF}


def write_file(target: Path, content: bytes, mode: int = 0o644) -> None:
    """Write a file whole, in the place of one that may be there; a link there is replaced, not followed.

    What a killed process leaves is called ``.NAME.TOKEN``, TOKEN being hexadecimal; the next one that writes
    this file removes it.

    Raises:
        OSError: it cannot be written; ``target`` is then what it was.
    """
    _remove_left(target)
    new, file = _new(target)
    try:
        with os.fdopen(file, "wb") as open_file:
            open_file.write(content)
            open_file.flush()
            new.chmod(mode)
            if os.name == "nt":  # which renames no open file, and locks none here
                open_file.close()
            replace_file(new, target)
    except BaseException:
        new.unlink(missing_ok=True)
        raise


def _new(target: Path) -> tuple[Path, int]:
    """A file beside ``target`` that is locked while its process writes it, and its descriptor."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
    while True:
        new = target.with_name(f".{target.name}.{secrets.token_hex(_TOKEN // 2)}")
        file = os.open(new, flags, 0o600)
        if _locked(file) is not False and os.fstat(file).st_nlink > 0:
            return new, file
        os.close(file)  # another process took it for one that was left


def _remove_left(target: Path) -> None:
    """Remove what processes left that were killed while they wrote ``target``: this user's files of such
    names that nobody has locked. (Where files cannot be locked they stay.)"""
    if not hasattr(os, "geteuid"):
        return
    name = re.compile(rf"\.{re.escape(target.name)}\.[0-9a-f]{{{_TOKEN}}}")
    flags = os.O_RDWR | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with suppress(OSError):
        for left in [path for path in target.parent.iterdir() if name.fullmatch(path.name)]:
            with suppress(OSError):
                file = os.open(left, flags)
                try:
                    status = os.fstat(file)
                    ours = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid()
                    if ours and status.st_nlink == 1 and _locked(file):
                        left.unlink()
                finally:
                    os.close(file)


def _locked(file: int) -> bool | None:
    """Whether this process got a file's lock; None where the system has no such locks."""
    try:
        import fcntl
    except ImportError:
        return None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return None if error.errno in {*_UNSUPPORTED, errno.ENOLCK} else False
    return True


def replace_file(new: Path, target: Path) -> None:
    """Put the file ``new``, which is on the same file system, in the place of ``target``, which may be there.

    Raises:
        OSError: it cannot be flushed or renamed; ``target`` is then what it was.
    """
    _flush(new)
    new.replace(target)
    _flush(target.parent)


def replace_folder(new: Path, target: Path, old: Path) -> None:
    """Put the folder ``new``, which is on the same file system, in the place of ``target``.

    Args:
        new: what it holds is flushed to the disk first. Where ``target`` is there, ``new`` or ``old`` is
            afterwards what it was.
        old: a name that is free, where what is replaced lies until ``new`` is in its place, if the system
            cannot exchange two folders.

    Raises:
        OSError: it cannot be flushed or renamed; ``target`` is then what it was.
    """
    flush_tree(new)
    if not os.path.lexists(target):
        new.rename(target)
    elif not _exchanged(new, target):
        target.rename(old)
        try:
            new.rename(target)
        except BaseException:
            with suppress(OSError):
                old.rename(target)
            raise
    _flush(target.parent)


def flush_tree(root: Path) -> None:
    """Have the disk hold a folder with all that is in it; symbolic links are not followed. Raises OSError."""
    paths = [root]
    for folder, folders, files in os.walk(root):
        paths += [Path(folder, name) for name in (*folders, *files)]
    with ThreadPoolExecutor(_FLUSHES) as executor:
        for _ in executor.map(_flush, (path for path in paths if not path.is_symlink())):
            pass  # an error is raised here


def _flush(path: Path) -> None:
    if os.name == "nt":  # it flushes what it may write only, and no folders
        if path.is_file():
            with path.open("r+b") as file:
                os.fsync(file.fileno())
        return
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def _exchanged(one: Path, other: Path) -> bool:
    """Whether two names changed places; False where the system or the file system cannot do that."""
    if os.name == "nt":
        return False
    library = ctypes.CDLL(None, use_errno=True)
    first, second = os.fsencode(one), os.fsencode(other)
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        failed = library.renamex_np(first, second, ctypes.c_uint(_RENAME_SWAP))
    elif sys.platform == "linux" and hasattr(library, "renameat2"):
        flag = ctypes.c_uint(_RENAME_EXCHANGE)
        failed = library.renameat2(_AT_FDCWD, first, _AT_FDCWD, second, flag)
    else:
        return False
    number = ctypes.get_errno()
    if failed and number not in _UNSUPPORTED:
        raise OSError(number, os.strerror(number), str(other))
    return not failed

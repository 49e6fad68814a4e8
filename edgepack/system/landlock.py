"""Takes from this process, for good, the files that it does not need: Linux's Landlock.

Landlock (https://docs.kernel.org/userspace-api/landlock.html) needs neither root nor a program beside it.
The constants are those of ``linux/landlock.h``; its system calls have the same numbers on all architectures.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
from collections.abc import Iterable

__all__ = ["abi", "restrict"]

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _REMOVE_DIR, _REMOVE_FILE = (1 << bit for bit in range(6))
_MAKE_CHAR, _MAKE_DIR, _MAKE_REG, _MAKE_SOCK, _MAKE_FIFO, _MAKE_BLOCK, _MAKE_SYM = (
    1 << bit for bit in range(6, 13)
)
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

#: The last right on files that each version of the interface knows; later ones know no more.
_LAST_RIGHT = {1: _MAKE_SYM, 2: _REFER, 3: _TRUNCATE, 4: _TRUNCATE}
#: Rights that a file may have; the others are of folders.
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV

_READS = _READ_FILE | _READ_DIR
#: Neither links nor devices, pipes and sockets: who looks at what was written follows none.
_WRITES = _READS | _WRITE_FILE | _REMOVE_DIR | _REMOVE_FILE | _MAKE_DIR | _MAKE_REG | _REFER | _TRUNCATE

#: Of the network: to bind to a TCP port, and to connect to one (from version 4 on). Of other processes:
#: abstract Unix sockets, and signals (from version 6 on).
_TCP, _SCOPES = 3, 3


def abi() -> int:
    """The version of the interface that the kernel has; 0 for none."""
    return max(0, _call(_CREATE_RULESET, None, 0, _ASK_VERSION))


def restrict(
    *,
    reads: Iterable[str | os.PathLike[str]],
    writes: Iterable[str | os.PathLike[str]],
    own: Iterable[str | os.PathLike[str]] = (),
    version: int,
) -> None:
    """From now on this thread, and those that it starts, open nothing but this. No program is started.

    Paths that are not there are left out.

    Args:
        reads: files, and folders with all that is below, which may be read.
        writes: such that may be written, where files and folders may be made and removed too.
        own: such in which symbolic links may be made besides.
        version: of the interface, at most what :func:`abi` says.

    Raises:
        OSError: the kernel refuses.
    """
    last = _LAST_RIGHT.get(version, _IOCTL_DEV)
    handled = 2 * last - 1
    attributes = struct.pack("QQQ", handled, _TCP if version >= 4 else 0, _SCOPES if version >= 6 else 0)
    # A kernel takes what is longer than it knows where the rest is zeros.
    ruleset = _checked(_call(_CREATE_RULESET, attributes, len(attributes), 0))
    try:
        for paths, rights in ((reads, _READS), (writes, _WRITES), (own, _WRITES | _MAKE_SYM)):
            for path in paths:
                _allow(ruleset, path, rights & handled)
        _checked(_call(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: str | os.PathLike[str], rights: int) -> None:
    try:
        opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not stat.S_ISDIR(os.fstat(opened).st_mode):
            rights &= _OF_FILES
        _checked(_call(_ADD_RULE, ruleset, _PATH_BENEATH, struct.pack("=Qi", rights, opened), 0))
    finally:
        os.close(opened)


def _call(number: int, *arguments: int | bytes | None) -> int:
    """A system call with pointers and ints; -1 for an error."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    given = [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]
    return int(libc.syscall(ctypes.c_long(number), *given))


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return result

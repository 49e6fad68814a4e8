"""How many bytes the cache holds, without a look at each entry: a file to which each store appends the bytes
of its own, one decimal number a line.

The sum is about right: it does not know of what is removed, nor of what an older edgepack stores. So it says
when to look, and the look says what is there. A file that is not there, is damaged or has become long is a
reason to look, too.
"""

from __future__ import annotations

import os
from contextlib import suppress

from edgepack.system.private_files import OwnFolder, read_own_file

__all__ = ["TOTAL", "add", "start"]

#: The file's name, in the folder of the entries.
TOTAL = ".total"
_LONGEST = 16 << 10  # of the file, in bytes: a look every two thousand stores or so


def add(root: OwnFolder, nbytes: int) -> int | None:
    """Counts an entry that was stored: the bytes of all since the last look and what that found; None where
    nobody knows.

    Raises:
        OSError: the file cannot be written or read, or others may write to it.
    """
    with suppress(FileNotFoundError):
        _append(root, nbytes, os.O_APPEND)
        with read_own_file(root, TOTAL) as file:
            text = os.read(file, _LONGEST)
        with suppress(ValueError):
            numbers = [int(line) for line in text.split()]
            if len(text) < _LONGEST and len(numbers) > 1 and min(numbers) >= 0:
                return sum(numbers)
    return None


def start(root: OwnFolder, nbytes: int) -> None:
    """Notes what a look found. Raises OSError."""
    _append(root, nbytes, os.O_APPEND | os.O_CREAT | os.O_TRUNC)


def _append(root: OwnFolder, nbytes: int, flags: int) -> None:
    file = root.open(TOTAL, os.O_WRONLY | flags)
    try:
        os.write(file, b"%d\n" % nbytes)
    finally:
        os.close(file)

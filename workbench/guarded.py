"""Memory between two pages that nobody may read or write: what a kernel touches outside of a tensor ends the
process, also where it only reads.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

import numpy as np

__all__ = ["between_pages"]

_PAGE = mmap.PAGESIZE
#: No rights (``PROT_NONE``).
_NOTHING = 0


def between_pages(nbytes: int, alignment: int, *, at_start: bool = False) -> tuple[np.ndarray[Any, Any], int]:
    """Bytes whose neighbours are pages without any rights, where the system has such (not on Windows).

    Args:
        nbytes: that are asked for.
        alignment: of their address, a power of two of at most a page.
        at_start: whether they begin where the page before ends, or (with less than ``alignment`` bytes in
            between) end where the one behind begins.

    Returns:
        whole pages, to be written to, and where in these the bytes begin.
    """
    inside = max(1, -(-nbytes // _PAGE)) * _PAGE
    if os.name == "nt":
        return np.zeros(inside, np.uint8), 0
    pages = mmap.mmap(-1, inside + 2 * _PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    whole = np.frombuffer(pages, np.uint8)  # which keeps the pages as long as there are views of it
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, _PAGE + inside):
        if libc.mprotect(ctypes.c_void_p(whole.ctypes.data + page), ctypes.c_size_t(_PAGE), _NOTHING):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return whole[_PAGE : _PAGE + inside], 0 if at_start else (inside - nbytes) // alignment * alignment

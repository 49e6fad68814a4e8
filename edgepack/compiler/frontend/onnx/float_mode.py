"""The mode of this thread in which the CPU computes with denormal numbers as if they were zeros, as bundles
do (``templates/runtime/core/denormals.h``): by the C library's floating-point environment, where the mode is
a field of it.

ONNX Runtime has an option for it, which the first session of a process decides on for all of them
(``session.set_denormal_as_zero``), so that is not used.
"""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["flushed_denormals"]

_FLUSH_X86 = 1 << 6 | 1 << 15  # DAZ and FTZ of MXCSR
_FLUSH_ARM = 1 << 24  # FZ of FPCR
#: By system and machine: bytes of ``fenv_t``, of what size and where the register is in it, and its bits.
_PLACES: dict[tuple[str, str], tuple[int, type[ctypes._SimpleCData[int]], int, int]] = {
    ("linux", "x86_64"): (32, ctypes.c_uint32, 28, _FLUSH_X86),  # glibc and musl: bits/fenv.h
    ("linux", "aarch64"): (8, ctypes.c_uint32, 0, _FLUSH_ARM),
    ("darwin", "x86_64"): (16, ctypes.c_uint32, 4, _FLUSH_X86),
    ("darwin", "arm64"): (16, ctypes.c_uint64, 8, _FLUSH_ARM),
}
#: ``_controlfp_s`` of Windows' C library.
_DENORMALS_MASK, _DENORMALS_FLUSH = 0x03000000, 0x01000000


@contextmanager
def flushed_denormals(flushed: bool = True) -> Iterator[None]:
    """While the body runs, this thread takes denormal floats for zeros and makes none, where this machine can
    do that; other threads do as before."""
    if not flushed:
        yield
        return
    before = _set(None)
    try:
        yield
    finally:
        if before is not None:
            _set(before)


def _set(mode: int | None) -> int | None:
    """Set the mode (None: with denormals flushed); the one before, or None where there is no way."""
    if sys.platform == "win32":
        return _set_windows(mode)
    place = _PLACES.get((sys.platform, platform.machine()))
    if place is None:
        return None
    nbytes, kind, offset, bits = place
    library = ctypes.CDLL(None)
    if not hasattr(library, "fegetenv"):
        library = ctypes.CDLL("libm.so.6")
    environment = ctypes.create_string_buffer(nbytes)
    library.fegetenv(environment)
    register = kind.from_buffer(environment, offset)
    before = int(register.value)
    register.value = before | bits if mode is None else mode
    library.fesetenv(environment)
    return before


def _set_windows(mode: int | None) -> int | None:
    control = ctypes.CDLL("ucrtbase")._controlfp_s
    before = ctypes.c_uint()
    control(ctypes.byref(before), 0, 0)
    now = ctypes.c_uint()
    value = _DENORMALS_FLUSH if mode is None else mode
    control(ctypes.byref(now), ctypes.c_uint(value), ctypes.c_uint(_DENORMALS_MASK))
    return before.value

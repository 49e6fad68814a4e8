"""Prints a line for each device that a driver of this machine offers; run as a process of its own, for a
driver may take its process down.

``python gpu_devices.py opencl`` (or ``cuda``). Nothing is printed where there is no driver.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from ctypes import byref, c_char, c_int, c_uint, c_void_p

#: By the system: names of the driver's library.
_OPENCL = {"win32": ("OpenCL.dll",), "darwin": ("/System/Library/Frameworks/OpenCL.framework/OpenCL",)}
_CUDA = {"win32": ("nvcuda.dll",)}

_PLATFORM_NAME, _DEVICE_NAME, _ALL_DEVICES = 0x902, 0x102B, 0xFFFFFFFF
_MOST = 32


def _library(names: tuple[str, ...]) -> ctypes.CDLL | None:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def opencl() -> Iterator[str]:
    """``Platform: device`` of each."""
    cl = _library(_OPENCL.get(sys.platform, ("libOpenCL.so.1", "libOpenCL.so")))
    if cl is None:
        return
    text, found = (c_char * 256)(), c_uint()
    platforms = (c_void_p * _MOST)()
    if cl.clGetPlatformIDs(c_uint(_MOST), platforms, byref(found)) != 0:
        return
    for platform in platforms[: found.value]:
        name = _name(cl.clGetPlatformInfo, platform, _PLATFORM_NAME, text)
        devices, count = (c_void_p * _MOST)(), c_uint()
        kind = ctypes.c_uint64(_ALL_DEVICES)
        if cl.clGetDeviceIDs(c_void_p(platform), kind, c_uint(_MOST), devices, byref(count)) == 0:
            for device in devices[: count.value]:
                yield f"{name}: {_name(cl.clGetDeviceInfo, device, _DEVICE_NAME, text)}"


def _name(ask: ctypes._NamedFuncPointer, what: int | None, number: int, text: ctypes.Array[c_char]) -> str:
    size = ctypes.c_size_t(len(text))
    if ask(c_void_p(what), c_uint(number), size, text, None) != 0:
        return "?"
    return text.value.decode("utf-8", "replace").strip()


def cuda() -> Iterator[str]:
    """The name of each, with its compute capability."""
    driver = _library(_CUDA.get(sys.platform, ("libcuda.so.1",)))
    count, major, minor, text = c_int(), c_int(), c_int(), (c_char * 256)()
    if driver is None or driver.cuInit(c_uint(0)) != 0 or driver.cuDeviceGetCount(byref(count)) != 0:
        return
    for device in range(count.value):
        driver.cuDeviceGetName(text, c_int(len(text)), c_int(device))
        driver.cuDeviceGetAttribute(byref(major), c_int(75), c_int(device))
        driver.cuDeviceGetAttribute(byref(minor), c_int(76), c_int(device))
        yield f"{text.value.decode('utf-8', 'replace')} ({major.value}.{minor.value})"


if __name__ == "__main__":
    print(*{"opencl": opencl, "cuda": cuda}[sys.argv[1]](), sep="\n")

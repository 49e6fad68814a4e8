"""Prints a line for each device that a driver of this machine offers; run as a process of its own, for a
driver may take its process down.

``python gpu_devices.py opencl`` (or ``cuda``, ``metal``). Nothing is printed where there is no driver. With
``json`` behind it a line is an object: ``name``, and what the driver says of a GPU's size.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from ctypes import byref, c_char, c_int, c_size_t, c_uint, c_uint64, c_void_p
from typing import Any

#: By the system: names of the driver's library.
_OPENCL = {"win32": ("OpenCL.dll",), "darwin": ("/System/Library/Frameworks/OpenCL.framework/OpenCL",)}
_CUDA = {"win32": ("nvcuda.dll",)}
_METAL = ("/System/Library/Frameworks/Metal.framework/Metal",)

_PLATFORM_NAME, _DEVICE_NAME, _ALL_DEVICES = 0x902, 0x102B, 0xFFFFFFFF
_DEVICE_TYPE, _TYPE_GPU = 0x1000, 4
_MOST = 32

#: What is asked of OpenCL, with its type, and of CUDA, by the numbers that their headers give it.
_OPENCL_SIZES = {
    "units": (0x1002, c_uint),
    "group_size": (0x1004, c_size_t),
    "local_memory": (0x1023, c_uint64),
}
_CUDA_SIZES = {"units": 16, "group_size": 1, "local_memory": 8}


def _library(names: tuple[str, ...]) -> ctypes.CDLL | None:
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


def opencl() -> Iterator[dict[str, Any]]:
    """``Platform: device`` of each, whether it is a GPU, its compute units, the work items of a group, and
    the bytes that these share."""
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
        kind = c_uint64(_ALL_DEVICES)
        if cl.clGetDeviceIDs(c_void_p(platform), kind, c_uint(_MOST), devices, byref(count)) == 0:
            for device in devices[: count.value]:
                ask = cl.clGetDeviceInfo
                sizes = {key: _number(ask, device, *what) for key, what in _OPENCL_SIZES.items()}
                gpu = bool(_number(ask, device, _DEVICE_TYPE, c_uint64) & _TYPE_GPU)
                yield {"name": f"{name}: {_name(ask, device, _DEVICE_NAME, text)}", "gpu": gpu, **sizes}


def _name(ask: ctypes._NamedFuncPointer, what: int | None, number: int, text: ctypes.Array[c_char]) -> str:
    size = c_size_t(len(text))
    if ask(c_void_p(what), c_uint(number), size, text, None) != 0:
        return "?"
    return text.value.decode("utf-8", "replace").strip()


def _number(ask: ctypes._NamedFuncPointer, what: int | None, number: int, kind: Any) -> int:
    """0 where the driver does not say."""
    value = kind()
    if ask(c_void_p(what), c_uint(number), c_size_t(ctypes.sizeof(kind)), byref(value), None) != 0:
        return 0
    return int(value.value)


def cuda() -> Iterator[dict[str, Any]]:
    """The name of each with its compute capability, its multiprocessors, the threads of a block, and the
    bytes that these share."""
    driver = _library(_CUDA.get(sys.platform, ("libcuda.so.1",)))
    count, text = c_int(), (c_char * 256)()
    if driver is None or driver.cuInit(c_uint(0)) != 0 or driver.cuDeviceGetCount(byref(count)) != 0:
        return

    def attribute(what: int, device: int) -> int:
        value = c_int()
        failed = driver.cuDeviceGetAttribute(byref(value), c_int(what), c_int(device)) != 0
        return 0 if failed else value.value

    for device in range(count.value):
        driver.cuDeviceGetName(text, c_int(len(text)), c_int(device))
        major, minor = attribute(75, device), attribute(76, device)
        name = f"{text.value.decode('utf-8', 'replace')} ({major}.{minor})"
        sizes = {key: attribute(what, device) for key, what in _CUDA_SIZES.items()}
        yield {"name": name, "gpu": True, "capability": 10 * major + minor, **sizes}


def metal() -> Iterator[dict[str, Any]]:
    """The default device, if there is one, and its family (7: ``MTLGPUFamilyApple7``; 0: not Apple's)."""
    framework = _library(_METAL) if sys.platform == "darwin" else None
    if framework is None:
        return
    framework.MTLCreateSystemDefaultDevice.restype = c_void_p
    device = framework.MTLCreateSystemDefaultDevice()
    objc = _library(("/usr/lib/libobjc.A.dylib",))
    if not device or objc is None:
        return
    objc.sel_registerName.restype = c_void_p
    selector = objc.sel_registerName(b"supportsFamily:")
    types = (ctypes.c_bool, c_void_p, c_void_p, ctypes.c_long)
    supports = ctypes.CFUNCTYPE(*types)(("objc_msgSend", objc))
    family = max((n for n in range(1, 20) if supports(device, selector, 1000 + n)), default=0)
    yield {"name": "Metal's default device", "gpu": True, "family": family}


if __name__ == "__main__":
    for found in {"opencl": opencl, "cuda": cuda, "metal": metal}[sys.argv[1]]():
        print(json.dumps(found) if sys.argv[2:] == ["json"] else found["name"])

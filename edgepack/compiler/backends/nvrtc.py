"""NVRTC, NVIDIA's compiler of CUDA C as a library, as pip installs it."""

from __future__ import annotations

import ctypes
import re
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from edgepack.errors import InternalError, ToolchainError
from edgepack.plan.cuda_driver import nvrtc_for
from edgepack.system.installation import extra_command

__all__ = ["Nvrtc", "Resources", "find_nvrtc"]

#: Where the packages nvidia-cuda-nvrtc-cu11, -cu12 and nvidia-cuda-nvrtc (CUDA 13) have it.
_PLACES = ("cuda_nvrtc", "cu13")
_NAMES = ("bin/nvrtc64_*.dll",) if sys.platform == "win32" else ("lib/libnvrtc.so.*",)
#: The major version of CUDA in their names.
_MAJOR = re.compile(r"(?:so\.|nvrtc64_)(1\d)")


def find_nvrtc(driver: str = "") -> Path | None:
    """The library; None where it is not installed. Of several, whose packages share a folder, the newest; for
    a driver of a CUDA version ("11.4") the one that ``nvrtc_for`` chooses."""
    spec = find_spec("nvidia")
    versions: dict[int, Path] = {}
    for root in (spec.submodule_search_locations or ()) if spec is not None else ():
        for place in _PLACES:
            for name in _NAMES:
                for found in sorted((Path(root) / place).glob(name)):
                    major = _MAJOR.search(found.name)
                    if "alt" not in found.name and major is not None:
                        versions.setdefault(int(major[1]), found)
    return versions[nvrtc_for(versions, driver)] if versions else None


#: What ``ptxas -v`` says of each kernel.
_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")
_REGISTERS = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass
class Resources:
    """What a kernel takes of a multiprocessor.

    Attributes:
        registers: of a thread.
        spilled: bytes that are written to and read from memory for want of registers.
        shared: bytes of a block.
    """

    registers: int = 0
    spilled: int = 0
    shared: int = 0


class Nvrtc:
    """The library, loaded. ToolchainError where it is not installed.

    Args:
        driver: CUDA version of the driver that is to take what it makes ("10.2"); "" for any.
    """

    def __init__(self, driver: str = "") -> None:
        path = find_nvrtc(driver)
        if path is None:
            raise ToolchainError(
                "Kernels for NVIDIA's GPUs need NVRTC, which is not installed.",
                hint=extra_command("cuda"),
            )
        self._library = ctypes.CDLL(str(path))
        major, minor = c_int(), c_int()
        self._library.nvrtcVersion(byref(major), byref(minor))
        self.version = f"{major.value}.{minor.value}"

    def capabilities(self) -> list[int]:
        """Compute capabilities that it compiles for."""
        count = c_int()
        self._library.nvrtcGetNumSupportedArchs(byref(count))
        numbers = (c_int * count.value)()
        self._library.nvrtcGetSupportedArchs(numbers)
        return list(numbers)

    def compiled(self, source: str, capability: int, kind: str) -> bytes:
        """Machine code ("cubin") for a compute capability, or "ptx", which ends in a zero."""
        return self._made(source, capability, kind)[0]

    def resources(self, source: str, capability: int) -> dict[str, Resources]:
        """What each kernel takes, by its name, as the assembler reports it."""
        return self.measured(source, capability)[1]

    def measured(self, source: str, capability: int) -> tuple[bytes, dict[str, Resources]]:
        """Machine code ("cubin") for a compute capability, and what each kernel takes, by its name."""
        code, log = self._made(source, capability, "cubin", "--ptxas-options=-v")
        found: dict[str, Resources] = {}
        kernel = Resources()
        for line in log.splitlines():
            if entry := _ENTRY.search(line):
                kernel = found.setdefault(entry.group(1), Resources())
            if spills := _SPILLS.search(line):
                kernel.spilled = int(spills.group(1)) + int(spills.group(2))
            if registers := _REGISTERS.search(line):
                kernel.registers = int(registers.group(1))
                kernel.shared = sum(int(found) for found in _SHARED.findall(line))
        return code, found

    def _made(self, source: str, capability: int, kind: str, *more: str) -> tuple[bytes, str]:
        """The code, and what the compiler said."""
        if capability not in self.capabilities():
            raise ToolchainError(
                f"NVRTC {self.version} does not compile for compute capability {capability / 10}.",
                hint=f"It takes {', '.join(str(n / 10) for n in self.capabilities())}; install another "
                "version of its package.",
            )
        program = c_void_p()
        self._check(
            self._library.nvrtcCreateProgram(byref(program), source.encode(), b"kernels.cu", 0, None, None)
        )
        try:
            architecture = f"{'sm' if kind == 'cubin' else 'compute'}_{capability}"
            return self._compiled(program, kind, [f"--gpu-architecture={architecture}", *more])
        finally:
            self._library.nvrtcDestroyProgram(byref(program))

    def _compiled(self, program: c_void_p, kind: str, chosen: list[str]) -> tuple[bytes, str]:
        words = [option.encode() for option in (*chosen, "--std=c++14")]
        options = (c_char_p * len(words))(*words)
        failed = self._library.nvrtcCompileProgram(program, len(words), options) != 0
        log = self._text(program, "nvrtcGetProgramLog").decode(errors="replace")
        if failed:
            raise InternalError(f"NVRTC {self.version} does not take the kernels.", detail=log)
        return self._text(program, "nvrtcGetCUBIN" if kind == "cubin" else "nvrtcGetPTX"), log

    def _text(self, program: c_void_p, function: str) -> bytes:
        size = c_size_t()
        self._check(getattr(self._library, f"{function}Size")(program, byref(size)))
        content = ctypes.create_string_buffer(size.value)
        self._check(getattr(self._library, function)(program, content))
        return content.raw

    def _check(self, status: int) -> None:
        if status != 0:
            raise InternalError(f"NVRTC {self.version} failed with status {status}.")

"""Runs plans with a GPU in this process.

Launches and copies go through the OpenCL driver of the system (PoCL, whose device is the CPU), calls of the
CPU's kernels are done as by :mod:`workbench.executor`. The GPU's memory is poisoned before each run, and
each tensor that a launch is given is a buffer of its own.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping, Sequence
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgepack.compiler.backends.opencl import opencl_source
from edgepack.compiler.planner.build import Built
from edgepack.plan.types import Argument, Copy, Launch, Step
from workbench.executor import Executor, address, memories, steps_of_run

__all__ = ["OpenClExecutor", "driver"]

_ANY_DEVICE = 0xFFFFFFFF
_BUILD_LOG = 0x1183
_NAME = 0x102B
_READ_WRITE = 1


class Driver:
    """The system's OpenCL driver: its first device, with a context and a queue."""

    def __init__(self) -> None:
        self.cl = ctypes.CDLL("libOpenCL.so.1")
        for name in ("Context", "CommandQueue", "ProgramWithSource", "Kernel", "Buffer"):
            getattr(self.cl, f"clCreate{name}").restype = c_void_p
        platform, count = c_void_p(), c_uint()
        self.check(self.cl.clGetPlatformIDs(1, byref(platform), byref(count)))
        self.device = c_void_p()
        self.check(
            self.cl.clGetDeviceIDs(platform, c_uint64(_ANY_DEVICE), 1, byref(self.device), byref(count))
        )
        error = c_int()
        self.context = c_void_p(
            self.cl.clCreateContext(None, 1, byref(self.device), None, None, byref(error))
        )
        self.check(error.value)
        self.queue = c_void_p(
            self.cl.clCreateCommandQueue(self.context, self.device, c_uint64(0), byref(error))
        )
        self.check(error.value)

    def name(self) -> str:
        """The device's."""
        text = ctypes.create_string_buffer(200)
        self.check(self.cl.clGetDeviceInfo(self.device, _NAME, c_size_t(len(text)), text, None))
        return text.value.decode()

    @staticmethod
    def check(status: int) -> None:
        """Fails for a status that is not success."""
        assert status == 0, f"OpenCL's status is {status}"

    def program(self, source: str) -> c_void_p:
        """The compiled source; fails with the compiler's messages."""
        error, text = c_int(), c_char_p(source.encode())
        program = c_void_p(
            self.cl.clCreateProgramWithSource(self.context, 1, byref(text), None, byref(error))
        )
        self.check(error.value)
        if self.cl.clBuildProgram(program, 1, byref(self.device), b"-Werror", None, None):
            log = ctypes.create_string_buffer(20000)
            self.cl.clGetProgramBuildInfo(program, self.device, _BUILD_LOG, c_size_t(20000), log, None)
            raise AssertionError(log.value.decode())
        return program

    def kernel(self, program: c_void_p, symbol: str) -> c_void_p:
        error = c_int()
        kernel = c_void_p(self.cl.clCreateKernel(program, symbol.encode(), byref(error)))
        self.check(error.value)
        return kernel

    def buffer(self, nbytes: int) -> c_void_p:
        error = c_int()
        buffer = c_void_p(
            self.cl.clCreateBuffer(
                self.context, c_uint64(_READ_WRITE), c_size_t(max(nbytes, 1)), None, byref(error)
            )
        )
        self.check(error.value)
        return buffer

    def write(self, buffer: c_void_p, at: int, source: int, nbytes: int) -> None:
        """Copies from an address to the buffer."""
        self.check(
            self.cl.clEnqueueWriteBuffer(
                self.queue, buffer, 1, c_size_t(at), c_size_t(nbytes), c_void_p(source), 0, None, None
            )
        )

    def read(self, buffer: c_void_p, at: int, target: int, nbytes: int) -> None:
        """Copies from the buffer to an address."""
        self.check(
            self.cl.clEnqueueReadBuffer(
                self.queue, buffer, 1, c_size_t(at), c_size_t(nbytes), c_void_p(target), 0, None, None
            )
        )

    def copy(self, source: c_void_p, at: int, target: c_void_p, to: int, nbytes: int) -> None:
        """Copies between buffers."""
        self.check(
            self.cl.clEnqueueCopyBuffer(
                self.queue, source, target, c_size_t(at), c_size_t(to), c_size_t(nbytes), 0, None, None
            )
        )

    def launch(self, kernel: c_void_p, buffers: Sequence[c_void_p], step: Launch) -> None:
        for i, buffer in enumerate(buffers):
            self.check(self.cl.clSetKernelArg(kernel, i, c_size_t(ctypes.sizeof(c_void_p)), byref(buffer)))
        size = c_size_t * 3
        total = size(*(g * t for g, t in zip(step.groups, step.threads, strict=True)))
        self.check(
            self.cl.clEnqueueNDRangeKernel(
                self.queue, kernel, 3, None, total, size(*step.threads), 0, None, None
            )
        )

    def release(self, buffer: c_void_p) -> None:
        self.check(self.cl.clReleaseMemObject(buffer))


@cache
def _driver(folder: str) -> Driver | None:
    os.environ.setdefault("POCL_CACHE_DIR", folder)
    try:
        return Driver()
    except (OSError, AssertionError):
        return None


def driver(folder: Path) -> Driver:
    """The driver; the test is skipped where there is none.

    Args:
        folder: where PoCL keeps what it compiles.
    """
    found = _driver(str(folder))
    if found is None:
        pytest.skip("there is no OpenCL driver (Debian: pocl-opencl-icd)")
    return found


class OpenClExecutor(Executor):
    """Runs plans with a GPU."""

    def __init__(self, built: Mapping[str, Built], folder: Path, found: Driver) -> None:
        super().__init__(built, folder)
        self.driver = found
        texts = {symbol: text for one in built.values() for symbol, text in one.gpu_kernels.items()}
        program = found.program(opencl_source(texts))
        self.kernels = {symbol: found.kernel(program, symbol) for symbol in texts}

    def run(
        self, name: str, inputs: Sequence[np.ndarray[Any, Any]], *, seed: int = 0, poison: int = 0xFF
    ) -> list[np.ndarray[Any, Any]]:
        """Outputs of the plan ``name`` for arrays in the order of its inputs."""
        rng = np.random.default_rng(seed)
        plan, constants = self.built[name].plan, self.built[name].constants
        host = memories(plan, constants, inputs, poison)
        cl = self.driver
        size = plan.gpu_arena.nbytes
        arena = cl.buffer(size)
        junk = np.full(max(size, 1), poison, np.uint8)
        cl.write(arena, 0, junk.ctypes.data, len(junk))
        held = [cl.buffer(c.nbytes) for c in constants]
        for buffer, memory in zip(held, host["constant"], strict=True):
            cl.write(buffer, 0, memory.pointer(0), len(memory.bytes))
        for at in steps_of_run(plan, host):
            match plan.steps[at]:
                case Copy(True, source, target):
                    cl.write(arena, target.offset, address(source, host, 0), target.nbytes)
                case Copy(False, target, source):
                    cl.read(arena, source.offset, address(target, host, 0), source.nbytes)
                case Launch() as step:
                    self._launch(step, arena, held)
                case Step() as step:
                    self.call(plan, step, host, rng, poison)
        for buffer in (arena, *held):
            cl.release(buffer)
        return self.outputs(name, host)

    def _launch(self, step: Launch, arena: c_void_p, constants: Sequence[c_void_p]) -> None:
        """With a buffer of its own for each tensor in the arena."""
        cl = self.driver
        tensors: dict[Argument, c_void_p] = {}
        for argument in step.arguments:
            if argument.kind == "device" and argument not in tensors:
                tensors[argument] = cl.buffer(argument.nbytes)
                cl.copy(arena, argument.offset, tensors[argument], 0, argument.nbytes)
        buffers = [constants[a.index] if a.kind == "constant" else tensors[a] for a in step.arguments]
        cl.launch(self.kernels[step.kernel], buffers, step)
        for argument, buffer in tensors.items():
            cl.copy(buffer, 0, arena, argument.offset, argument.nbytes)
            cl.release(buffer)

"""Buffers of a fused function as operands of a kernel: flat arrays of as many elements."""

from __future__ import annotations

from math import prod

from tvm.tirx import Buffer

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.values import storage_dtype
from edgepack.plan.target import CpuTarget

__all__ = ["declare_output", "declare_param", "elements_of", "mixed_lanes"]

#: What a register is full of where numbers of several types are computed side by side. Most tensors have four
#: bytes an element; wider ones take two registers, narrower ones a part of one.
WORD = "int32"


def mixed_lanes(target: CpuTarget) -> int:
    """Elements of a vector where numbers of several types are computed side by side, lane by lane."""
    return target.lanes(WORD)


def elements_of(buffer: Buffer) -> int:
    """How many elements a buffer of static shape has."""
    return prod(int(d) for d in buffer.shape)


def declare_param(e: Emitter, number: int, buffer: Buffer) -> Buffer:
    """Declares parameter ``number`` of the fused function; returns the kernel's flat buffer."""
    return e.param(number, elements_of(buffer), storage_dtype(str(buffer.dtype)))


def declare_output(e: Emitter, number: int, buffer: Buffer) -> Buffer:
    """Declares result ``number`` of the fused function; returns the kernel's flat buffer."""
    return e.output(number, elements_of(buffer), storage_dtype(str(buffer.dtype)))

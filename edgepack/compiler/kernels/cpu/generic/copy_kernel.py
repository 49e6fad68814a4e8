"""Kernels of groups that only move elements (concatenations, slices), for CPUs that are short of memory.

Rows are copied 16 bytes at a time, four such in an iteration: of a loop over single vectors LLVM makes a call
of memcpy, which small C libraries have byte by byte. For a CPU without vectors, whose loads take a word from
any address, LLVM makes four words of 16 bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.tirx import Buffer

from edgepack.compiler.kernels.cpu.emit.tables import Period
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.generic.elementwise_kernel import ElementwiseKernel
from edgepack.compiler.kernels.expressions.nodes import operands_of, operation_of
from edgepack.compiler.kernels.expressions.operations import Kind
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["CopyKernel", "copied_lanes"]

#: Bytes of what is loaded and stored as one vector.
COPIED_BYTES = 16

#: Vectors of an iteration.
STRAIGHT = 4

#: Elements that are copied so.
COPIED = ("int8", "uint8", "int16", "uint16", "int32", "float32")


class CopyKernel(ElementwiseKernel):
    """An elementwise kernel with loops that LLVM makes no call of."""

    def _periods(self, low: int, count: int, lanes: int) -> list[Period]:
        loops, rest = divmod(count, STRAIGHT)
        found = [Period(0, STRAIGHT, loops)] if loops else []
        return [*found, Period(loops * STRAIGHT, rest, 1)] if rest else found


def copied_lanes(blocks: Sequence[Block], buffers: Sequence[Buffer], target: CpuTarget) -> int:
    """Elements of what :class:`CopyKernel` copies at once; 0 for groups that it is not for."""
    dtypes = {str(one.dtype) for one in (*buffers, *(block.target for block in blocks))}
    if not target.short_of_memory or len(dtypes) > 1 or not all(_copies(block.value) for block in blocks):
        return 0
    (dtype,) = dtypes
    return COPIED_BYTES // DTYPE_BYTES[dtype] if dtype in COPIED else 0


def _copies(value: Any) -> bool:
    """Whether an expression is an element of another tensor, or one of several by its position."""
    operation = operation_of(value)
    if operation.kind is Kind.SELECT:
        return all(map(_copies, operands_of(value)[1:]))
    return operation.kind is Kind.LOAD

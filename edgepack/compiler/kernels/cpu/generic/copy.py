"""Copies bytes, for an output that is an input, a constant, or the same tensor as another output."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index

__all__ = ["copy"]

#: Bytes of one task.
TASK_BYTES = 16 * 1024


def copy(nbytes: int) -> Implementation:
    """Kernel (source, destination, lo, hi) that copies ``nbytes`` bytes; both need the alignment of one
    byte."""
    e = Emitter(1)
    source, destination = e.param(0, nbytes, "uint8"), e.output(0, nbytes, "uint8")

    def task(t: Expr) -> None:
        begin = e.let(t * TASK_BYTES)
        end = e.let(tirx.min(begin + TASK_BYTES, index(nbytes)))
        e.loop(begin, end, lambda i: e.vstore(destination, i, e.load(source, i), 1))

    e.tasks(task)
    return Implementation("copy", (e.stage(max(1, -(-nbytes // TASK_BYTES))),))

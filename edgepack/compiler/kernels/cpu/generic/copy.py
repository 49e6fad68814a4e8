"""Copy bytes: for an output that is an input, a constant, or the same tensor as another output."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.contract import Implementation, Operand, Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index

__all__ = ["copy"]

#: Bytes of one task.
TASK_BYTES = 16 * 1024


def copy(nbytes: int) -> Implementation:
    """Kernel (source, destination, lo, hi) that copies ``nbytes`` bytes; both need the alignment of one
    byte."""
    e = Emitter(1)
    source, destination = e.pointer(nbytes, "uint8"), e.pointer(nbytes, "uint8")

    def task(t: Any) -> None:
        begin = e.let(t * TASK_BYTES)
        end = e.let(tirx.min(begin + TASK_BYTES, index(nbytes)))
        e.loop(begin, end, lambda i: e.vstore(destination, i, e.load(source, i), 1))

    e.tasks(task)
    tasks = max(1, -(-nbytes // TASK_BYTES))
    stage = Stage(e.finish(), tasks, (Operand("param", 0), Operand("output", 0)))
    return Implementation("copy", (stage,))

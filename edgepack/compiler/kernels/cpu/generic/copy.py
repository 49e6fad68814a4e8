"""Copies bytes: for an output that is an input, a constant, or the same tensor as another output; for what a
loop carries from trip to trip, and for what it stacks."""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index

__all__ = ["copy", "stack"]

#: Bytes of one task.
TASK_BYTES = 16 * 1024


def copy(nbytes: int) -> Implementation:
    """Kernel (source, destination, lo, hi) that copies ``nbytes`` bytes; both need the alignment of one
    byte."""
    e = Emitter(1)
    source, destination = e.param(0, nbytes, "uint8"), e.output(0, nbytes, "uint8")
    return Implementation("copy", (_copied(e, nbytes, source, destination),))


def stack(nbytes: int, parts: int) -> Implementation:
    """Kernel (part, counter, whole, lo, hi) that copies a part of ``nbytes`` bytes to where the part of the
    number ``counter``, an int64, is in the whole of so many parts.

    Raises:
        RuleError: the whole has 2**31 bytes or more.
    """
    e = Emitter(1)
    part, counter = e.param(0, nbytes, "uint8"), e.param(1, 1, "int64")
    whole = e.output(0, nbytes * parts, "uint8")
    place = e.rebased(whole, e.let(tirx.Cast("int32", e.load(counter, 0)) * nbytes), nbytes)
    return Implementation("stack", (_copied(e, nbytes, part, place),))


def _copied(e: Emitter, nbytes: int, source: Buffer, destination: Buffer) -> Stage:
    """The kernel that copies so many bytes."""

    def task(t: Expr) -> None:
        begin = e.let(t * TASK_BYTES)
        end = e.let(tirx.min(begin + TASK_BYTES, index(nbytes)))
        e.loop(begin, end, lambda i: e.vstore(destination, i, e.load(source, i), 1))

    e.tasks(task)
    return e.stage(max(1, -(-nbytes // TASK_BYTES)))

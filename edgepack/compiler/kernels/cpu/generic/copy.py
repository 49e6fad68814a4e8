"""Copies bytes: for an output that is an input, a constant, or the same tensor as another output; for what a
loop carries from trip to trip, and for what it stacks."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer, IntImm

from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index

__all__ = ["clear", "copy", "stack"]

#: Bytes of one task.
TASK_BYTES = 16 * 1024


def copy(nbytes: int) -> Implementation:
    """Kernel (source, destination, lo, hi) that copies ``nbytes`` bytes; both need the alignment of one
    byte."""
    e = Emitter(1)
    source, destination = e.param(0, nbytes, "uint8"), e.output(0, nbytes, "uint8")
    return Implementation("copy", (_copied(e, nbytes, source, destination),))


def clear(nbytes: int) -> Implementation:
    """Kernel (destination, lo, hi) that makes ``nbytes`` bytes 0."""
    e = Emitter(1)
    destination = e.output(0, nbytes, "uint8")
    zero = IntImm("uint8", 0)
    return Implementation("clear", (_each(e, nbytes, lambda i: e.vstore(destination, i, zero, 1)),))


def stack(nbytes: int, parts: int, *, more: bool = False) -> Implementation:
    """Kernel (part, counter, whole, lo, hi) that copies a part of ``nbytes`` bytes to where the part of the
    number ``counter``, an int64, is in the whole of so many parts.

    Args:
        more: there may be more parts, of which those behind the whole's last are left out.

    Raises:
        RuleError: the whole has 2**31 bytes or more.
    """
    e = Emitter(1)
    part, counter = e.param(0, nbytes, "uint8"), e.param(1, 1, "int64")
    whole = e.output(0, nbytes * parts, "uint8")
    number = e.let(e.load(counter, 0))
    first = e.let(tirx.Cast("int32", tirx.min(number, IntImm("int64", parts - 1))) * nbytes)
    place = e.rebased(whole, first, nbytes)

    def copied(i: Expr) -> None:
        e.vstore(place, i, e.load(part, i), 1)

    def guarded(i: Expr) -> None:
        e.branch(number < IntImm("int64", parts), lambda: copied(i))

    stage = _each(e, nbytes, guarded if more else copied)
    return Implementation("stack.open" if more else "stack", (stage,), parameters={"parts": parts})


def _copied(e: Emitter, nbytes: int, source: Buffer, destination: Buffer) -> Stage:
    """The kernel that copies so many bytes."""
    return _each(e, nbytes, lambda i: e.vstore(destination, i, e.load(source, i), 1))


def _each(e: Emitter, nbytes: int, byte: Callable[[Expr], None]) -> Stage:
    """The kernel that does something with each of so many bytes."""

    def task(t: Expr) -> None:
        begin = e.let(t * TASK_BYTES)
        e.loop(begin, e.let(tirx.min(begin + TASK_BYTES, index(nbytes))), byte)

    e.tasks(task)
    return e.stage(max(1, -(-nbytes // TASK_BYTES)))

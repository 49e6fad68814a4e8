"""A binary heap of 64-bit numbers in memory, the least on top.

J. W. J. Williams, "Algorithm 232: Heapsort", Communications of the ACM 7 (6), 1964; built from the bottom as
R. W. Floyd does, "Algorithm 245: Treesort 3", Communications of the ACM 7 (12), 1964.

A number holds an order of 32 bits above and a position below, so that one comparison decides both; of equal
orders the one with the lower position goes first.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.compiler.kernels.cpu.selection.builder import Cell, repeat

__all__ = ["best_first", "build_heap", "order_of", "position_of", "sift", "worst_first"]

LOW = 2**32 - 1


def worst_first(order: Expr, position: Expr) -> Expr:
    """The number of an element in a heap whose top is the one of the least order, the last of equal ones."""
    return _joined(order, tirx.bitwise_xor(position, index(-1)))


def best_first(order: Expr, position: Expr) -> Expr:
    """The number of an element in a heap whose top is the one of the greatest order, the first of equals."""
    return _joined(tirx.bitwise_xor(order, index(-1)), position)


def _joined(order: Expr, low: Expr) -> Expr:
    high = tirx.shift_left(order.astype("int64"), tirx.const(32, "int64"))
    return tirx.bitwise_or(high, tirx.bitwise_and(low.astype("int64"), tirx.const(LOW, "int64")))


def order_of(number: Expr) -> Expr:
    """The upper half."""
    return tirx.shift_right(number, tirx.const(32, "int64")).astype("int32")


def position_of(number: Expr, *, worst: bool) -> Expr:
    """The position in a number of :func:`worst_first`, or of :func:`best_first`."""
    low = number.astype("int32")
    return tirx.bitwise_xor(low, index(-1)) if worst else low


def sift(e: Emitter, heap: Buffer, start: Index, size: Expr, item: Expr) -> None:
    """Puts the item into the hole at ``start`` of a heap of ``size`` numbers, or where it belongs below.

    The heap has room for one number more, which is read and not used.
    """
    hole = Cell(e, start)
    child = Cell(e, index(start) * 2 + 1)

    def step() -> None:
        left = child.get()
        right_first = tirx.And(left + 1 < size, e.load(heap, left + 1) < e.load(heap, left))
        least = e.let(tirx.Select(right_first, left + 1, left))
        value = e.let(e.load(heap, least))

        def lift() -> None:
            e.vstore(heap, hole.get(), value, 1)
            hole.set(least)
            child.set(least * 2 + 1)

        e.branch(value < item, lift, lambda: child.set(size))

    repeat(e, child.now() < size, step)
    e.vstore(heap, hole.get(), item, 1)


def build_heap(e: Emitter, heap: Buffer, size: Expr) -> None:
    """Makes a heap of the first ``size`` numbers."""
    half = e.let(tirx.truncdiv(size, index(2)))

    def one(i: Expr) -> None:
        at = e.let(half - 1 - i)
        sift(e, heap, at, size, e.let(e.load(heap, at)))

    e.loop(0, half, one)

"""A number that at least k of a row's orders reach, and not many more: by bisection, counting on vectors.

What reaches it is all that has to be sorted, a small part of a long row.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.selection.builder import Cell, repeat

__all__ = ["Candidates", "room_for"]

#: Ends of the orders of 32 bits.
LEAST, GREATEST = -(2**31), 2**31 - 1


def room_for(k: int, length: int) -> int:
    """Elements that are collected for the k best, at most."""
    return min(length, k + k // 2 + 16)


class Candidates:
    """Collects the positions of the k greatest of ``length`` orders, and of some more.

    Attributes:
        orders: int32, to be written before.
        positions: int32, ascending; of equal orders, where there are too many, the first ones.
    """

    def __init__(self, e: Emitter, length: int, k: int) -> None:
        self._e, self._length, self._k, self._room = e, length, k, room_for(k, length)
        self.orders = e.scratch(length, "int32")
        self.positions = e.scratch(length, "int32")

    def collect(self) -> Expr:
        """Finds them in :attr:`orders`; returns how many there are."""
        e = self._e
        low, high = Cell(e, index(LEAST)), Cell(e, index(GREATEST))
        reach, above = Cell(e, self._length), Cell(e, 0)

        def halve() -> None:
            # The mean of two numbers without overflow; it is above the lower one.
            a, b = low.get(), high.get()
            shared = tirx.bitwise_and(a, b) + tirx.shift_right(tirx.bitwise_xor(a, b), index(1))
            middle = e.let(shared + tirx.bitwise_and(tirx.bitwise_xor(a, b), index(1)))
            count = self._count(middle)

            def up() -> None:
                low.set(middle)
                reach.set(count)

            def down() -> None:
                high.set(e.let(middle - 1))
                above.set(count)

            e.branch(count >= index(self._k), up, down)

        many = reach.now() > index(self._room)
        repeat(e, tirx.And(many, low.now() < high.now()), halve)
        bar, size = low.get(), Cell(e, 0)
        e.branch(
            reach.get() <= index(self._room),
            lambda: self._take(size, lambda order: order >= bar),
            lambda: self._take_ties(size, bar, e.let(index(self._k) - above.get())),
        )
        return size.get()

    def _count(self, bar: Expr) -> Expr:
        """How many orders reach the bar."""
        e = self._e
        total = Cell(e, 0)

        def one(i: Expr) -> None:
            reaches = e.load(self.orders, i) >= bar
            total.set(total.now() + tirx.Select(reaches, index(1), index(0)))

        e.loop(0, self._length, one)
        return total.get()

    def _take(self, size: Cell, chosen: Callable[[Expr], Expr]) -> None:
        """Writes every position and keeps those that are chosen: without a branch."""
        e = self._e

        def one(i: Expr) -> None:
            at = size.get()
            e.vstore(self.positions, at, i, 1)
            taken = chosen(e.let(e.load(self.orders, i)))
            size.set(at + tirx.Select(taken, index(1), index(0)))

        e.loop(0, self._length, one)

    def _take_ties(self, size: Cell, bar: Expr, ties: Expr) -> None:
        """Takes what is above the bar, and of what is equal to it so many."""
        e = self._e
        left = Cell(e, ties)

        def one(i: Expr) -> None:
            order = e.let(e.load(self.orders, i))
            tied = e.let(tirx.Select(tirx.EQ(order, bar), tirx.min(left.get(), index(1)), index(0)))
            left.set(left.get() - tied)
            at = size.get()
            e.vstore(self.positions, at, i, 1)
            size.set(at + tirx.Select(order > bar, index(1), tied))

        e.loop(0, self._length, one)

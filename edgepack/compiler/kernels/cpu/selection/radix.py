"""Sorts positions by orders of 32 or 64 bits, eight bits at a time, the lowest first: stable, and linear.

H. H. Seward, "Information sorting in the application of electronic digital computers to business operations",
MIT, 1954, section 2.4.6.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.selection.builder import WIDE, Cell, fill
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["RadixSort"]

DIGIT_BITS = 8
DIGITS = 1 << DIGIT_BITS


class RadixSort:
    """Sorts positions; stable, so that sorts by several columns can follow each other.

    Args:
        room: positions that there is memory for; as many are sorted, unless :meth:`start` is told otherwise.

    Attributes:
        positions: int32, the sorted positions, after :meth:`start` those from 0 on.
    """

    def __init__(self, e: Emitter, room: int, dtype: str) -> None:
        self._e, self._length, self._dtype = e, index(room), dtype
        self._kind = "int64" if dtype in WIDE else "int32"
        self._orders = [e.scratch(room, self._kind) for _ in range(2)]
        self._positions = [e.scratch(room, "int32") for _ in range(2)]
        self._counts = e.scratch(DIGITS, "int32")
        self.positions = self._positions[0]

    def start(self, length: Expr | None = None) -> None:
        """Every position in its place; of fewer than there is room for, if a length is given."""
        self._length = self._length if length is None else length
        self._e.loop(0, self._length, lambda i: self._e.vstore(self.positions, i, i, 1))

    def sort(self, order: Callable[[Expr], Expr]) -> None:
        """Sorts by ``order(position)``, as :func:`ordered` gives it, the least first."""
        e = self._e
        e.loop(
            0,
            self._length,
            lambda i: e.vstore(self._orders[0], i, order(e.let(e.load(self.positions, i))), 1),
        )
        passes = DTYPE_BYTES[self._dtype] * 8 // DIGIT_BITS
        for number in range(passes):
            self._pass(number, number % 2)
        if passes % 2:
            e.loop(
                0,
                self._length,
                lambda i: e.vstore(self.positions, i, e.load(self._positions[1], i), 1),
            )

    def _pass(self, number: int, side: int) -> None:
        """Sorts by one digit, from one pair of buffers into the other."""
        e, counts = self._e, self._counts
        orders, positions = self._orders[side], self._positions[side]
        fill(e, counts, 0, DIGITS, index(0))

        def count(i: Expr) -> None:
            digit = e.let(self._digit(e.load(orders, i), number))
            e.vstore(counts, digit, e.load(counts, digit) + 1, 1)

        e.loop(0, self._length, count)
        total = Cell(e, 0)

        def place(digit: Expr) -> None:
            own = e.let(e.load(counts, digit))
            before = total.get()
            e.vstore(counts, digit, before, 1)
            total.set(before + own)

        e.loop(0, DIGITS, place)

        def move(i: Expr) -> None:
            order = e.let(e.load(orders, i))
            digit = e.let(self._digit(order, number))
            to = e.let(e.load(counts, digit))
            e.vstore(counts, digit, to + 1, 1)
            e.vstore(self._orders[1 - side], to, order, 1)
            e.vstore(self._positions[1 - side], to, e.load(positions, i), 1)

        e.loop(0, self._length, move)

    def _digit(self, order: Expr, number: int) -> Expr:
        """Eight bits of the order, such that digits as unsigned numbers are ordered as the elements are."""
        nbytes, kind = DTYPE_BYTES[self._dtype], self._kind
        if number == nbytes - 1 and self._dtype not in {"bool", "uint8", "uint16"}:
            sign = -(2 ** (8 * nbytes - 1)) if nbytes == DTYPE_BYTES[kind] else 2 ** (8 * nbytes - 1)
            order = tirx.bitwise_xor(order, tirx.const(sign, kind))
        shifted = tirx.shift_right(order, tirx.const(DIGIT_BITS * number, kind))
        return tirx.bitwise_and(shifted, tirx.const(DIGITS - 1, kind)).astype("int32")

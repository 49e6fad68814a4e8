"""TopK: the k greatest or least elements of each row, in order; of equal ones those that come first.

Four forms. "heap": the k best so far are a heap, whose top each element has to beat; the heap is then
emptied from the worst on. "insertion", for 64-bit types: the k best so far are in order. "radix": the row is
sorted, for a k that is a large part of a long row. "threshold": a number that little more than k elements
reach is found first, and those are sorted.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, log2, prod

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod
from edgepack.compiler.kernels.cpu.selection.builder import (
    WIDE,
    Cell,
    SelectionKernel,
    ordered,
    repeat,
    strided_rows,
)
from edgepack.compiler.kernels.cpu.selection.heap import (
    build_heap,
    order_of,
    position_of,
    sift,
    worst_first,
)
from edgepack.compiler.kernels.cpu.selection.radix import RadixSort
from edgepack.compiler.kernels.cpu.selection.threshold import Candidates, room_for

__all__ = ["TopKKernel"]

#: Vectors that are looked at together in a row of at least so many elements.
LOOKED_AT, LONG = 4, 4096


class TopKKernel(SelectionKernel):
    """Values and positions along an axis; a task is a row."""

    def build(self) -> Implementation:
        e = self.emitter()
        self.dtype = self.dtypes["x"]
        self.reverse = bool(self.form.numbers["largest"])
        axis = self.form.numbers["axis"]
        _, self.length, self.inner = strided_rows(self.shapes["x"], axis)
        self.k = self.shapes["values"][axis]
        stored = "uint8" if self.dtype == "bool" else self.dtype
        self.x, self.values = self.declared(e, "x", "values", dtype=stored)
        (self.indices,) = self.declared(e, "indices")
        rows = prod(self.shapes["x"]) // self.length
        lanes = self.target.lanes("int32") if self.target.vector_bits else 1
        form = chosen_form(self.length, self.k, lanes, wide=self.dtype in WIDE)
        forms = {"heap": self._by_heap, "insertion": self._by_insertion}
        forms |= {"radix": self._by_sorting, "threshold": self._by_threshold}
        forms[form](e)
        return self.implementation([e.stage(rows)], e.scratch_bytes, form=form)

    def _rows(self, t: Expr) -> tuple[Expr, Expr]:
        """Where row ``t`` begins, and its results."""
        outer, column = div(t, self.inner), mod(t, self.inner)
        return outer * (self.length * self.inner) + column, outer * (self.k * self.inner) + column

    def _order(self, e: Emitter, row: Expr, position: Expr, *, reverse: bool) -> Expr:
        value = e.let(e.load(self.x, row + position * self.inner))
        return ordered(value, self.dtype, reverse=reverse)

    def _write(self, e: Emitter, row: Expr, result: Expr, place: Expr, position: Expr) -> None:
        at = e.let(result + place * self.inner)
        e.vstore(self.values, at, e.load(self.x, row + position * self.inner), 1)
        e.vstore(self.indices, at, position.astype("int64"), 1)

    def _by_sorting(self, e: Emitter) -> None:
        sort = RadixSort(e, self.length, self.dtype)

        def task(t: Expr) -> None:
            row, result = (e.let(at) for at in self._rows(t))
            sort.start()
            sort.sort(lambda position: self._order(e, row, position, reverse=self.reverse))
            e.loop(0, self.k, lambda i: self._write(e, row, result, i, e.let(e.load(sort.positions, i))))

        e.tasks(task)

    def _by_threshold(self, e: Emitter) -> None:
        found = Candidates(e, self.length, self.k)
        sort = RadixSort(e, room_for(self.k, self.length), self.dtype)

        def candidate(i: Expr) -> Expr:
            return e.let(e.load(found.positions, i))

        def task(t: Expr) -> None:
            row, result = (e.let(at) for at in self._rows(t))
            better = not self.reverse
            e.loop(
                0,
                self.length,
                lambda i: e.vstore(found.orders, i, self._order(e, row, i, reverse=better), 1),
            )
            sort.start(found.collect())
            sort.sort(lambda i: self._order(e, row, candidate(i), reverse=self.reverse))
            e.loop(0, self.k, lambda i: self._write(e, row, result, i, candidate(e.load(sort.positions, i))))

        e.tasks(task)

    def _by_insertion(self, e: Emitter) -> None:
        orders, positions = e.scratch(self.k, "int64"), e.scratch(self.k, "int32")

        def task(t: Expr) -> None:
            row, result = (e.let(at) for at in self._rows(t))
            size = Cell(e, 0)

            def one(i: Expr) -> None:
                own = e.let(self._order(e, row, i, reverse=not self.reverse))
                last = e.let(size.get() - 1)
                full = tirx.EQ(last, index(self.k - 1))
                worst = e.load(orders, tirx.max(last, index(0)))
                enters = tirx.Or(tirx.Not(full), own > worst)
                e.branch(enters, lambda: self._insert(e, (orders, positions), size, own, i))

            e.loop(0, self.length, one)
            e.loop(0, self.k, lambda i: self._write(e, row, result, i, e.let(e.load(positions, i))))

        e.tasks(task)

    def _insert(
        self, e: Emitter, places: tuple[Buffer, Buffer], size: Cell, own: Expr, position: Expr
    ) -> None:
        """Puts an element behind all that are not less, and drops the last one if there are too many."""
        hole = Cell(e, tirx.min(size.get(), index(self.k - 1)))
        size.set(e.let(tirx.min(size.get() + 1, index(self.k))))
        orders = places[0]

        def lift() -> None:
            at = hole.get()
            for buffer in places:
                e.vstore(buffer, at, e.load(buffer, at - 1), 1)
            hole.set(at - 1)

        before = e.load(orders, tirx.max(hole.now() - 1, index(0)))
        repeat(e, tirx.And(hole.now() > index(0), before < own), lift)
        for buffer, value in zip(places, (own, position), strict=True):
            e.vstore(buffer, hole.get(), value, 1)

    def _by_heap(self, e: Emitter) -> None:
        heap = e.scratch(self.k + 1, "int64")

        def task(t: Expr) -> None:
            row, result = (e.let(at) for at in self._rows(t))
            self._collect(e, heap, row)

            def pop(i: Expr) -> None:
                place = e.let(self.k - 1 - i)
                worst = e.let(e.load(heap, 0))
                sift(e, heap, 0, place, e.let(e.load(heap, place)))
                self._write(e, row, result, place, e.let(position_of(worst, worst=True)))

            e.loop(0, self.k, pop)

        e.tasks(task)

    def _collect(self, e: Emitter, heap: Buffer, row: Expr) -> None:
        """Leaves the k best of the row in the heap."""

        def order(i: Expr) -> Expr:
            return e.let(self._order(e, row, i, reverse=not self.reverse))

        e.loop(0, self.k, lambda i: e.vstore(heap, i, worst_first(order(i), i), 1))
        size = index(self.k)
        build_heap(e, heap, size)
        bar = Cell(e, order_of(e.load(heap, 0)))
        worst = Cell(e, self._value(e, row, heap), str(self.x.dtype))

        def one(i: Expr) -> None:
            own = order(i)

            def enter() -> None:
                sift(e, heap, 0, size, e.let(worst_first(own, i)))
                bar.set(order_of(e.load(heap, 0)))
                worst.set(self._value(e, row, heap))

            e.branch(own > bar.get(), enter)

        lanes = self._lanes()
        begin = self.k
        if lanes > 1:
            blocks = (self.length - begin) // lanes
            e.loop(0, blocks, lambda b: self._block(e, row, e.let(b * lanes + self.k), worst, one))
            begin += blocks * lanes
        e.loop(begin, self.length, one)

    def _value(self, e: Emitter, row: Expr, heap: Buffer) -> Expr:
        """The worst of the heap's elements."""
        position = position_of(e.load(heap, 0), worst=True)
        return e.load(self.x, row + e.let(position) * self.inner)

    def _lanes(self) -> int:
        """Elements that are looked at together; 1 for a type without vectors, or columns."""
        vectors = self.target.vector_bits and self.dtype in {"float32", "int32"} and self.inner == 1
        if not vectors:
            return 1
        return self.target.lanes(self.dtype) * (LOOKED_AT if self.length >= LONG else 1)

    def _block(self, e: Emitter, row: Expr, begin: Expr, worst: Cell, one: Callable[[Expr], None]) -> None:
        """Looks at elements one by one if any of them goes before the worst of the heap, or is a NaN."""
        count, lanes = self._lanes(), self.target.lanes(self.dtype)
        bar = e.splat(worst.get(), lanes)
        found = None
        for first in range(0, count, lanes):
            x = e.let(e.vload(self.x, row + begin + first, lanes))
            behind = x <= bar if self.reverse else x >= bar
            ahead = tirx.Not(behind)
            found = ahead if found is None else tirx.Or(found, ahead)
        flags = tirx.Select(found, e.splat(index(1), lanes), e.splat(index(0), lanes))
        seen = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", flags)
        e.branch(tirx.NE(seen, index(0)), lambda: e.loop(begin, e.let(begin + count), one))


def chosen_form(length: int, k: int, lanes: int, *, wide: bool) -> str:
    """The form that takes the least time, for elements in random order.

    Args:
        lanes: int32 that a vector has.

    Of ``length`` elements k (1 + ln(length / k)) enter the heap, and k leave it. Nanoseconds of a level of
    the heap, of an element in the sort and of a sort's counting were measured on x86-64; their ratios count.
    """
    entering = k * (1 + log(length / k))
    if wide:  # an order and a position do not fit one number
        return "insertion" if length + entering * k / 4 <= 14 * length + 1500 else "radix"
    heap = length / 4 + 6 * log2(k + 1) * (entering + k)
    counted = length * (0.6 + 12 * 1.5 / lanes) + 10 * room_for(k, length) + 1200
    times = {"heap": heap, "radix": 6 * length + 600, "threshold": counted}
    return min(times, key=times.__getitem__)

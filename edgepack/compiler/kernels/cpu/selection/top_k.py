"""TopK: the k greatest or least elements of each row, in order; of equal ones those that come first.

Two forms. "heap": the k best so far are a heap, whose top each element has to beat; the heap is then emptied
from the worst on. "radix": the row is sorted, for a k that is a large part of a long row.
"""

from __future__ import annotations

from math import log, log2, prod

from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, div, index, mod
from edgepack.compiler.kernels.cpu.selection.builder import (
    WIDE,
    Cell,
    SelectionKernel,
    ordered,
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

__all__ = ["TopKKernel"]


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
        heaps = self.dtype not in WIDE and heap_is_faster(self.length, self.k)
        (self._by_heap if heaps else self._by_sorting)(e)
        return self.implementation([e.stage(rows)], e.scratch_bytes, form="heap" if heaps else "radix")

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

        def one(i: Expr) -> None:
            own = order(i)

            def enter() -> None:
                sift(e, heap, 0, size, e.let(worst_first(own, i)))
                bar.set(order_of(e.load(heap, 0)))

            e.branch(own > bar.get(), enter)

        e.loop(self.k, self.length, one)


def heap_is_faster(length: int, k: int) -> bool:
    """Whether the heap takes less time than sorting, for elements in random order.

    Of ``length`` elements k (1 + ln(length / k)) enter the heap, and k leave it. Nanoseconds of one level of
    the heap, of an element and of a digit were measured on x86-64; only their ratios count.
    """
    levels = log2(k + 1)
    heap = length + 6 * k * levels * (2 + log(length / k))
    return heap <= 12 * length + 1500

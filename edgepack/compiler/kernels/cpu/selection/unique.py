"""Unique: the different elements of a tensor, or slices along an axis, each once.

Positions are sorted by all elements of their slices, which brings equal ones together, the first one first.
Unless the results are to be sorted, they are then numbered in the order in which they occur.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, div, index, mod
from edgepack.compiler.kernels.cpu.selection.builder import (
    Cell,
    SelectionKernel,
    fill,
    ordered,
    repeat,
    strided_rows,
)
from edgepack.compiler.kernels.cpu.selection.radix import RadixSort

__all__ = ["UniqueKernel"]


class UniqueKernel(SelectionKernel):
    """The slices, where each occurs first, which one each slice of the input is, and how often it occurs."""

    def build(self) -> Implementation:
        e = self.emitter()
        self.dtype = self.dtypes["x"]
        self.outer, self.length, self.inner = strided_rows(self.shapes["x"], self.form.numbers["axis"])
        stored = "uint8" if self.dtype == "bool" else self.dtype
        (self.x,) = self.declared(e, "x", dtype=stored)
        (self.y,) = self.declared(e, "y", dtype=stored)
        self.first, self.inverse, self.counts, count = self.declared(
            e, "indices", "inverse_indices", "counts", "count"
        )
        sort = RadixSort(e, self.length, self.dtype)
        self.leaders = e.scratch(self.length, "int32")
        self.numbers = e.scratch(self.length, "int32")
        e.task_range()
        self._group(e, sort)
        total = self._number(e, sort)
        self._pad(e, stored, total)
        e.vstore(count, 0, total.astype("int64"), 1)
        return self.implementation([e.stage(1)], e.scratch_bytes, axis=self.form.numbers["axis"])

    def _element(self, position: Expr, number: Index) -> Expr:
        """Where an element of a slice lies."""
        row, column = div(number, self.inner), mod(number, self.inner)
        return (row * self.length + position) * self.inner + column

    def _order(self, e: Emitter, position: Expr, number: Index) -> Expr:
        value = e.let(e.load(self.x, self._element(position, number)))
        return ordered(value, self.dtype)

    def _group(self, e: Emitter, sort: RadixSort) -> None:
        """Writes for each slice the first one that is equal to it."""
        elements = self.outer * self.inner
        sort.start()
        e.loop(
            0,
            elements,
            lambda n: sort.sort(lambda position: self._order(e, position, e.let(elements - 1 - n))),
        )
        leader = Cell(e, e.load(sort.positions, 0))

        def one(i: Expr) -> None:
            own = e.let(e.load(sort.positions, i))
            before = leader.get()
            same, at = Cell(e, 1), Cell(e, 0)

            def compare() -> None:
                number = at.get()
                at.set(number + 1)
                a, b = (e.let(self._order(e, position, number)) for position in (own, before))
                e.branch(tirx.NE(a, b), lambda: same.set(0))

            repeat(e, tirx.And(tirx.EQ(same.now(), index(1)), at.now() < index(elements)), compare)
            e.branch(tirx.EQ(same.get(), index(0)), lambda: leader.set(own))
            e.vstore(self.leaders, own, leader.get(), 1)

        e.loop(0, self.length, one)

    def _number(self, e: Emitter, sort: RadixSort) -> Expr:
        """Numbers the groups, and writes all results but the padding; how many groups there are."""
        found = Cell(e, 0)
        by_order = bool(self.form.numbers["sorted"])
        if self.counts is not None:
            fill(e, self.counts, 0, self.most, tirx.const(0, "int64"))

        def one(i: Expr) -> None:
            position = e.let(e.load(sort.positions, i)) if by_order else i

            def lead() -> None:
                place = found.get()
                e.vstore(self.numbers, position, place, 1)
                e.branch(place < index(self.most), lambda: self._write(e, place, position))
                found.set(place + 1)

            leader = e.let(e.load(self.leaders, position))
            e.branch(tirx.EQ(leader, position), lead)
            number = e.let(e.load(self.numbers, leader))
            if self.inverse is not None:
                e.vstore(self.inverse, position, number.astype("int64"), 1)
            if self.counts is not None:
                e.branch(number < index(self.most), lambda: self._count(e, number))

        e.loop(0, self.length, one)
        return found.get()

    def _count(self, e: Emitter, number: Expr) -> None:
        e.vstore(self.counts, number, e.load(self.counts, number) + tirx.const(1, "int64"), 1)

    def _write(self, e: Emitter, place: Expr, position: Expr) -> None:
        """One slice, and where it is."""
        if self.first is not None:
            e.vstore(self.first, place, position.astype("int64"), 1)

        def row(o: Expr) -> None:
            source = e.let((o * self.length + position) * self.inner)
            target = e.let((o * self.most + place) * self.inner)
            e.loop(0, self.inner, lambda j: e.vstore(self.y, target + j, e.load(self.x, source + j), 1))

        e.loop(0, self.outer, row)

    def _pad(self, e: Emitter, dtype: str, total: Expr) -> None:
        used = e.let(tirx.min(total, index(self.most)))
        if self.first is not None:
            fill(e, self.first, used, self.most, tirx.const(0, "int64"))

        def row(o: Expr) -> None:
            begin = e.let((o * self.most + used) * self.inner)
            end = e.let((o + 1) * (self.most * self.inner))
            fill(e, self.y, begin, end, tirx.const(0, dtype))

        e.loop(0, self.outer, row)

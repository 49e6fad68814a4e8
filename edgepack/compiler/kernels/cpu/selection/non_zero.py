"""NonZero and Compress: entries in the order in which they lie."""

from __future__ import annotations

from math import prod

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.emit.indices import index, unravel
from edgepack.compiler.kernels.cpu.selection.builder import Cell, SelectionKernel, fill, strided_rows
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["CompressKernel", "NonZeroKernel"]


class NonZeroKernel(SelectionKernel):
    """Positions of the bytes that are not 0, [rank, most], and how many there are."""

    def build(self) -> Implementation:
        e, shape, most = self.emitter(), self.shapes["x"], self.most
        x, y, count = self.declared(e, "x", "y", "count")
        e.task_range()
        found = Cell(e, 0)

        def one(i: Expr) -> None:
            def hit() -> None:
                place = found.get()

                def write() -> None:
                    for axis, position in enumerate(unravel(i, shape)):
                        e.vstore(y, place + axis * most, index(position).astype("int64"), 1)

                e.branch(place < index(most), write)
                found.set(place + 1)

            e.branch(tirx.NE(e.load(x, i), tirx.const(0, "uint8")), hit)

        e.loop(0, prod(shape), one)
        total = found.get()
        for axis in range(len(shape)):
            begin = e.let(tirx.min(total, index(most)) + axis * most)
            fill(e, y, begin, (axis + 1) * most, tirx.const(0, "int64"))
        e.vstore(count, 0, total.astype("int64"), 1)
        return self.implementation([e.stage(1)], e.scratch_bytes)


class CompressKernel(SelectionKernel):
    """Slices along an axis where a condition holds; elements are moved, whatever they are."""

    def build(self) -> Implementation:
        e, most = self.emitter(), self.most
        outer, length, inner = strided_rows(self.shapes["input"], self.form.numbers["axis"])
        dtype = f"uint{8 * DTYPE_BYTES[self.dtypes['input']]}"
        (condition,) = self.declared(e, "condition")
        x, y = self.declared(e, "input", "output", dtype=dtype)
        (count,) = self.declared(e, "count")
        e.task_range()
        found = Cell(e, 0)

        def one(i: Expr) -> None:
            def hit() -> None:
                place = found.get()

                def move(o: Expr) -> None:
                    source, target = e.let((o * length + i) * inner), e.let((o * most + place) * inner)
                    e.loop(0, inner, lambda j: e.vstore(y, target + j, e.load(x, source + j), 1))

                e.branch(place < index(most), lambda: e.loop(0, outer, move))
                found.set(place + 1)

            e.branch(tirx.NE(e.load(condition, i), tirx.const(0, "uint8")), hit)

        e.loop(0, min(length, prod(self.shapes["condition"])), one)
        total = found.get()
        used = e.let(tirx.min(total, index(most)) * inner)

        def rest(o: Expr) -> None:
            row = e.let(o * (most * inner))
            fill(e, y, e.let(row + used), e.let(row + most * inner), tirx.const(0, dtype))

        e.loop(0, outer, rest)
        e.vstore(count, 0, total.astype("int64"), 1)
        return self.implementation([e.stage(1)], e.scratch_bytes)

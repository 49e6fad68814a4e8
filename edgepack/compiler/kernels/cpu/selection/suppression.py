"""NonMaxSuppression: of boxes that overlap much, the one with the highest score.

A task chooses the boxes of one class in one image: those above the score's threshold become a heap, whose top
is kept unless it overlaps one that was kept, of which a vector is compared at once. A second kernel puts the
choices of all tasks behind each other.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, div, index, mod
from edgepack.compiler.kernels.cpu.selection.builder import Cell, SelectionKernel, fill, ordered, repeat
from edgepack.compiler.kernels.cpu.selection.heap import best_first, build_heap, position_of, sift
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["SuppressionKernel"]

#: A box as it is compared: its least and greatest coordinates, and its area.
EDGES = 5

#: What the node's numbers may be left out for.
THRESHOLDS = ("max_output_boxes_per_class", "iou_threshold", "score_threshold")


class SuppressionKernel(SelectionKernel):
    """[most, 3]: image, class and box of what is kept, in this order, and in each class by falling score."""

    def build(self) -> Implementation:
        images, classes, boxes = self.shapes["scores"]
        self.boxes, self.classes, self.tasks = boxes, classes, images * classes
        self.kept = min(boxes, self.form.numbers["limit"])
        self.room = min(self.kept, self.most)
        lanes = self.target.word_lanes
        self.row = -(-self.kept // lanes) * lanes
        choose, scratch = self._choose()
        temps = (DTYPE_BYTES["int32"] * self.tasks * self.room, DTYPE_BYTES["int32"] * self.tasks)
        return self.implementation([choose, self._collect()], scratch, temps)

    # First stage ------------------------------------------------------------------------------------------

    def _choose(self) -> tuple[Stage, tuple[int, ...]]:
        e, boxes = self.emitter(), self.boxes
        corners, scores, *given = self.declared(e, "boxes", "scores", *THRESHOLDS)
        chosen, counts = e.temp(0, self.tasks * self.room, "int32"), e.temp(1, self.tasks, "int32")
        heap = e.scratch(boxes + 1, "int64")
        kept = e.scratch(EDGES * self.row, "float32")
        lo, hi = e.task_range()
        limit, overlap = self._limits(e, given)

        def task(t: Expr) -> None:
            row = e.let(t * boxes)
            size = self._candidates(e, scores, row, heap, given[2])
            build_heap(e, heap, size.get())
            found = Cell(e, 0)

            def pop() -> None:
                top = e.let(position_of(e.load(heap, 0), worst=False))
                last = e.let(size.get() - 1)
                size.set(last)
                e.branch(last > index(0), lambda: sift(e, heap, 0, last, e.let(e.load(heap, last))))
                image = e.let(div(t, self.classes) * boxes)
                box = self._box(e, corners, e.let((image + top) * 4))
                place = found.get()
                passed = self._clear_of(e, kept, place, box, overlap)

                def keep() -> None:
                    self._keep(e, kept, place, box)
                    e.branch(
                        place < index(self.room), lambda: e.vstore(chosen, t * self.room + place, top, 1)
                    )
                    found.set(place + 1)

                e.branch(tirx.EQ(passed.get(), index(1)), keep)

            repeat(e, tirx.And(size.now() > index(0), found.now() < limit), pop)
            e.vstore(counts, t, found.get(), 1)

        e.loop(lo, hi, task)
        return e.stage(self.tasks), tuple(e.scratch_bytes)

    def _limits(self, e: Emitter, given: list[Any]) -> tuple[Expr, Expr]:
        """How many boxes of a class are kept, and from which overlap on they are not."""
        if given[0] is None:
            limit = index(0)
        else:
            most, none = tirx.const(self.kept, "int64"), tirx.const(0, "int64")
            limit = e.let(tirx.max(tirx.min(e.load(given[0], 0), most), none).astype("int32"))
        overlap = e.f32(0.0, 1) if given[1] is None else e.let(e.load(given[1], 0))
        return limit, overlap

    def _candidates(self, e: Emitter, scores: Buffer, row: Expr, heap: Buffer, threshold: Any) -> Cell:
        """Writes the numbers of those with a score above the threshold to the heap's memory; how many."""
        size = Cell(e, 0)
        least = None if threshold is None else e.let(e.load(threshold, 0))

        def one(i: Expr) -> None:
            score = e.let(e.load(scores, row + i))

            def take() -> None:
                at = size.get()
                e.vstore(heap, at, best_first(ordered(score, "float32"), i), 1)
                size.set(at + 1)

            if least is None:
                take()
            else:
                e.branch(score > least, take)

        e.loop(0, self.boxes, one)
        return size

    def _box(self, e: Emitter, corners: Buffer, at: Expr) -> list[Expr]:
        """Least and greatest coordinates along both axes, and the area."""
        a, b, c, d = (e.let(e.load(corners, at + i)) for i in range(4))
        if self.form.numbers["center_point_box"]:  # x, y of the middle, width, height
            half = e.f32(0.5, 1)
            across, down = e.let(c * half), e.let(d * half)
            edges = [e.let(v) for v in (a - across, a + across, b - down, b + down)]
        else:  # two opposite corners, in any order
            edges = [e.let(v) for v in (tirx.min(a, c), tirx.max(a, c), tirx.min(b, d), tirx.max(b, d))]
        area = e.let((edges[1] - edges[0]) * (edges[3] - edges[2]))
        return [*edges, area]

    def _keep(self, e: Emitter, kept: Buffer, place: Expr, box: list[Expr]) -> None:
        """Writes a box behind those that are kept, and before it a vector of boxes without area."""
        lanes = self.target.word_lanes

        def clear() -> None:
            for i in range(EDGES):
                e.vstore(kept, place + i * self.row, e.f32(0.0, lanes), lanes)

        e.branch(tirx.EQ(index(mod(place, lanes)), index(0)), clear)
        for i, edge in enumerate(box):
            e.vstore(kept, place + i * self.row, edge, 1)

    def _clear_of(self, e: Emitter, kept: Buffer, count: Expr, box: list[Expr], overlap: Expr) -> Cell:
        """1 if the box overlaps none of the kept ones by more than the threshold."""
        lanes = self.target.word_lanes
        clear, other = Cell(e, 1), Cell(e, 0)
        least, own = e.splat(overlap, lanes), [e.splat(edge, lanes) for edge in box]
        none = e.f32(0.0, lanes)

        def compare() -> None:
            i = other.get()
            other.set(i + lanes)
            edges = [e.let(e.vload(kept, i + j * self.row, lanes)) for j in range(EDGES)]
            width = e.let(tirx.min(own[1], edges[1]) - tirx.max(own[0], edges[0]))
            height = e.let(tirx.min(own[3], edges[3]) - tirx.max(own[2], edges[2]))
            shared = e.let(width * height)
            union = e.let(own[4] + edges[4] - shared)
            over = e.let(shared / union) > least
            for positive in (width, height, shared, union, edges[4]):
                over = tirx.And(over, positive > none)
            flags = tirx.Select(over, e.splat(index(1), lanes), e.splat(index(0), lanes))
            seen = flags
            if lanes > 1:
                seen = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", flags)
            e.branch(tirx.NE(seen, index(0)), lambda: clear.set(0))

        more = tirx.And(tirx.EQ(clear.now(), index(1)), other.now() < count)
        e.branch(box[4] > e.f32(0.0, 1), lambda: repeat(e, more, compare))
        return clear

    # Second stage -----------------------------------------------------------------------------------------

    def _collect(self) -> Stage:
        e = self.emitter()
        y, count = self.declared(e, "selected_indices", "count")
        chosen, counts = e.temp(0, self.tasks * self.room, "int32"), e.temp(1, self.tasks, "int32")
        e.task_range()
        found = Cell(e, 0)

        def task(t: Expr) -> None:
            begin, number = found.get(), e.let(e.load(counts, t))
            fitting = e.let(tirx.min(number, tirx.max(index(self.most) - begin, index(0))))

            def one(i: Expr) -> None:
                at = e.let((begin + i) * 3)
                box = e.load(chosen, t * self.room + i)
                parts: tuple[Index, ...] = (div(t, self.classes), mod(t, self.classes), box)
                for place, part in enumerate(parts):
                    e.vstore(y, at + place, index(part).astype("int64"), 1)

            e.loop(0, fitting, one)
            found.set(begin + number)

        e.loop(0, self.tasks, task)
        total = found.get()
        fill(e, y, e.let(tirx.min(total, index(self.most)) * 3), self.most * 3, tirx.const(0, "int64"))
        e.vstore(count, 0, total.astype("int64"), 1)
        return e.stage(1)

"""Rule ``trees``: the trees of an ensemble, walked without branches.

A row's features become keys first. Then several walks go on side by side, for each waits for what it has just
loaded: of few rows those of one row through several trees, of many rows those of several rows through one
tree, whose records stay in the caches.
"""

from __future__ import annotations

from math import prod

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.trees import TreeWalk
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.classical.keys import key_of, largest
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.compiler.kernels.cpu.selection.builder import Cell, repeat
from edgepack.compiler.kernels.rule import Rule
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.opt_level import PLAIN
from edgepack.plan.target import CpuTarget

__all__ = ["TreesKernel", "trees"]

#: Walks side by side, and how many on microcontrollers, which have few registers and work in order.
SIDE_BY_SIDE, FEW_SIDE_BY_SIDE = 8, 2

#: Steps after which walks through uneven trees look whether all have reached a leaf.
STEPS = 2

#: Least rows of a task where there are so many, whose trees are walked one after the other by all of them.
BLOCK = 64


class TreesKernel:
    """Builds the kernel of one ensemble."""

    def __init__(self, fused: FusedGroup, walk: TreeWalk, target: CpuTarget) -> None:
        self.walk, self.target = walk, target
        self.side = FEW_SIDE_BY_SIDE if target.short_of_memory else SIDE_BY_SIDE
        self.e = e = Emitter(1, target)
        buffers = list(fused.function.params)
        shapes = [tuple(int(d) for d in buffer.shape) for buffer in buffers]
        self.dtype = str(buffers[0].dtype)
        self.kind = "int64" if self.dtype == "float64" else "int32"
        wide = self.kind == "int64"
        self.x = e.param(0, prod(shapes[0]), self.kind)
        records, self.words = shapes[1]
        self.records = e.param(1, records * self.words)
        self.halves = None if walk.wide else self._halves(records)
        self.thresholds = e.param(2, records, "int64") if wide else None
        self.trees = e.param(2 + wide, walk.trees * 3)
        self.leaves = e.param(3 + wide, prod(shapes[3 + wide]), self.dtype) if walk.by_row else None
        self.result = e.output(0, walk.rows * walk.columns, self.dtype)
        copies = 2 if walk.nan == "both" else 1
        self.stride = walk.features * copies + 1
        self.block = self._rows_of_a_task()
        self.keys = e.scratch(self.block * self.stride, self.kind)

    def _rows_of_a_task(self) -> int:
        """As many as have their keys in the second half of the L2 cache, for trees that are larger than that
        are read anew for each block; but every thread has some."""
        fitting = self.target.l2_bytes // 2 // (self.stride * DTYPE_BYTES[self.kind])
        shares = -(-self.walk.rows // max(1, self.target.threads))
        return max(1, min(self.walk.rows, max(BLOCK, shares), max(fitting, self.side)))

    def _halves(self, records: int) -> Buffer:
        """The records as numbers of 16 bits."""
        view = tirx.decl_buffer((2 * records * self.words,), "uint16", self.e.name("b"))
        self.e.add(tirx.DeclBuffer(view, data=self.records.data))
        return view

    def build(self) -> Implementation:
        """Emits the kernel: a task is a block of rows."""
        e, walk = self.e, self.walk
        side = self.side
        tasks = -(-walk.rows // self.block)

        def task(t: Expr) -> None:
            first = e.let(t * self.block)
            count = (
                self.block
                if walk.rows % self.block == 0
                else e.let(tirx.min(index(walk.rows) - first, index(self.block)))
            )
            e.loop(0, count, lambda r: self._prepare(e.let(first + r), r))
            if self.block >= side:
                self._rows_side_by_side(first, count, side)
            else:
                e.loop(0, count, lambda r: self._trees_side_by_side(e.let(first + r), r, side))

        e.tasks(task)
        parameters = {"side by side": side, "rows": self.block}
        return Implementation(
            "trees", (e.stage(tasks),), scratch=tuple(e.scratch_bytes), parameters=parameters
        )

    # A row ------------------------------------------------------------------------------------------------

    def _prepare(self, row: Expr, place: Expr) -> None:
        """Writes a row's keys, and what its results begin with."""
        e, walk = self.e, self.walk
        source, target = e.let(row * walk.features), e.let(place * self.stride)

        def one(at: Expr, lanes: int) -> None:
            raw = e.let(e.vload(self.x, source + at, lanes))
            for copy, low in enumerate({"high": [False], "low": [True], "both": [False, True]}[walk.nan]):
                key = key_of(raw, self.kind, lanes, low=low)
                e.vstore(self.keys, target + copy * walk.features + at, key, lanes)

        lanes = self.target.lanes(self.kind) if self.target.vector_bits else 1
        whole = walk.features // lanes if lanes > 1 else 0
        if whole:
            e.loop(0, whole, lambda b: one(b * lanes, lanes))
        e.loop(whole * lanes, walk.features, lambda i: one(i, 1))
        e.vstore(self.keys, target + (self.stride - 1), tirx.const(largest(self.kind), self.kind), 1)
        begin = {"SUM": 0.0, "MIN": float("inf"), "MAX": float("-inf")}[walk.aggregate]
        result = e.let(row * walk.columns)
        e.loop(0, walk.columns, lambda c: e.vstore(self.result, result + c, tirx.const(begin, self.dtype), 1))

    # Walks ------------------------------------------------------------------------------------------------

    def _walk(self, roots: list[Expr], keys: list[Index], steps: Expr) -> list[Expr]:
        """The leaves that walks reach, side by side: from these records on, by these rows' keys."""
        e = self.e
        at = e.local(len(roots), "int32")
        for number, root in enumerate(roots):
            e.vstore(at, number, root, 1)

        def step() -> list[Expr]:
            offsets = []
            for number, row in enumerate(keys):
                here = e.let(e.load(at, number))
                feature, offset = self._asked(here)
                offset = e.let(offset)
                key = e.load(self.keys, feature + row)
                yes = tirx.Cast("int32", key <= self._threshold(here))
                e.vstore(at, number, here + offset + yes, 1)
                offsets.append(offset)
            return offsets

        def walked() -> None:
            step()

        if not self.walk.uneven:
            e.loop(0, steps, lambda _: walked())
            return [e.let(e.load(at, number)) for number in range(len(roots))]
        left = Cell(e, steps)

        def some() -> None:
            for _ in range(STEPS - 1):
                step()
            moved: Expr = index(0)
            for offset in step():
                moved = tirx.bitwise_or(moved, offset)
            left.set(tirx.Select(tirx.EQ(moved, index(0)), index(0), left.get() - STEPS))

        repeat(e, left.now() > index(0), some)
        return [e.let(e.load(at, number)) for number in range(len(roots))]

    def _asked(self, here: Expr) -> tuple[Expr, Expr]:
        """Feature and offset of a record."""
        e, last = self.e, self.words - 1
        if self.halves is None:
            return tuple(e.load(self.records, here * self.words + (last - 1 + i)) for i in (0, 1))
        return tuple(
            tirx.Cast("int32", e.load(self.halves, here * (2 * self.words) + (2 * last + i))) for i in (0, 1)
        )

    def _threshold(self, here: Expr) -> Expr:
        if self.thresholds is not None:
            return self.e.load(self.thresholds, here)
        return self.e.load(self.records, here * self.words)

    def _add(self, leaf: Expr, tree: Expr, result: Expr) -> None:
        """Combines what a row, whose results begin at ``result``, has found in a tree."""
        e, walk = self.e, self.walk
        found = self._threshold(leaf)

        def combine(place: Expr, value: Expr) -> None:
            before = e.load(self.result, place)
            after = {
                "SUM": lambda: before + value,
                "MIN": lambda: tirx.min(before, value),
                "MAX": lambda: tirx.max(before, value),
            }
            e.vstore(self.result, place, after[walk.aggregate](), 1)

        if self.leaves is None:
            column = e.load(self.trees, tree * 3 + 2) if walk.columns > 1 else index(0)
            combine(e.let(result + column), tirx.reinterpret(self.dtype, found))
            return
        row = e.let(tirx.Cast("int32", found) * walk.columns)
        e.loop(0, walk.columns, lambda c: combine(result + c, e.load(self.leaves, row + c)))

    # Orders -----------------------------------------------------------------------------------------------

    def _trees_side_by_side(self, row: Expr, place: Expr, side: int) -> None:
        e, walk = self.e, self.walk
        keys, result = e.let(place * self.stride), e.let(row * walk.columns)

        def some(first: Index, count: int) -> None:
            trees = [e.let(first + number) for number in range(count)]
            steps: Expr = index(0)
            for tree in trees:
                steps = tirx.max(steps, e.load(self.trees, tree * 3 + 1))
            leaves = self._walk(
                [e.load(self.trees, tree * 3) for tree in trees], [keys] * count, e.let(steps)
            )
            for leaf, tree in zip(leaves, trees, strict=True):
                self._add(leaf, tree, result)

        groups, rest = divmod(walk.trees, side)
        e.loop(0, groups, lambda g: some(e.let(g * side), side))
        if rest:
            some(index(groups * side), rest)

    def _rows_side_by_side(self, first: Expr, count: Index, side: int) -> None:
        e, walk = self.e, self.walk

        def tree(t: Expr) -> None:
            root, steps = (e.let(e.load(self.trees, t * 3 + i)) for i in (0, 1))

            def some(begin: Index, number: int) -> None:
                places = [e.let(begin + n) for n in range(number)]
                leaves = self._walk([root] * number, [e.let(p * self.stride) for p in places], steps)
                for leaf, place in zip(leaves, places, strict=True):
                    self._add(leaf, t, e.let((first + place) * walk.columns))

            if isinstance(count, int):
                e.loop(0, count // side, lambda g: some(e.let(g * side), side))
                if count % side:
                    some(index(count - count % side), count % side)
                return
            whole = e.let(tirx.truncdiv(count, index(side)))
            e.loop(0, whole, lambda g: some(e.let(g * side), side))
            e.loop(e.let(whole * side), count, lambda r: some(r, 1))

        e.loop(0, walk.trees, tree)


def trees(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule to a fused group whose anchor is of that kind."""
    del constants
    if fused.anchor is None or fused.anchor.kind != "trees":
        raise RuleError("another operator")
    return TreesKernel(fused, TreeWalk.of(fused.anchor.attributes), target).build()


RULE = Rule(
    "trees", order=680, dtypes=frozenset({"float32", "float64", "int32", "int64"}), apply=trees, level=PLAIN
)

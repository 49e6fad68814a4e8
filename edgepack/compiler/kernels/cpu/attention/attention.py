"""Rule ``attention``: softmax(scores) @ values, a block of queries of one head at a time, in the cache.

A task transposes its block of queries into scratch and computes the scores with them as columns: a register
tile is some keys, each element of which is broadcast, by vectors of queries. So keys are read as they lie,
and each lane has a query of its own: the softmax needs no sums across lanes. The exponentials stay in
scratch, where the product with the values reads them as its left operand; rows are divided by their sums
when they are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, Operand, RuleError, Stage
from edgepack.compiler.kernels.cpu.attention.attention_form import AttentionForm
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, balanced_split, div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
    tile_for,
)
from edgepack.compiler.kernels.cpu.emit.register_transpose import transposed
from edgepack.compiler.kernels.cpu.emit.values import Value, storage_dtype
from edgepack.compiler.kernels.cpu.emit.vector_math import LOG2_E, elementary, exp_below
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsBranch, NeedsSplit, Vectors
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["attention"]

#: Queries of a task: enough that keys and values, which each task reads, come from the last cache seldom.
BLOCK = 64


def attention(group: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``attention`` for the anchor of that kind."""
    if group.anchor is None or group.anchor.kind != "attention":
        raise RuleError("another operator")
    form = AttentionForm.of(group)
    kernel = _Kernel(form, target)
    stage = kernel.stage()
    flops = 2 * prod(form.batch) * form.rows * form.keys * (form.depth + form.columns)
    parameters = {"block": kernel.block, "lanes": kernel.lanes}
    return Implementation(
        "attention", (stage,), scratch=kernel.scratch_bytes, parameters=parameters, flops=flops
    )


class _Scores(Vectors):
    """Evaluates the steps on a vector of scores."""

    scores: Any
    vector: Value

    def read(self, buffer: Any, at: list[Any]) -> Any:
        return self.vector if buffer.same_as(self.scores) else super().read(buffer, at)


@dataclass(frozen=True)
class _Task:
    """The head that a task works on: where its operands begin and its position along the batch."""

    query: Any
    key: Any
    value: Any
    output: Any
    variables: IndexVariables
    batch: tuple[Affine, ...]


class _Kernel:
    def __init__(self, form: AttentionForm, target: CpuTarget) -> None:
        self.form, self.target = form, target
        lanes = target.lanes("float32")
        while lanes > form.rows:
            lanes //= 2
        self.lanes = lanes
        self.e = Emitter(lanes, target)
        most = max(1, BLOCK // lanes)
        while most > 1 and 4 * most * lanes * form.keys > target.l2_bytes // 2:
            most -= 1
        vectors = -(-form.rows // lanes)
        if form.rows % lanes:
            most = min(most, form.rows // lanes)  # the last block overlaps the one before
        self.sizes = [(size * lanes, count) for size, count in balanced_split(vectors, most)]
        self.block = self.sizes[0][0]
        self.blocks = sum(count for _, count in self.sizes)
        scratch = (form.depth * self.block, form.keys * self.block, self.block)
        self.scratch_bytes = tuple(4 * n for n in scratch)
        self.scratch_sizes = scratch

    def stage(self) -> Stage:
        e, form = self.e, self.form
        self.pointers = {p: self._pointer(p) for p in form.params}
        self.q, self.k, self.v = (self.pointers[p] for p in form.params[:3])
        self.y = e.pointer(prod(form.batch) * form.rows * form.columns)
        # Never rebased: LLVM is told that buffers do not overlap, and these are written and read.
        self.panel, self.scores, self.sums = (e.pointer(n) for n in self.scratch_sizes)
        e.tasks(self._task)
        operands = [
            *(Operand("param", i) for i in range(len(form.params))),
            Operand("output", 0),
            *(Operand("scratch", i) for i in range(3)),
        ]
        return Stage(e.finish(), prod(form.batch) * self.blocks, tuple(operands))

    def _pointer(self, buffer: Any) -> Any:
        return self.e.pointer(prod(int(d) for d in buffer.shape), storage_dtype(str(buffer.dtype)))

    def _task(self, task: Any) -> None:
        e, form = self.e, self.form
        head, block = e.let(div(task, self.blocks)), e.let(mod(task, self.blocks))
        variables = IndexVariables()
        places = [e.let(i) for i in unravel(head, form.batch)]
        batch = tuple(
            variables.add(f"b{axis}", at, 0, n - 1)
            for axis, (at, n) in enumerate(zip(places, form.batch, strict=True))
        )

        def start(view: Sequence[int]) -> Any:
            offset, *strides = view
            total: Any = index(offset)
            for at, stride in zip(places, strides, strict=False):
                total = total + at * index(stride)
            return e.let(total)

        query, key, value, output = (start(v) for v in (form.query, form.key, form.value, form.output))
        self._blocks(_Task(query, key, value, output, variables, batch), block)

    def _blocks(self, task: _Task, block: Any) -> None:
        """Branches on the block's size. A last block that is not full begins earlier, and stores its own rows
        only."""
        e, done, row = self.e, 0, 0
        for size, count in self.sizes:

            def body(size: int = size, done: int = done, row: int = row) -> None:
                first = e.let((block - index(done)) * index(size) + index(row))
                begin = e.let(tirx.min(first, index(self.form.rows - size)))
                self._block(task, begin, size, block)

            if len(self.sizes) == 1:
                body()
            else:
                e.branch(tirx.all(block >= index(done), block < index(done + count)), body)
            done, row = done + count, row + size * count

    def _block(self, task: _Task, begin: Any, size: int, block: Any) -> None:
        """``size`` rows from ``begin`` on."""
        self._pack(task, begin, size)
        largest = [self.e.local(self.lanes) for _ in range(size // self.lanes)]
        self._products(task, begin, size, largest)
        self._exponentials(size, largest)
        own = self.form.rows - sum(s * n for s, n in self.sizes) + size  # rows that the last block stores
        if own == size or size != self.sizes[-1][0]:
            self._rows(task, begin, size, 0)
        elif self.sizes[-1][1] == 1:
            self._rows(task, begin, size, size - own)
        else:
            self.e.branch(
                tirx.EQ(index(block), index(self.blocks - 1)),
                lambda: self._rows(task, begin, size, size - own),
                lambda: self._rows(task, begin, size, 0),
            )

    # Queries ----------------------------------------------------------------------------------------------

    def _pack(self, task: _Task, begin: Any, size: int) -> None:
        """panel[k * size + i] = scale * query[begin + i, k], transposed in registers."""
        e, form = self.e, self.form
        row_step, step = form.query[-2:]
        start = e.let(task.query + begin * index(row_step))
        width = min(self.lanes, 8)
        whole = form.depth // width * width if step == 1 else 0

        def scaled(vector: Any, lanes: int) -> Any:
            return vector if form.scale == 1 else vector * e.f32(form.scale, lanes)

        def rows(i: Any) -> None:
            row = e.let(i * index(width))
            source = e.let(start + row * index(row_step))

            def tile(t: Any) -> None:
                k = e.let(t * index(width))
                loaded = [e.let(e.vload(self.q, source + k + r * row_step, width)) for r in range(width)]
                for n, column in enumerate(transposed(e, loaded, width)):
                    e.vstore(self.panel, (k + index(n)) * index(size) + row, scaled(column, width), width)

            e.loop(0, whole // width, tile)

        if whole:
            e.loop(0, size // width, rows)

        def rest(k: Any) -> None:
            def one(i: Any) -> None:
                element = e.load(self.q, start + i * index(row_step) + k * index(step))
                e.vstore(self.panel, k * index(size) + i, scaled(element, 1), 1)

            e.loop(0, size, one)

        e.loop(whole, form.depth, rest)

    # Scores -----------------------------------------------------------------------------------------------

    def _products(self, task: _Task, begin: Any, size: int, largest: Sequence[Any]) -> None:
        """The scores of all keys, and the largest of each query."""
        e, form = self.e, self.form
        for m in largest:
            e.vstore(m, 0, e.f32(float("-inf")))
        tile = tile_for(self.target, form.keys, size)
        done = 0
        for keys, count in balanced_split(form.keys, tile.rows):

            def some(t: Any, keys: int = keys, done: int = done) -> None:
                first = e.let(t * index(keys) + index(done))
                for column in range(0, size, tile.columns):
                    width = min(tile.columns, size - column)
                    self._product(task, begin, size, first, keys, column, width, largest)

            e.loop(0, count, some)
            done += keys * count

    def _product(
        self,
        task: _Task,
        begin: Any,
        size: int,
        first: Any,
        keys: int,
        column: int,
        width: int,
        largest: Sequence[Any],
    ) -> None:
        """A register tile: ``keys`` keys from ``first`` on by ``width`` queries."""
        e, form = self.e, self.form
        chunks = column_chunks(width, self.lanes)
        accumulators = Accumulators(e, keys, chunks)
        accumulators.clear()
        key_step, step = form.key[-2:]
        extent = (keys - 1) * key_step + (form.depth - 1) * step + 1
        view = e.rebased(self.k, e.let(task.key + first * index(key_step)), extent)
        panel = Matrix(self.panel, column, size)
        accumulators.add_product(lambda r, k: e.load(view, k * step + r * key_step), panel, Steps(form.depth))
        variables = task.variables.child()
        row = variables.add("row", begin, 0, form.rows - size)
        key = variables.add("key", first, 0, form.keys - keys)
        for r in range(keys):
            for at, lanes in chunks:
                vector = e.let(accumulators.get(r, at, lanes))
                queries = row.plus(column + at) + Affine(0, (), 1)
                score = self._stepped(vector, variables, (*task.batch, queries, key.plus(r)))
                e.vstore(self.scores, (first + index(r)) * index(size) + index(column + at), score)
                m = largest[(column + at) // self.lanes]
                e.vstore(m, 0, tirx.Max(e.vload(m, 0), score))

    def _stepped(self, vector: Any, variables: IndexVariables, position: tuple[Affine, ...]) -> Any:
        """The score after the steps before the softmax."""
        form, e = self.form, self.e
        reader = _Scores(e, self.lanes, variables, form.blocks, self.pointers)
        reader.scores, reader.vector = form.scores, Value(vector, self.lanes, "float32")
        try:
            found = reader.value(reader.read(form.weighed, list(position)), "float32")
        except (NeedsBranch, NeedsSplit):
            raise RuleError("a step that depends on the position") from None
        return e.let(reader.expr(found, self.lanes))

    def _exponentials(self, size: int, largest: Sequence[Any]) -> None:
        """scores = e**(scores - largest), and the reciprocals of their sums."""
        e = self.e
        strict = e.strict_math
        tops = [e.let(e.vload(m, 0) if strict else e.vload(m, 0) * e.f32(LOG2_E)) for m in largest]
        sums = [e.local(self.lanes) for _ in tops]
        for s in sums:
            e.vstore(s, 0, e.f32(0))

        def key(k: Any) -> None:
            for n, (top, s) in enumerate(zip(tops, sums, strict=True)):
                at = k * index(size) + index(n * self.lanes)
                score = e.let(e.vload(self.scores, at))
                if strict:
                    p = elementary(e, "tirx.exp", e.let(score - top), self.lanes)
                else:
                    p = exp_below(e, score, top, self.lanes)
                e.vstore(self.scores, at, p)
                e.vstore(s, 0, e.vload(s, 0) + p)

        e.loop(0, self.form.keys, key)
        for n, s in enumerate(sums):
            e.vstore(self.sums, n * self.lanes, e.f32(1) / e.vload(s, 0))

    # Values -----------------------------------------------------------------------------------------------

    def _rows(self, task: _Task, begin: Any, size: int, first: int) -> None:
        """Rows ``first`` to ``size`` of the block: the product with the values."""
        e, form = self.e, self.form
        tile = tile_for(self.target, size - first, form.columns)
        done = first
        for rows, count in balanced_split(size - first, tile.rows):

            def some(t: Any, rows: int = rows, done: int = done) -> None:
                row = e.let(t * index(rows) + index(done))
                for column in range(0, form.columns, tile.columns):
                    width = min(tile.columns, form.columns - column)
                    self._row_tile(task, begin, size, row, rows, column, width)

            e.loop(0, count, some)
            done += rows * count

    def _row_tile(
        self, task: _Task, begin: Any, size: int, row: Any, rows: int, column: int, width: int
    ) -> None:
        e, form = self.e, self.form
        chunks = column_chunks(width, self.lanes)
        accumulators = Accumulators(e, rows, chunks)
        accumulators.clear()
        key_step = form.value[-2]
        at = e.let(task.value + index(column))
        even = form.keys - form.keys % 2
        for begin_key, keys in ((0, even), (even, form.keys - even)):
            if keys:
                weights = row + index(begin_key * size)
                start = at + index(begin_key * key_step)
                self._weigh(accumulators, keys, weights, size, start)
        row_step = form.output[-2]
        out = e.let(task.output + (begin + row) * index(row_step) + index(column))
        for r in range(rows):
            scale = e.let(e.load(self.sums, row + index(r)))
            for c, lanes in chunks:
                value = accumulators.get(r, c, lanes) * e.splat(scale, lanes)
                e.vstore(self.y, out + index(r * row_step + c), value, lanes)

    def _weigh(self, accumulators: Accumulators, keys: int, weights: Any, size: int, start: Any) -> None:
        """Adds the products of ``keys`` weights of each row, from ``weights`` on, with the values."""

        def weight(r: int, k: Any) -> Any:
            return self.e.load(self.scores, k * index(size) + weights + index(r))

        accumulators.add_product(weight, Matrix(self.v, start, self.form.value[-2]), Steps(keys))


RULE = Rule("attention", order=600, dtypes=FLOAT32 | {"bool"}, apply=attention)

"""The scores of a block of queries: products with all keys, the steps behind them, and the exponentials.

Queries are the columns of the register tile and each lane has a query of its own, so that the softmax needs
no sums across lanes. Keys are its rows, read as they lie, one element broadcast at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.attention.attention_form import AttentionForm
from edgepack.compiler.kernels.cpu.attention.query_block import AttentionBuffers, QueryBlock
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, balanced_split, div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
    tile_for,
)
from edgepack.compiler.kernels.cpu.emit.register_transpose import transposed
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.emit.vector_math import elementary, exp_below, is_nan
from edgepack.compiler.kernels.cpu.emit.vector_parts import MATH_DTYPE
from edgepack.compiler.kernels.cpu.emit.vectors import NeedsBranch, NeedsSplit, Vectors
from edgepack.compiler.kernels.cpu.micro.multiply_add import multiply_add
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["Scores"]

#: Lanes of a tile of queries that is transposed in registers, at most.
TRANSPOSED_LANES = 8


class _ScoreVectors(Vectors):
    """Evaluates the steps behind the product on a vector of scores.

    Args:
        vector: stands for what is read of :attr:`AttentionForm.scores`.
    """

    def __init__(
        self,
        e: Emitter,
        variables: IndexVariables,
        form: AttentionForm,
        params: AttentionBuffers,
        vector: Value,
    ) -> None:
        super().__init__(e, vector.lanes, variables, form.blocks, params.params)
        self.scores, self.vector = form.scores, vector

    def read(self, buffer: Buffer, at: list[Any]) -> Any:
        return self.vector if buffer.same_as(self.scores) else super().read(buffer, at)


class Scores:
    """Emits what becomes of a block of queries before the product with the values."""

    def __init__(self, e: Emitter, form: AttentionForm, buffers: AttentionBuffers, target: CpuTarget) -> None:
        self.e, self.form, self.buffers, self.target = e, form, buffers, target
        self.lanes = e.lanes

    def emit(self, block: QueryBlock) -> Callable[[Index, int], None]:
        """Leaves the scores in scratch.

        Returns:
            What emits the exponentials of so many keys from the first one on in their place, and the
            reciprocals of the sums so far.
        """
        e = self.e
        self._pack(block)
        largest, sums = ([e.local(self.lanes) for _ in range(block.size // self.lanes)] for _ in range(2))
        self._products(block, largest)
        tops = [e.let(e.vload(m, 0)) for m in largest]
        for s in sums:
            e.vstore(s, 0, e.f32(0))
        return lambda first, keys: self._exponentials(block.size, (first, keys), tops, sums)

    # Queries ----------------------------------------------------------------------------------------------

    def _pack(self, block: QueryBlock) -> None:
        """panel[k * size + i] = scale * query[begin + i, k], transposed in registers."""
        e, form, size = self.e, self.form, block.size
        row_step, step = form.query[-2:]
        start = e.let(block.head.query + block.begin * index(row_step))
        width = min(self.lanes, TRANSPOSED_LANES)
        whole = form.depth // width * width if step == 1 else 0

        def rows(i: Expr) -> None:
            row = e.let(i * index(width))
            source = e.let(start + row * index(row_step))
            e.loop(0, whole // width, lambda t: self._pack_tile(source, row, e.let(t * index(width)), size))

        if whole:
            e.loop(0, size // width, rows)

        def rest(k: Expr) -> None:
            def one(i: Expr) -> None:
                element = e.load(self.buffers.query, start + i * index(row_step) + k * index(step))
                e.vstore(self.buffers.panel, k * index(size) + i, self._scaled(element, 1), 1)

            e.loop(0, size, one)

        e.loop(whole, form.depth, rest)

    def _pack_tile(self, source: Index, row: Index, k: Index, size: int) -> None:
        """A square tile of queries from ``row`` and element ``k`` on; ``source`` is where the row begins."""
        e, row_step = self.e, self.form.query[-2]
        width = min(self.lanes, TRANSPOSED_LANES)
        loaded = [e.let(e.vload(self.buffers.query, source + k + r * row_step, width)) for r in range(width)]
        for n, column in enumerate(transposed(e, loaded, width)):
            place = (k + index(n)) * index(size) + row
            e.vstore(self.buffers.panel, place, self._scaled(column, width), width)

    def _scaled(self, vector: Expr, lanes: int) -> Expr:
        scale = self.form.scale
        return vector if scale == 1 else vector * self.e.f32(scale, lanes)

    # Products ---------------------------------------------------------------------------------------------

    def _products(self, block: QueryBlock, largest: Sequence[Buffer]) -> None:
        """The scores of all keys, and the largest of each query."""
        e, form = self.e, self.form
        for m in largest:
            e.vstore(m, 0, e.f32(float("-inf")))
        tile = tile_for(self.target, form.keys, block.size, e.dtype)
        done = 0
        for keys, count in balanced_split(form.keys, tile.rows):

            def some(t: Expr, keys: int = keys, done: int = done) -> None:
                first = e.let(t * index(keys) + index(done))
                for column, width in column_chunks(block.size, tile.columns):
                    self._tile(block, (first, keys), (column, width), largest)

            e.loop(0, count, some)
            done += keys * count

    def _tile(
        self,
        block: QueryBlock,
        keys: tuple[Index, int],
        queries: tuple[int, int],
        largest: Sequence[Buffer],
    ) -> None:
        """A register tile; ``keys`` and ``queries`` are the first one and how many."""
        e, form = self.e, self.form
        (first, rows), (column, width) = keys, queries
        accumulators = Accumulators(e, rows, column_chunks(width, self.lanes))
        accumulators.clear()
        key_step, step = form.key[-2:]
        extent = (rows - 1) * key_step + (form.depth - 1) * step + 1
        view = e.rebased(self.buffers.key, e.let(block.head.key + first * index(key_step)), extent)
        panel = Matrix(self.buffers.panel, column, block.size)
        steps = Steps(form.depth, prefetch=self._next_keys(block, first + index(rows)))
        multiply_add(e).add_product(
            e, accumulators, lambda r, k: e.load(view, k * step + r * key_step), panel, steps
        )
        variables = block.head.variables.child()
        query = variables.add("row", block.begin, 0, form.rows - block.size)
        key = variables.add("key", first, 0, form.keys - rows)
        for r in range(rows):
            for at, lanes in accumulators.chunks:
                vector = e.let(accumulators.get(r, at, lanes))
                position = (*block.head.batch, query.plus(column + at) + Affine(0, (), 1), key.plus(r))
                score = self._stepped(vector, variables, position)
                place = (first + index(r)) * index(block.size) + index(column + at)
                e.vstore(self.buffers.scores, place, score)
                m = largest[(column + at) // self.lanes]
                e.vstore(m, 0, tirx.Max(e.vload(m, 0), score))

    def _next_keys(self, block: QueryBlock, first: Index) -> Callable[[Index], None] | None:
        """Asks for the keys from ``first`` on, a line of one in each iteration, where a head has more than an
        eighth of the L2 cache: no prefetcher of the CPU follows those of several heads side by side."""
        e, (key_step, step) = self.e, self.form.key[-2:]
        lines = self.form.depth // e.line
        nbytes = self.form.keys * self.form.depth * DTYPE_BYTES[MATH_DTYPE]
        if step != 1 or not lines or key_step == self.form.depth or nbytes * 8 <= self.target.l2_bytes:
            return None
        start = e.let(block.head.key + first * index(key_step))

        def prefetch(k: Index) -> None:
            number = div(k, 2)
            e.prefetch(
                self.buffers.key, start + div(number, lines) * key_step + mod(number, lines) * e.line, 3
            )

        return prefetch

    def _stepped(self, vector: Expr, variables: IndexVariables, position: tuple[Affine, ...]) -> Expr:
        """The score after the steps before the softmax."""
        form = self.form
        value = Value(vector, self.lanes, MATH_DTYPE)
        reader = _ScoreVectors(self.e, variables, form, self.buffers, value)
        try:
            found = reader.value(reader.read(form.weighed, list(position)), MATH_DTYPE)
        except (NeedsBranch, NeedsSplit):
            raise RuleError("a step that depends on the position") from None
        return self.e.let(reader.expr(found, self.lanes))

    # Exponentials -----------------------------------------------------------------------------------------

    def _exponentials(
        self, size: int, keys: tuple[Index, int], tops: Sequence[Expr], sums: Sequence[Buffer]
    ) -> None:
        """scores = e**(scores - largest) of ``keys``, and the reciprocals of the sums up to there."""
        e, scores = self.e, self.buffers.scores
        first, count = keys
        start = e.let(first * index(size))

        def key(k: Expr) -> None:
            for n, (top, s) in enumerate(zip(tops, sums, strict=True)):
                at = start + k * index(size) + index(n * self.lanes)
                score = e.let(e.vload(scores, at))
                if e.strict_math:
                    p = elementary(e, "tirx.exp", e.let(score - top), self.lanes)
                else:
                    p = exp_below(e, score, top, self.lanes)
                e.vstore(scores, at, self._without_nan(p, p))
                e.vstore(s, 0, e.vload(s, 0) + p)

        e.loop(0, count, key)
        for n, s in enumerate(sums):
            total = e.let(e.vload(s, 0))
            e.vstore(self.buffers.sums, n * self.lanes, self._without_nan(total, e.let(e.f32(1) / total)))

    def _without_nan(self, tested: Expr, value: Expr) -> Expr:
        """``value``; with ``zeroes_nan`` 0 where ``tested`` is NaN."""
        if not self.form.zeroes_nan:
            return value
        return self.e.let(tirx.Select(is_nan(self.e, tested, self.lanes), self.e.f32(0), value))

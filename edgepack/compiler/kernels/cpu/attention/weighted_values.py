"""The product of a block's exponentials with the values, divided by the sums of the exponentials."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.kernels.cpu.attention.attention_form import AttentionForm
from edgepack.compiler.kernels.cpu.attention.query_block import AttentionBuffers, QueryBlock
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, balanced_split, index
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
    tile_for,
)
from edgepack.compiler.kernels.cpu.emit.vector_parts import MATH_DTYPE
from edgepack.compiler.kernels.cpu.micro.multiply_add import multiply_add
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["WeightedValues"]

#: Keys of a run, at least: fewer and the sums are loaded and stored too often.
LEAST_KEYS = 32

#: Emits the exponentials of so many keys from the first one on.
Exponentials = Callable[[Index, int], None]


@dataclass(frozen=True)
class KeyRun:
    """``keys`` keys from ``first`` on; ``number`` counts the runs of all keys."""

    first: Index
    keys: int
    number: Index


class WeightedValues:
    """Emits the rows of the output.

    Where a head's values fill more than an eighth of the L2 cache, all tiles of a block do one run of keys
    before the next, so that all but the first read the values of a run from the L1 cache; in between a tile's
    sums wait in the output.

    Attributes:
        runs: (keys, how many runs of so many), the larger size first.
    """

    def __init__(self, e: Emitter, form: AttentionForm, buffers: AttentionBuffers, target: CpuTarget) -> None:
        self.e, self.form, self.buffers, self.target = e, form, buffers, target
        row = form.columns * DTYPE_BYTES[MATH_DTYPE]
        most = max(LEAST_KEYS, target.l1d_bytes // 2 // row)
        self.runs = balanced_split(form.keys, most if form.keys * row > target.l2_bytes // 8 else form.keys)

    def emit(self, block: QueryBlock, skip: int, exponentials: Exponentials) -> None:
        """The rows of the block but the first ``skip``; ``exponentials`` makes those of a run of keys."""
        e, done, number = self.e, 0, 0
        for keys, count in self.runs:

            def run(t: Expr, keys: int = keys, done: int = done, number: int = number) -> None:
                first = e.let(t * index(keys) + index(done))
                exponentials(first, keys)
                self._rows(block, skip, KeyRun(first, keys, e.let(t + index(number))))

            e.loop(0, count, run)
            done, number = done + keys * count, number + count

    def _rows(self, block: QueryBlock, skip: int, run: KeyRun) -> None:
        e, form = self.e, self.form
        tile = tile_for(self.target, block.size - skip, form.columns, e.dtype)
        done = skip
        for rows, count in balanced_split(block.size - skip, tile.rows):

            def some(t: Expr, rows: int = rows, done: int = done) -> None:
                row = e.let(t * index(rows) + index(done))
                for column, width in column_chunks(form.columns, tile.columns):
                    self._tile(block, (row, rows), (column, width), run)

            e.loop(0, count, some)
            done += rows * count

    def _tile(
        self, block: QueryBlock, queries: tuple[Index, int], columns: tuple[int, int], run: KeyRun
    ) -> None:
        """A register tile; ``queries`` and ``columns`` are the first one and how many."""
        e, form, buffers = self.e, self.form, self.buffers
        (row, rows), (column, width) = queries, columns
        row_step, key_step = form.output[-2], form.value[-2]
        out = e.let(block.head.output + (block.begin + row) * index(row_step) + index(column))
        accumulators = Accumulators(e, rows, column_chunks(width, e.lanes))
        several = sum(count for _, count in self.runs) > 1
        places = [
            (r, c, lanes, out + index(r * row_step + c))
            for r in range(rows)
            for c, lanes in accumulators.chunks
        ]

        def load() -> None:
            for r, c, lanes, place in places:
                accumulators.set(r, c, e.vload(buffers.output, place, lanes), lanes)

        def save() -> None:
            for r, c, lanes, place in places:
                e.vstore(buffers.output, place, accumulators.get(r, c, lanes), lanes)

        def store() -> None:
            for r in range(rows):
                scale = e.let(e.load(buffers.sums, row + index(r)))
                for _, c, lanes, place in (p for p in places if p[0] == r):
                    value = accumulators.get(r, c, lanes) * e.splat(scale, lanes)
                    e.vstore(buffers.output, place, value, lanes)

        if several:
            e.branch(tirx.EQ(run.number, index(0)), accumulators.clear, load)
        else:
            accumulators.clear()
        at = e.let(block.head.value + run.first * index(key_step) + index(column))
        even = run.keys - run.keys % 2
        for begin, keys in ((0, even), (even, run.keys - even)):
            if keys:
                weights = (run.first + index(begin)) * index(block.size) + row
                values = Matrix(buffers.value, at + index(begin * key_step), key_step)
                self._add(accumulators, (e.let(weights), block.size), values, keys)
        if several:
            last = sum(count for _, count in self.runs) - 1
            e.branch(tirx.EQ(run.number, index(last)), store, save)
        else:
            store()

    def _add(self, accumulators: Accumulators, weights: tuple[Index, int], values: Matrix, keys: int) -> None:
        """Adds the products of ``keys`` weights of each row with the values; ``weights`` are the first one,
        and the step from a key's to the next one's."""
        begin, step = weights

        def weight(r: int, k: Index) -> Expr:
            return self.e.load(self.buffers.scores, k * index(step) + begin + index(r))

        multiply_add(self.e).add_product(self.e, accumulators, weight, values, Steps(keys))

"""The product of a block's exponentials with the values, divided by the sums of the exponentials."""

from __future__ import annotations

from tvm.ir import Expr

from edgepack.compiler.kernels.cpu.attention.attention_form import AttentionForm
from edgepack.compiler.kernels.cpu.attention.query_block import AttentionBuffers, QueryBlock
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, Index, balanced_split, index
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
    tile_for,
)
from edgepack.plan.target import CpuTarget

__all__ = ["WeightedValues"]


class WeightedValues:
    """Emits the rows of the output."""

    def __init__(self, e: Emitter, form: AttentionForm, buffers: AttentionBuffers, target: CpuTarget) -> None:
        self.e, self.form, self.buffers, self.target = e, form, buffers, target

    def emit(self, block: QueryBlock, skip: int) -> None:
        """The rows of the block but the first ``skip``."""
        e, form = self.e, self.form
        tile = tile_for(self.target, block.size - skip, form.columns)
        done = skip
        for rows, count in balanced_split(block.size - skip, tile.rows):

            def some(t: Expr, rows: int = rows, done: int = done) -> None:
                row = e.let(t * index(rows) + index(done))
                for column, width in column_chunks(form.columns, tile.columns):
                    self._tile(block, (row, rows), (column, width))

            e.loop(0, count, some)
            done += rows * count

    def _tile(self, block: QueryBlock, queries: tuple[Index, int], columns: tuple[int, int]) -> None:
        """A register tile; ``queries`` and ``columns`` are the first one and how many."""
        e, form, buffers = self.e, self.form, self.buffers
        (row, rows), (column, width) = queries, columns
        accumulators = Accumulators(e, rows, column_chunks(width, e.lanes))
        accumulators.clear()
        key_step = form.value[-2]
        at = e.let(block.head.value + index(column))
        even = form.keys - form.keys % 2
        for begin, keys in ((0, even), (even, form.keys - even)):
            if keys:
                weights = row + index(begin * block.size)
                values = Matrix(buffers.value, at + index(begin * key_step), key_step)
                self._add(accumulators, (weights, block.size), values, keys)
        row_step = form.output[-2]
        out = e.let(block.head.output + (block.begin + row) * index(row_step) + index(column))
        for r in range(rows):
            scale = e.let(e.load(buffers.sums, row + index(r)))
            for c, lanes in accumulators.chunks:
                value = accumulators.get(r, c, lanes) * e.splat(scale, lanes)
                e.vstore(buffers.output, out + index(r * row_step + c), value, lanes)

    def _add(self, accumulators: Accumulators, weights: tuple[Index, int], values: Matrix, keys: int) -> None:
        """Adds the products of ``keys`` weights of each row with the values; ``weights`` are the first one,
        and the step from a key's to the next one's."""
        begin, step = weights

        def weight(r: int, k: Index) -> Expr:
            return self.e.load(self.buffers.scores, k * index(step) + begin + index(r))

        accumulators.add_product(weight, values, Steps(keys))

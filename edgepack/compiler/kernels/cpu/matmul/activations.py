"""Rule ``matmul.batched``: products of two activations, both read as they lie.

The right operand is row-major: a tile's columns are neighbours in memory.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError, Stage
from edgepack.compiler.kernels.cpu.analysis.fused_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, balanced_split, div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
    tile_for,
)
from edgepack.compiler.kernels.rule import FLOAT32, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["batched_matmul"]


def batched_matmul(group: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Rule ``matmul.batched``: both operands are read as they lie, with broadcast batch dimensions."""
    found = anchored(group, ["matmul"])
    left, right = found.operand_shape(0), found.operand_shape(1)
    if len(left) < 2 or len(right) < 2:
        raise RuleError("a vector product")
    builder = _Batched(found, left, right, target)
    stage = builder.build()
    flops = 2 * prod(found.output_shape) * left[-1]
    parameters = {"tile": f"{builder.tile.rows}x{builder.tile.columns}"}
    return Implementation("matmul.batched", (stage,), parameters=parameters, flops=flops)


class _Batched:
    """Emits the kernel; a task is one tile of rows (all columns) of one batch."""

    def __init__(
        self, group: AnchoredGroup, left: tuple[int, ...], right: tuple[int, ...], target: CpuTarget
    ) -> None:
        self.group, self.left, self.right = group, left, right
        *self.batches, self.rows, self.columns = group.output_shape
        self.depth = left[-1]
        self.tile = tile_for(target, self.rows, self.columns)
        self.lanes = target.lanes("float32")
        self.e = Emitter(self.lanes, target)

    def build(self) -> Stage:
        e = self.e
        self.a = e.param(self.group.operand(0), prod(self.left))
        self.b = e.param(self.group.operand(1), prod(self.right))
        self.extra = self.group.declare_epilogue(e)
        self.y = e.output(0, prod(self.group.output_shape))
        tiles = balanced_split(self.rows, self.tile.rows)
        self.tile_count = sum(count for _, count in tiles)
        e.tasks(lambda task: self._task(task, tiles))
        return e.stage(prod(self.batches) * self.tile_count)

    def _offset(self, batch: list[Any], shape: tuple[int, ...]) -> Any:
        """Element offset of the operand's matrix for this batch; dimensions of size one are broadcast."""
        at: Any = 0
        dims = shape[:-2]
        for position, dim in zip(batch[len(batch) - len(dims) :], dims, strict=True):
            at = at * dim + (position if dim > 1 else 0)
        return at * (shape[-2] * shape[-1])

    def _task(self, task: Any, tiles: list[tuple[int, int]]) -> None:
        e = self.e
        flat, tile = e.let(div(task, self.tile_count)), e.let(mod(task, self.tile_count))
        batch = [e.let(i) for i in unravel(flat, self.batches)]
        a, b = e.let(self._offset(batch, self.left)), e.let(self._offset(batch, self.right))
        y = e.let(flat * (self.rows * self.columns))
        done, row = 0, 0
        for rows, count in tiles:

            def body(rows: int = rows, done: int = done, row: int = row) -> None:
                self._rows(batch, a, b, y, e.let((tile - done) * rows + row), rows)

            if len(tiles) == 1:
                body()
            else:
                e.branch(tirx.all(tile >= index(done), tile < index(done + count)), body)
            done, row = done + count, row + rows * count

    def _rows(self, batch: list[Any], a: Any, b: Any, y: Any, row: Any, rows: int) -> None:
        e, width = self.e, self.tile.columns
        full = self.columns // width

        def columns(at: Any, width: int) -> None:
            self._tile(batch, a, b, y, row, rows, at, width)

        e.loop(0, full, lambda i: columns(e.let(i * width), width))
        if self.columns % width:
            columns(full * width, self.columns % width)

    def _tile(
        self, batch: list[Any], a: Any, b: Any, y: Any, row: Any, rows: int, column: Any, width: int
    ) -> None:
        e = self.e
        chunks = column_chunks(width, self.lanes)
        accumulators = Accumulators(e, rows, chunks)
        accumulators.clear()
        left = e.rebased(self.a, e.let(a + row * self.depth), rows * self.depth)
        right = Matrix(self.b, e.let(b + column), self.columns)
        accumulators.add_product(lambda r, k: e.load(left, k + r * self.depth), right, Steps(self.depth))
        for r in range(rows):
            for at, lanes in chunks:
                value = e.let(accumulators.get(r, at, lanes))
                position = (*batch, row + r, column + at)
                stored = self.group.epilogue.apply(e, value, position, lanes, self.extra)
                e.vstore(self.y, y + (row + r) * self.columns + column + at, stored, lanes)


RULE = Rule("matmul.batched", order=800, dtypes=FLOAT32, apply=batched_matmul)

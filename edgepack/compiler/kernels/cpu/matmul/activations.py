"""Rule ``matmul.batched``: products of two activations, both read as they lie.

The right operand is row-major: a register tile's columns are neighbours in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.indices import Index, balanced_split, div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
)
from edgepack.compiler.kernels.cpu.micro.registry import micro_kernel_for
from edgepack.compiler.kernels.rule import PRODUCTS, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["batched_matmul"]


def batched_matmul(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule: both operands are read as they lie, with broadcast batch dimensions."""
    found = anchored(fused, ["matmul"])
    if len(found.operand_shape(0)) < 2 or len(found.operand_shape(1)) < 2:
        raise RuleError("a vector product")
    return BatchedMatmul(found, target).build()


@dataclass(frozen=True)
class _Place:
    """Some rows of the output of one batch.

    Attributes:
        batch: position along the batch dimensions.
        left, right, output: where the batch's matrices begin, in elements of their buffers.
        row: the first row, and ``rows`` how many.
    """

    batch: Sequence[Index]
    left: Index
    right: Index
    output: Index
    row: Index
    rows: int


class BatchedMatmul(KernelBuilder):
    """Emits the kernel; a task is one tile of rows (all columns) of one batch."""

    def __init__(self, group: AnchoredGroup, target: CpuTarget) -> None:
        super().__init__("matmul.batched", target, dtype=group.dtype)
        self.group = group
        self.left, self.right = group.operand_shape(0), group.operand_shape(1)
        *self.batches, self.rows, self.columns = group.output_shape
        self.depth = self.left[-1]
        sizes = self.depth, self.columns
        self.micro = micro_kernel_for([group.types], sizes, target, constant=False)
        self.tile = self.micro.tile(self.rows, self.columns)
        self.tiles = balanced_split(self.rows, self.tile.rows)
        self.tile_count = sum(count for _, count in self.tiles)
        e = self.e
        self.a = group.declare_operand(e, 0, prod(self.left), self.micro.left_unit)
        self.b = group.declare_operand(e, 1, prod(self.right), self.micro.right_unit)
        self.epilogue_params = group.declare_epilogue(e)
        self.y = e.output(0, prod(group.output_shape), self.micro.types.result)

    def parameters(self) -> dict[str, Any]:
        return {"tile": f"{self.tile.rows}x{self.tile.columns}"}

    def build(self) -> Implementation:
        self.e.tasks(self._task)
        stage = self.e.stage(prod(self.batches) * self.tile_count)
        flops = 2 * prod(self.group.output_shape) * self.depth
        return Implementation(self.rule, (stage,), parameters=self.parameters(), flops=flops)

    def _offset(self, batch: Sequence[Index], shape: tuple[int, ...]) -> Index:
        """Element offset of an operand's matrix for this batch; dimensions of size one are broadcast."""
        at: Index = 0
        dims = shape[:-2]
        for position, dim in zip(batch[len(batch) - len(dims) :], dims, strict=True):
            at = at * dim + (position if dim > 1 else 0)
        return at * (shape[-2] * shape[-1])

    def _task(self, task: Expr) -> None:
        e = self.e
        flat, tile = e.let(div(task, self.tile_count)), e.let(mod(task, self.tile_count))
        batch = [e.let(i) for i in unravel(flat, self.batches)]
        left, right = e.let(self._offset(batch, self.left)), e.let(self._offset(batch, self.right))
        output = e.let(flat * (self.rows * self.columns))
        done, row = 0, 0
        for rows, count in self.tiles:

            def body(rows: int = rows, done: int = done, row: int = row) -> None:
                first = e.let((tile - done) * rows + row)
                self._rows(_Place(batch, left, right, output, first, rows))

            if len(self.tiles) == 1:
                body()
            else:
                e.branch(tirx.all(tile >= index(done), tile < index(done + count)), body)
            done, row = done + count, row + rows * count

    def _rows(self, place: _Place) -> None:
        """All columns of some rows."""
        e, width = self.e, self.tile.columns
        full = self.columns // width
        e.loop(0, full, lambda i: self._tile(place, e.let(i * width), width))
        if self.columns % width:
            self._tile(place, full * width, self.columns % width)

    def _tile(self, place: _Place, column: Index, width: int) -> None:
        """``width`` columns of some rows, from ``column`` on."""
        e, depth = self.e, self.depth
        accumulators = Accumulators(e, place.rows, column_chunks(width, self.lanes))
        accumulators.clear()
        left = e.rebased(self.a, e.let(place.left + place.row * depth), place.rows * depth)
        right = Matrix(self.b, e.let(place.right + column), self.columns)
        element = lambda r, k: e.load(left, k + r * depth)  # noqa: E731
        self.micro.add_product(e, accumulators, element, right, Steps(depth))
        for r in range(place.rows):
            for at, lanes in accumulators.chunks:
                value = e.let(accumulators.get(r, at, lanes))
                position = (*place.batch, place.row + r, column + at)
                stored = self.group.epilogue.apply(e, value, position, lanes, self.epilogue_params)
                target = place.output + (place.row + r) * self.columns + column + at
                e.vstore(self.y, target, stored, lanes)


RULE = Rule("matmul.batched", order=800, dtypes=PRODUCTS, apply=batched_matmul)

"""A recurrent layer that computes the products of its inputs itself, a few steps at a time, in scratch.

Where there is little memory: the products of all steps are what a layer needs most of it for, gates times as
much as its results. For CPUs without vectors, where a tile of a few steps is as fast as a larger one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.recurrent import Recurrence
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.anchored_group import AnchoredGroup, anchored
from edgepack.compiler.kernels.cpu.emit.indices import Index, div, index, mod, unravel
from edgepack.compiler.kernels.cpu.emit.register_tile import (
    Accumulators,
    Matrix,
    Steps,
    column_chunks,
    tile_for,
)
from edgepack.compiler.kernels.cpu.micro.multiply_add import multiply_add
from edgepack.compiler.kernels.cpu.recurrent.sequence import SequenceKernel
from edgepack.compiler.kernels.cpu.recurrent.step import Place, Step
from edgepack.compiler.kernels.rule import FLOAT32, PairRule
from edgepack.plan.target import CpuTarget

__all__ = ["chained"]

#: Steps whose products wait in scratch: the rows of a register tile.
AT_ONCE = 4


def chained(
    first: FusedGroup, second: FusedGroup, target: CpuTarget, constants: Sequence[frozenset[int]]
) -> Implementation:
    """Applies the rule to a matrix product and the recurrent layer of one sequence that reads it."""
    if second.anchor is None or second.anchor.kind != "recurrent":
        raise RuleError("another operator")
    form = Recurrence.of(second.anchor.attributes)
    if target.vector_bits or form.batch > 1 or form.steps <= AT_ONCE:
        raise RuleError("the products of all steps at once are faster, or few")
    product = anchored(first, ["matmul"])
    depth = product.operand_shape(1)[0]
    if product.operand(1) not in constants[0] or prod(product.operand_shape(0)) != form.steps * depth:
        raise RuleError("the weights are not a constant matrix")
    return ChainedKernel(product, second, form, target, packed=1 in constants[1]).build()


class ChainedKernel(SequenceKernel):
    """Emits the kernel; a task is a direction."""

    reads = ("bias", "hidden", "cell", "peepholes", "lengths")

    def __init__(
        self, product: AnchoredGroup, fused: FusedGroup, form: Recurrence, target: CpuTarget, *, packed: bool
    ) -> None:
        self.product = product
        self.depth, self.columns = product.operand_shape(1)
        self.weights_param = self._number(1)
        super().__init__(fused, form, target, packed=packed)
        self.rule = "recurrent.chained"

    def _number(self, param: int) -> int:
        """Parameters of the layer follow those of the product, but for the first, which is its result."""
        return len(self.product.params) + param - 1

    def _declare(self) -> None:
        e, product = self.e, self.product
        self.x = e.param(product.operand(0), self.form.steps * self.depth)
        self.w = e.param(product.operand(1), self.depth * self.columns)
        self.tail = product.declare_epilogue(e)
        with e.renumbered(param=self._number):
            super()._declare()
        self.products = e.scratch(AT_ONCE * self.form.gates * self.form.size)

    def build(self) -> Implementation:
        found = super().build()
        return replace(found, flops=found.flops + 2 * self.form.steps * self.depth * self.columns)

    def _inputs(self, step: Step, number: Expr) -> Place:
        each = self.form.gates * self.form.size
        return Place(self.products, self.e.let(mod(number, AT_ONCE) * each), each)

    def _loop(self, direction: Expr, steps: Index, one: Callable[[Expr], None]) -> None:
        """The steps, some at a time: their products, then they."""
        e = self.e

        def some(part: Expr) -> None:
            begin = e.let(part * AT_ONCE)
            self._multiply(direction, steps, begin)
            e.loop(begin, e.let(tirx.min(begin + AT_ONCE, index(steps))), one)

        e.loop(0, div(steps + (AT_ONCE - 1), AT_ONCE), some)

    def _multiply(self, direction: Expr, steps: Index, begin: Expr) -> None:
        """Products of the inputs of some steps; behind the last step it is done once more, for nothing."""
        e, each = self.e, self.form.gates * self.form.size
        last = e.let(index(steps) - index(1))
        times = [e.let(self.time(direction, e.let(tirx.min(begin + r, last)), steps)) for r in range(AT_ONCE)]
        rows = [e.let(time * self.depth) for time in times]
        width = tile_for(self.target, AT_ONCE, each, e.dtype).columns
        tiles = each // width
        e.loop(0, tiles, lambda i: self._tile(direction, times, rows, e.let(i * width), width))
        if each % width:
            self._tile(direction, times, rows, tiles * width, each % width)

    def _tile(
        self, direction: Expr, times: Sequence[Any], rows: Sequence[Any], column: Index, width: int
    ) -> None:
        """``width`` columns of the products, from ``column`` on, of the direction's own."""
        e, each = self.e, self.form.gates * self.form.size
        sums = Accumulators(e, AT_ONCE, column_chunks(width, self.lanes))
        sums.clear()
        own = e.let(direction * each + column)
        right = Matrix(self.w, own, self.columns)
        left = lambda r, k: e.load(self.x, rows[r] + k)  # noqa: E731
        multiply_add(e).add_product(e, sums, left, right, Steps(self.depth))
        outer = self.product.epilogue.shape[:-1]
        for r, time in enumerate(times):
            for at, lanes in sums.chunks:
                position = (*unravel(time, outer), own + at)
                value = e.let(sums.get(r, at, lanes))
                stored = self.product.epilogue.apply(e, value, position, lanes, self.tail)
                e.vstore(self.products, column + (r * each + at), stored, lanes)


PAIR_RULE = PairRule("recurrent.chained", order=200, dtypes=FLOAT32 | {"int32"}, apply=chained)

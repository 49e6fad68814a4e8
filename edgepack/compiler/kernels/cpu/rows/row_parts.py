"""Few reductions of many elements each, as the mean of each channel of an image: the elements are cut into
parts, which threads share.

Where threads share the results instead, each reads what all of them have written: of 14x14 pixels of 480
channels that takes twice as long on two cores as on one (notes/2026-11-27-squeeze-and-excitation.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation, Stage
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import KnownConditions, emit_branches
from edgepack.compiler.kernels.cpu.analysis.operands import declare_output
from edgepack.compiler.kernels.cpu.emit.affine import IndexVariables
from edgepack.compiler.kernels.cpu.emit.indices import div, index
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.rows.reduction import Reduction
from edgepack.compiler.kernels.cpu.rows.row_kernel import TASK_COST, RowKernel
from edgepack.compiler.kernels.cpu.rows.row_passes import emit_reduction, emit_rest
from edgepack.compiler.kernels.cpu.rows.row_plan import RowPlan
from edgepack.compiler.kernels.cpu.rows.row_state import Column, Row, RowBuffers
from edgepack.plan.dtypes import DTYPE_BYTES
from edgepack.plan.target import CpuTarget

__all__ = ["PartedRows", "parts_of"]

#: Elements of a result, up to which the layer before is taken to have divided results among threads too, as
#: windows over so few pixels do.
FEW_ELEMENTS = 64
#: Elements of a part, at least: each part's results are read again.
LEAST_ELEMENTS = 8
#: Elements of all results, from which on a stage more is worth it: 64 KB of float32.
LEAST_WORK = 16 * 1024
#: Parts for each thread, at most.
MOST_PARTS = 2


def parts_of(plan: RowPlan, target: CpuTarget) -> int:
    """Into how many parts the elements of a row's reduction are cut; 1 where that is of no use."""
    if plan.horizontal or len(plan.needed) != 1 or plan.inner or target.threads < 2:
        return 1
    if prod(plan.extents) != plan.extents[plan.lane_axis or 0]:  # several rows, which threads share
        return 1
    (needed,) = plan.needed
    elements = prod(needed.axes.extents)
    if elements <= FEW_ELEMENTS or elements * prod(plan.extents) < LEAST_WORK:
        return 1
    outermost = prod(needed.axes.extents[i] for i in needed.runs[0])
    most = min(outermost, elements // LEAST_ELEMENTS, MOST_PARTS * target.threads)
    return max(1, most // target.threads * target.threads or most)


class _OneReduction(RowKernel):
    """A kernel of one row with one reduction, whose lanes run along the output's last axis.

    Args:
        parts: into which the outermost axes that are reduced are cut.

    Attributes:
        needed: the reduction.
        axis: along which the lanes run; the output has ``results`` elements there, and one along others.
        row: the position along these.
    """

    def __init__(self, plan: RowPlan, target: CpuTarget, flops: int, parts: int) -> None:
        self.parts = parts
        (self.needed,) = plan.needed
        self.axis = plan.lane_axis or 0
        self.results = plan.extents[self.axis]
        self.row = {axis: 0 for axis in plan.outer if axis != self.axis}
        super().__init__(plan, target, flops)

    @property
    def reduction(self) -> Reduction:
        return self.needed.reduction

    def _declare_partial(self) -> Buffer:
        """Declares the results of each part, [part][result]."""
        return self.e.temp(0, self.parts * self.results, self.reduction.dtype)


class PartedRows(_OneReduction):
    """Emits two kernels: a task of the first one reduces a part of the elements for all results, the second
    one reduces what all parts have, and computes what stands behind the reduction."""

    def _declare(self) -> RowBuffers:
        self.partial = self._declare_partial()
        return RowBuffers(self._params([self.plan.accesses]), declare_output(self.e, 0, self.plan.output), {})

    def parameters(self) -> dict[str, Any]:
        return {**super().parameters(), "parts": self.parts}

    def build(self) -> Implementation:
        first = _Part(self.plan, self.target, self.flops, self.parts).stage()
        return Implementation(
            self.rule,
            (first, self.e.stage(self._tasks())),
            temps=(self.parts * self.results * DTYPE_BYTES[self.reduction.dtype],),
            parameters=self.parameters(),
            flops=self.flops,
            slow=self.plan.gathers(),
        )

    def _tasks(self) -> int:
        """Emits tasks of pieces of the results; returns how many tasks there are."""
        e, pieces = self.e, len(self.pieces)
        each = min(pieces, max(1, TASK_COST // (self.parts * self.pieces[0])))

        def task(t: Any) -> None:
            begin = e.let(t * each)
            end = e.let(tirx.min(begin + each, index(pieces)))
            e.loop(begin, end, lambda number: self.piece(number, self.row, self._combine))

        e.tasks(task)
        return -(-pieces // each)

    def _combine(self, variables: IndexVariables, columns: Sequence[Column]) -> None:
        values = [self._value(variables.scalar(column[self.axis])) for column in columns]

        def rest(conditions: KnownConditions) -> None:
            row = Row(variables, columns, conditions, self.plan.lanes)
            emit_rest(self.e, self.plan, self.buffers, row, values)

        emit_branches(self.e, rest, variables)

    def _value(self, at: Any) -> Value:
        """A vector of results of all parts."""
        e, lanes, reduction = self.e, self.plan.lanes, self.reduction
        total = e.local(lanes, reduction.dtype)
        e.vstore(total, 0, e.vload(self.partial, at, lanes), lanes)

        def part(i: Any) -> None:
            more = e.let(e.vload(self.partial, e.let(i * self.results + at), lanes))
            e.vstore(total, 0, reduction.combined(e, e.vload(total, 0, lanes), more), lanes)

        e.loop(1, self.parts, part)
        return Value(e.let(e.vload(total, 0, lanes)), lanes, reduction.dtype)


class _Part(_OneReduction):
    """Emits the first kernel."""

    def _declare(self) -> RowBuffers:
        return RowBuffers(self._params([self.needed.accesses]), self._declare_partial(), {})

    def stage(self) -> Stage:
        e, axes = self.e, self.needed.axes
        count = prod(axes.extents[i] for i in self.needed.runs[0])

        def task(part: Any) -> None:
            span = e.let(div(part * count, self.parts)), e.let(div((part + 1) * count, self.parts))
            target = e.let(part * self.results)

            def vectors(variables: IndexVariables, columns: Sequence[Column]) -> None:
                def reduced(conditions: KnownConditions) -> None:
                    row = Row(variables, columns, conditions, self.plan.lanes, span)
                    values = emit_reduction(e, self.plan, self.buffers, row, 0)
                    for column, value in zip(columns, values, strict=True):
                        at = e.let(target + variables.scalar(column[self.axis]))
                        e.vstore(self.buffers.output, at, value.expr, self.plan.lanes)

                emit_branches(e, reduced, variables)

            e.loop(0, len(self.pieces), lambda number: self.piece(number, self.row, vectors))

        e.tasks(task)
        return e.stage(self.parts)

"""Rule ``rowwise``: reductions and the elementwise blocks around them, one row per step of a task.

The axes of the output on which its reductions depend are the rows; along the others the reductions' results
stay the same. A row computes its reductions in order and then its outputs. Two forms:

* The reduced axis is contiguous (softmax, LayerNorm, RMSNorm, means of the last axis): lanes run along it in
  each pass, with several accumulators, which are added up across their lanes at the end of the pass.
* Another axis is (a global average in NHWC, InstanceNorm over pixels): lanes run along that one, several
  vectors side by side, and each lane reduces for itself.

An elementwise block that calls elementary functions and is needed by more than one pass (the exponential of
a softmax) is kept in the thread's scratch. Where lanes run along the reduced axis, quotients by a row's
result are products by factors that are computed once a row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.kernels.contract import Implementation, RuleError
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import (
    cover,
    emit_branches,
    writes_its_own_position,
)
from edgepack.compiler.kernels.cpu.analysis.operands import declare_output, declare_param
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.indices import Index, index, unravel
from edgepack.compiler.kernels.cpu.emit.tir_blocks import blocks_of
from edgepack.compiler.kernels.cpu.rows.row_passes import LANE, UNROLL, Row, RowBuffers, emit_row
from edgepack.compiler.kernels.cpu.rows.row_plan import RowPlan
from edgepack.compiler.kernels.rule import EVERY_DTYPE, Rule
from edgepack.plan.target import CpuTarget

__all__ = ["rowwise"]

#: Operations of a task: less is not worth handing to a thread.
TASK_COST = 16 * 1024


def rowwise(fused: FusedGroup, target: CpuTarget, constants: frozenset[int]) -> Implementation:
    """Applies the rule. RuleError for a fused group without a reduction or of another form."""
    blocks = blocks_of(fused.function)
    if fused.outputs != 1 or not all(writes_its_own_position(block) for block in blocks):
        raise RuleError("not one output of elementwise blocks and reductions")
    if not any(block.reductions for block in blocks):
        raise RuleError("no reduction")
    plan = RowPlan(blocks, tuple(fused.function.params), target)
    return RowKernel(plan, target, flops=sum(prod(block.extents) for block in blocks)).build()


class RowKernel(KernelBuilder):
    """Emits the kernel; a task is some rows, or a piece of the lane axis of one."""

    def __init__(self, plan: RowPlan, target: CpuTarget, flops: int) -> None:
        super().__init__("rowwise", target, dtype=str(plan.output.dtype), lanes=plan.lanes)
        self.plan, self.flops = plan, flops
        addresses = [*plan.accesses.addresses, *(a for r in plan.needed for a in r.accesses.addresses)]
        self.buffers = RowBuffers(
            {
                p: declare_param(self.e, i, p)
                for i, p in enumerate(plan.params)
                if any(b.same_as(p) for b, _ in addresses)
            },
            declare_output(self.e, 0, plan.output),
            {
                b: self.e.scratch(prod(plan.extents[i] for i in plan.inner), str(b.dtype))
                for b in plan.materialised
            },
        )

    def parameters(self) -> dict[str, Any]:
        along = "reduction" if self.plan.horizontal else "output"
        return {"lanes": self.lanes, "along": along}

    def build(self) -> Implementation:
        stage = self.e.stage(self._rows() if self.plan.horizontal else self._columns())
        return Implementation(
            self.rule,
            (stage,),
            scratch=tuple(self.e.scratch_bytes),
            parameters=self.parameters(),
            flops=self.flops,
            slow=self.plan.gathers(),
        )

    def _rows(self) -> int:
        """Emits tasks of rows whose lanes run along the reduction; returns how many tasks there are."""
        e, plan = self.e, self.plan
        outer = [plan.extents[i] for i in plan.outer]
        rows = prod(outer)
        per_task = min(rows, max(1, TASK_COST // plan.cost()))

        def row(r: Expr) -> None:
            variables = IndexVariables()
            position = self._outer(variables, dict(zip(plan.outer, unravel(r, outer), strict=True)))
            self._row(variables, [position])

        def task(t: Expr) -> None:
            begin = e.let(t * per_task)
            e.loop(begin, e.let(tirx.min(begin + per_task, index(rows))), row)

        e.tasks(task)
        return -(-rows // per_task)

    def _columns(self) -> int:
        """Emits tasks of pieces of the lane axis, each several vectors side by side; returns how many tasks
        there are."""
        e, plan = self.e, self.plan
        lane_axis = plan.lane_axis
        assert lane_axis is not None
        length, lanes = plan.extents[lane_axis], plan.lanes
        outer = [i for i in plan.outer if i != lane_axis]
        rows = prod(plan.extents[i] for i in outer)
        wanted = max(1, min(UNROLL, TASK_COST // (plan.cost() * lanes)))
        width = wanted * lanes
        pieces = max(1, length // width)
        last = cover(length - width * (pieces - 1), lanes)
        full = range(0, width, lanes)
        tail = [*range(0, last.whole, lanes), *([] if last.overlapping is None else [last.overlapping])]

        def piece(row: Index, part: Index, offsets: Sequence[int]) -> None:
            variables = IndexVariables()
            values = dict(zip(outer, unravel(row, [plan.extents[i] for i in outer]), strict=True))
            position = self._outer(variables, values)
            top = length - lanes - max(offsets)
            start = constant(0) if pieces == 1 else variables.add("p", e.let(part * width), 0, max(top, 0))
            self._row(variables, [{**position, lane_axis: start.plus(o) + LANE} for o in offsets])

        def task(t: Expr) -> None:
            row, part = unravel(t, [rows, pieces])
            if tail == list(full):
                piece(row, part, tail)
                return
            e.branch(
                index(part) < index(pieces - 1),
                lambda: piece(row, part, full) if pieces > 1 else None,
                lambda: piece(row, part, tail),
            )

        e.tasks(task)
        return rows * pieces

    def _outer(self, variables: IndexVariables, values: Mapping[int, Index]) -> dict[int, Affine]:
        """Positions along the outer axes, given as numbers or expressions."""
        found: dict[int, Affine] = {}
        for axis, i in values.items():
            top = self.plan.extents[axis] - 1
            found[axis] = (
                constant(i) if isinstance(i, int) else variables.add(f"o{axis}", self.e.let(i), 0, top)
            )
        return found

    def _row(self, variables: IndexVariables, columns: Sequence[Mapping[int, Affine]]) -> None:
        emit_branches(
            self.e,
            lambda conditions: emit_row(
                self.e, self.plan, self.buffers, Row(variables, columns, conditions, self.plan.lanes)
            ),
            variables,
        )


RULE = Rule("rowwise", order=900, dtypes=EVERY_DTYPE, apply=rowwise, kind="blocks")

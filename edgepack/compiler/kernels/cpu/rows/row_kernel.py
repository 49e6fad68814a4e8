"""The kernel of a reduction with what surrounds it: rows, each with all its passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.analysis.access_analysis import Accesses
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import (
    cover,
    emit_branches,
)
from edgepack.compiler.kernels.cpu.analysis.operands import declare_output, declare_param
from edgepack.compiler.kernels.cpu.builder import KernelBuilder
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.indices import Index, index, unravel
from edgepack.compiler.kernels.cpu.rows.row_passes import UNROLL, emit_row
from edgepack.compiler.kernels.cpu.rows.row_plan import RowPlan
from edgepack.compiler.kernels.cpu.rows.row_state import LANE, Row, RowBuffers
from edgepack.plan.target import CpuTarget

__all__ = ["TASK_COST", "RowKernel"]

#: Operations of a task: less is not worth handing to a thread.
TASK_COST = 16 * 1024


class RowKernel(KernelBuilder):
    """Emits the kernel; a task is some rows, or a piece of the lane axis of one."""

    def __init__(self, plan: RowPlan, target: CpuTarget, flops: int) -> None:
        super().__init__("rowwise", target, dtype=str(plan.output.dtype), lanes=plan.lanes)
        self.plan, self.flops = plan, flops
        self.buffers = self._declare()

    def _declare(self) -> RowBuffers:
        plan = self.plan
        accesses = [plan.accesses, *(r.accesses for r in plan.needed)]
        kept = {
            b: self.e.scratch(prod(plan.extents[i] for i in plan.inner), str(b.dtype))
            for b in plan.materialised
        }
        return RowBuffers(self._params(accesses), declare_output(self.e, 0, plan.output), kept)

    def _params(self, accesses: Iterable[Accesses]) -> dict[Buffer, Buffer]:
        """Declares the parameters that are read."""
        read = [b for one in accesses for b, _ in one.addresses]
        return {
            p: declare_param(self.e, i, p)
            for i, p in enumerate(self.plan.params)
            if any(b.same_as(p) for b in read)
        }

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
        """Emits tasks of pieces of the lane axis; returns how many tasks there are."""
        plan = self.plan
        outer = [i for i in plan.outer if i != plan.lane_axis]
        extents = [plan.extents[i] for i in outer]
        rows, pieces = prod(extents), len(self.pieces)

        def task(t: Expr) -> None:
            row, part = unravel(t, [rows, pieces])
            self.piece(part, dict(zip(outer, unravel(row, extents), strict=True)), self._row)

        self.e.tasks(task)
        return rows * pieces

    @cached_property
    def pieces(self) -> Sequence[int]:
        """Of the lane axis, each several vectors side by side: how wide each is."""
        plan = self.plan
        assert plan.lane_axis is not None
        length, lanes = plan.extents[plan.lane_axis], plan.lanes
        width = lanes * max(1, min(UNROLL, TASK_COST // (plan.cost() * lanes)))
        before = max(1, length // width) - 1
        return [width] * before + [length - width * before]

    def piece(
        self,
        number: Index,
        values: Mapping[int, Index],
        body: Callable[[IndexVariables, Sequence[Mapping[int, Affine]]], None],
    ) -> None:
        """Emits ``body`` of a piece's vectors.

        Args:
            values: along the other outer axes.
        """
        e, plan, pieces = self.e, self.plan, self.pieces
        lane_axis = plan.lane_axis
        assert lane_axis is not None
        length, lanes = plan.extents[lane_axis], plan.lanes
        last = cover(pieces[-1], lanes)
        full = range(0, pieces[0], lanes)
        tail = [*range(0, last.whole, lanes), *([] if last.overlapping is None else [last.overlapping])]

        def vectors(offsets: Sequence[int]) -> None:
            variables = IndexVariables()
            position = self._outer(variables, values)
            top = length - lanes - max(offsets)
            start = constant(0)
            if len(pieces) > 1:
                start = variables.add("p", e.let(number * pieces[0]), 0, max(top, 0))
            body(variables, [{**position, lane_axis: start.plus(o) + LANE} for o in offsets])

        if tail == list(full):
            vectors(tail)
            return
        e.branch(
            index(number) < index(len(pieces) - 1),
            lambda: vectors(full) if len(pieces) > 1 else None,
            lambda: vectors(tail),
        )

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

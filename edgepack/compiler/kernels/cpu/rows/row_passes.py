"""The passes over one row: each reduction in its order, then the outputs.

Where lanes run along the reduced axis, a pass has several accumulators, each a vector, which are combined
across accumulators and then across lanes at its end. Where they run along an axis of the output, several
vectors of neighbouring rows ("columns") are computed side by side, and each lane has a result of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer, Var

from edgepack.compiler.kernels.cpu.analysis.branch_splitting import VectorCover, cover
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.rows.reduction import Reduction
from edgepack.compiler.kernels.cpu.rows.row_plan import PlannedReduction, RowPlan
from edgepack.compiler.kernels.cpu.rows.row_state import LANE, Column, Row, RowBuffers, RowContext, RowVectors

__all__ = ["UNROLL", "emit_reduction", "emit_rest", "emit_row"]

#: Accumulators of one reduction, or vectors side by side.
UNROLL = 4


def emit_row(e: Emitter, plan: RowPlan, buffers: RowBuffers, row: Row) -> None:
    """Emits all passes over a row."""
    for number in range(len(plan.needed)):
        values = emit_reduction(e, plan, buffers, row, number)
        row.written |= {b for b, covering in plan.materialised.items() if covering == number}
        _keep(RowContext(e, plan, buffers, row), number, values)
    _emit_output(e, plan, buffers, row)


def emit_reduction(e: Emitter, plan: RowPlan, buffers: RowBuffers, row: Row, number: int) -> list[Value]:
    """Emits the pass of a row's reduction; returns its result for each column."""
    return _ReductionPass(RowContext(e, plan, buffers, row), number).emit()


def emit_rest(e: Emitter, plan: RowPlan, buffers: RowBuffers, row: Row, values: Sequence[Value]) -> None:
    """Emits what stands behind the only reduction of a row, whose results are ``values``, for each column."""
    _keep(RowContext(e, plan, buffers, row), 0, values)
    _emit_output(e, plan, buffers, row)


def _keep(context: RowContext, number: int, values: Sequence[Value]) -> None:
    """Makes a reduction's results known to what is emitted behind it."""
    needed, row = context.plan.needed[number], context.row
    for column, results, value in zip(row.columns, row.results, values, strict=True):
        position = tuple(context.at(p, column) for p in needed.position)
        results[needed.reduction.block.target, position] = value


def _emit_output(e: Emitter, plan: RowPlan, buffers: RowBuffers, row: Row) -> None:
    """Emits the outputs of a row, whose reductions' results are known."""
    context = RowContext(e, plan, buffers, row)
    if plan.last is not None:
        _OutputPass(context).emit()
        return
    for column, results in zip(row.columns, row.results, strict=True):
        position = tuple(column.get(i, constant(0)) for i in range(len(plan.extents)))
        lanes = 1 if plan.horizontal else row.lanes
        context.store(row.variables, column, results[plan.output, position], lanes)


class _ReductionPass:
    """The pass that computes one reduction of the row."""

    def __init__(self, context: RowContext, number: int) -> None:
        self.context, self.number = context, number
        self.e, self.row = context.e, context.row
        self.needed: PlannedReduction = context.plan.needed[number]
        self.reduction: Reduction = self.needed.reduction
        self.horizontal = context.plan.horizontal
        #: Extents of the runs of axes that are walked as one.
        self.extents = [prod(self.needed.axes.extents[i] for i in run) for run in self.needed.runs]
        self.length = self.extents[-1] if self.horizontal else 1
        lanes = self.row.lanes
        self.cover = cover(self.length, lanes) if self.horizontal else VectorCover(lanes, 0, None)
        self.lanes = self.cover.lanes
        self.unroll = min(UNROLL, self.cover.whole // self.lanes) if self.horizontal else 1
        identity = tirx.const(self.reduction.identity, self.reduction.dtype)
        self.identity = self.e.splat(identity, self.lanes)
        count = self.unroll * len(self.row.columns)
        self.accumulators = [self.e.local(self.lanes, self.reduction.dtype) for _ in range(count)]

    def emit(self) -> list[Value]:
        """The result for each column: a scalar where lanes ran along the reduction."""
        for a in self.accumulators:
            self.e.vstore(a, 0, self.identity, self.lanes)
        if self.horizontal:
            self.context.nest(self.extents[:-1], self._along)
        else:
            each = partial(self._accumulate, slot=0)
            self.context.nest(self.extents, each, self.row.part)
        columns = len(self.row.columns)
        return [self._total(self.accumulators[n::columns]) for n in range(columns)]

    def _along(self, place: list[Affine], variables: IndexVariables) -> None:
        """The innermost run of reduced axes, by vectors along it."""
        lanes, whole, overlapping = self.lanes, self.cover.whole, self.cover.overlapping
        block = self.unroll * lanes

        def several(i: Expr) -> None:
            inside = variables.child()
            x = self.context.loop_variable(inside, "x", i, block, whole - block)
            for u in range(self.unroll):
                self._accumulate([*place, x.plus(u * lanes) + LANE], inside, u)

        self.e.loop(0, whole // block, several)
        for slot, at in enumerate(range(whole // block * block, whole, lanes)):
            self._accumulate([*place, constant(at) + LANE], variables.child(), slot)
        if overlapping is not None:
            last = [*place, constant(overlapping) + LANE]
            self._accumulate(last, variables.child(), self.unroll - 1, skip=lanes - self.length % lanes)

    def _accumulate(
        self, place: Sequence[Affine], variables: IndexVariables, slot: int, skip: int = 0
    ) -> None:
        """Adds the value at a position along the reduced axes to an accumulator of each column.

        Args:
            slot: which of the accumulators.
            skip: lanes that the vector before has done.
        """
        e, columns = self.e, self.row.columns
        for n, (column, results) in enumerate(zip(columns, self.row.results, strict=True)):
            env = self._env(column, place)
            reader = RowVectors(self.context, self.lanes, variables, results, self.number)
            found = reader.value(reader.visit(self.reduction.value, env), self.reduction.dtype)
            value = reader.expr(found, self.lanes)
            if skip and self.lanes > 1:
                value = self._masked(value, skip)
            a = self.accumulators[slot * len(columns) + n]
            e.vstore(a, 0, self.reduction.combined(e, e.vload(a, 0, self.lanes), value), self.lanes)

    def _env(self, column: Column, place: Sequence[Affine]) -> dict[Var, Affine]:
        """The position of each iteration variable of the reduction."""
        axes = self.reduction.axes()
        env = {v: constant(0) for v, _ in axes}
        for v, p in zip(self.reduction.spatial, self.needed.position, strict=True):
            env[v] = self.context.at(p, column)
        for run, at in zip(self.needed.runs, place, strict=True):
            innermost = [i for i in run if axes[i][1] > 1] or run
            env[axes[innermost[-1]][0]] = at
        return env

    def _masked(self, value: Expr, skip: int) -> Expr:
        """The identity in the first ``skip`` lanes."""
        number = tirx.Ramp(index(0), index(1), self.lanes)
        return tirx.Select(number < tirx.Broadcast(index(skip), self.lanes), self.identity, value)

    def _total(self, accumulators: Sequence[Buffer]) -> Value:
        """The accumulators' common value."""
        e, lanes, reduction = self.e, self.lanes, self.reduction
        values = [e.let(e.vload(a, 0, lanes)) for a in accumulators]
        while len(values) > 1:
            pairs = [
                e.let(reduction.combined(e, a, b)) for a, b in zip(values[::2], values[1::2], strict=False)
            ]
            values = pairs + ([values[-1]] if len(values) % 2 else [])
        value = values[0]
        if not self.horizontal:
            return Value(value, lanes, reduction.dtype)
        while lanes > 1:
            half = lanes // 2
            low, high = shuffle([value], range(half)), shuffle([value], range(half, lanes))
            value = e.let(reduction.combined(e, e.let(low), e.let(high)))
            lanes = half
        return Value(value, 1, reduction.dtype)


class _OutputPass:
    """The pass that computes the outputs of a row from its reductions' results."""

    def __init__(self, context: RowContext) -> None:
        self.context, self.plan, self.row = context, context.plan, context.row
        extents, inner = self.plan.extents, self.plan.inner
        #: Extents of the runs of inner axes that are walked as one.
        self.extents = [prod(extents[inner[k]] for k in run) for run in self.plan.inner_runs]

    def emit(self) -> None:
        """One vector, or one element, for each position along the inner axes."""
        if self.plan.horizontal and self.extents:
            self.context.nest(self.extents[:-1], self._along)
            return
        lanes = 1 if self.plan.horizontal else self.row.lanes
        self.context.nest(self.extents, lambda place, variables: self._element(place, variables, lanes))

    def _along(self, place: list[Affine], variables: IndexVariables) -> None:
        """The innermost run of inner axes, by vectors along it."""
        covered = cover(self.extents[-1], self.row.lanes)
        lanes, whole = covered.lanes, covered.whole

        def vector(i: Expr) -> None:
            inside = variables.child()
            x = self.context.loop_variable(inside, "x", i, lanes, whole - lanes)
            self._element([*place, x + LANE], inside, lanes)

        self.context.e.loop(0, whole // lanes, vector)
        if covered.overlapping is not None:
            self._element([*place, constant(covered.overlapping) + LANE], variables.child(), lanes)

    def _element(self, place: Sequence[Affine], variables: IndexVariables, lanes: int) -> None:
        """Evaluates and stores a vector of each column, at a position along the inner axes."""
        plan, last = self.plan, self.plan.last
        assert last is not None
        for column, results in zip(self.row.columns, self.row.results, strict=True):
            full = dict(column)
            for run, at in zip(plan.inner_runs, place, strict=True):
                innermost = [k for k in run if plan.extents[plan.inner[k]] > 1] or run
                full[plan.inner[innermost[-1]]] = at
            env = {v: full.get(i, constant(0)) for i, v in enumerate(last.iters)}
            reader = RowVectors(self.context, lanes, variables, results, None)
            value = reader.value(reader.visit(last.value, env), str(plan.output.dtype))
            self.context.store(variables, full, value, lanes)

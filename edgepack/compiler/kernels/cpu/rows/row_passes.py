"""The passes over one row: each reduction in its order, then the outputs.

Where lanes run along the reduced axis, a pass has several accumulators, each a vector, which are combined
across accumulators and then across lanes at its end. Where they run along an axis of the output, several
vectors of neighbouring rows ("columns") are computed side by side, and each lane has a result of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer, Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import KnownConditions, VectorCover, cover
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.register_transpose import shuffle
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.emit.vector_math import elementary
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors
from edgepack.compiler.kernels.cpu.rows.reduction import Reduction
from edgepack.compiler.kernels.cpu.rows.row_plan import PlannedReduction, RowPlan
from edgepack.compiler.kernels.expressions.nodes import Node

__all__ = ["LANE", "UNROLL", "Row", "RowBuffers", "emit_row"]

#: Accumulators of one reduction, or vectors side by side.
UNROLL = 4

#: A position along each axis of the output that is known so far.
Column = Mapping[int, Affine]

#: The results of a row's reductions, by buffer and position.
Results = dict[tuple[Buffer, tuple[Affine, ...]], Value]

#: The lane's own number.
LANE = Affine(0, (), 1)


@dataclass(frozen=True)
class RowBuffers:
    """The kernel's flat buffers.

    Attributes:
        params: by the fused function's buffer.
        output: that the function writes.
        materialised: scratch for one row of each block that is kept, by the buffer that the block writes.
    """

    params: Mapping[Buffer, Buffer]
    output: Buffer
    materialised: Mapping[Buffer, Buffer]


@dataclass
class Row:
    """A row while its passes are emitted.

    Attributes:
        variables: the index variables outside of the passes' loops.
        columns: its position along the outer axes, for each vector side by side.
        conditions: for positions, whether they are at most 0 here.
        lanes: elements of a vector.
        results: of the reductions so far, for each column.
        written: the blocks of which this row's scratch has been written.
    """

    variables: IndexVariables
    columns: Sequence[Column]
    conditions: KnownConditions
    lanes: int
    results: list[Results] = field(init=False)
    written: set[Buffer] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.results = [{} for _ in self.columns]


@dataclass(frozen=True)
class _Context:
    """What all passes over a row share."""

    e: Emitter
    plan: RowPlan
    buffers: RowBuffers
    row: Row

    def at(self, position: Affine, column: Column) -> Affine:
        """A position in terms of the plan's axes, at a column."""
        total = constant(position.constant)
        for name, c in position.terms:
            axis = self.plan.axes.axis(name)
            assert axis is not None
            total = total + column[axis] * c
        return total

    def loop_variable(self, variables: IndexVariables, name: str, i: Expr, step: int, top: int) -> Affine:
        """``i * step``, which is at most ``top``, as a position."""
        if isinstance(i, tirx.IntImm):
            return constant(int(i.value) * step)
        return variables.add(name, self.e.let(i * index(step)), 0, top)

    def nest(self, extents: Sequence[int], body: Callable[[list[Affine], IndexVariables], None]) -> None:
        """Loops over ``extents`` around ``body``, which is given the position along each of them."""

        def level(k: int, place: list[Affine], variables: IndexVariables) -> None:
            if k == len(extents):
                body(place, variables)
                return

            def inside(i: Expr) -> None:
                child = variables.child()
                level(k + 1, [*place, self.loop_variable(child, f"n{k}", i, 1, extents[k] - 1)], child)
                self.e.not_unrolled(i)

            self.e.loop(0, extents[k], inside)

        level(0, [], self.row.variables)

    def store(self, variables: IndexVariables, column: Column, value: Value, lanes: int) -> None:
        """Stores a vector of the output; ``column`` has its position along all axes."""
        output = self.plan.output
        if str(output.dtype) == "bool":
            raise RuleError("truth values of a reduction")
        address = constant(0)
        for i, n in enumerate(self.plan.extents):
            address = address * n + column.get(i, constant(0))
        expr = value.expr if value.lanes == lanes else self.e.splat(value.expr, lanes)
        self.e.vstore(self.buffers.output, variables.scalar(address), expr, lanes)


class _RowVectors(Vectors):
    """Evaluates expressions of one pass: reads reductions' results, and blocks that are kept in scratch.

    Args:
        results: of the reductions so far.
        number: of the reduction whose pass this is; None for the outputs'.
    """

    def __init__(
        self, context: _Context, lanes: int, variables: IndexVariables, results: Results, number: int | None
    ) -> None:
        plan, buffers = context.plan, context.buffers
        super().__init__(context.e, lanes, variables, plan.blocks, buffers.params, context.row.conditions)
        self.plan, self.results, self.number = plan, results, number
        self.materialised, self.written = buffers.materialised, context.row.written

    def read(self, buffer: Buffer, at: list[Any]) -> Any:
        if buffer in self.plan.reductions:
            key = (buffer, tuple(self.position(i) for i in at))
            if key not in self.results:
                raise RuleError("a reduction at a position that the row does not have")
            return self.results[key]
        if buffer not in self.materialised or (
            buffer not in self.written and self.plan.materialised[buffer] != self.number
        ):
            return super().read(buffer, at)
        positions = [self.position(i) for i in at]
        address = constant(0)
        for axis in self.plan.inner:
            address = address * self.plan.extents[axis] + positions[axis]
        where = self.variables.scalar(address)
        scratch = self.materialised[buffer]
        if buffer in self.written:
            loaded = self.e.let(self.e.vload(scratch, where, self.lanes))
            return Value(loaded, self.lanes, str(buffer.dtype))
        value = super().read(buffer, at)
        self.e.vstore(scratch, where, self.expr(value, self.lanes), self.lanes)
        return value

    def operate(self, node: Node, operands: Sequence[Any]) -> Any:
        """A quotient by a row's result is two products, within 2 ulp; LLVM computes the factors once."""
        a, b = operands[0], operands[-1]
        divides = node.operation.name == "div" and isinstance(a, Value) and a.lanes > 1
        if not divides or self.e.strict_math or not any(b is x for x in self.results.values()):
            return super().operate(node, operands)
        if b.lanes > 1 or b.dtype != "float32":
            return super().operate(node, operands)
        factors = (self.e.splat(factor, a.lanes) for factor in _reciprocal(self.e, b.expr))
        return Value(self.e.let(self.e.let(a.expr * next(factors)) * next(factors)), a.lanes, a.dtype)


def _reciprocal(e: Emitter, x: Expr) -> tuple[Expr, Expr]:
    """1 / x as a product of two float32: neither is denormal or infinite where x is a number but 0."""
    size = elementary(e, "tirx.fabs", x, 1)
    small = tirx.Select(size < e.f32(2.0**-64, 1), e.f32(2.0**64, 1), e.f32(1, 1))
    scale = e.let(tirx.Select(size > e.f32(2.0**64, 1), e.f32(2.0**-64, 1), small))
    return e.let(e.f32(1, 1) / e.let(x * scale)), scale


def emit_row(e: Emitter, plan: RowPlan, buffers: RowBuffers, row: Row) -> None:
    """Emits all passes over a row."""
    context = _Context(e, plan, buffers, row)
    for number, needed in enumerate(plan.needed):
        values = _ReductionPass(context, number).emit()
        row.written |= {b for b, covering in plan.materialised.items() if covering == number}
        for column, results, value in zip(row.columns, row.results, values, strict=True):
            position = tuple(context.at(p, column) for p in needed.position)
            results[needed.reduction.block.target, position] = value
    if plan.last is not None:
        _OutputPass(context).emit()
        return
    for column, results in zip(row.columns, row.results, strict=True):
        position = tuple(column.get(i, constant(0)) for i in range(len(plan.extents)))
        lanes = 1 if plan.horizontal else row.lanes
        context.store(row.variables, column, results[plan.output, position], lanes)


class _ReductionPass:
    """The pass that computes one reduction of the row."""

    def __init__(self, context: _Context, number: int) -> None:
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
            self.context.nest(self.extents, lambda place, variables: self._accumulate(place, variables, 0))
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
            reader = _RowVectors(self.context, self.lanes, variables, results, self.number)
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

    def __init__(self, context: _Context) -> None:
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
            reader = _RowVectors(self.context, lanes, variables, results, None)
            value = reader.value(reader.visit(last.value, env), str(plan.output.dtype))
            self.context.store(variables, full, value, lanes)

"""A row while its passes are emitted: where its buffers are, what is known of it, and how expressions are
evaluated there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tvm import tirx
from tvm.ir import Expr
from tvm.tirx import Buffer

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.analysis.branch_splitting import KnownConditions
from edgepack.compiler.kernels.cpu.emit.affine import Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.values import Value
from edgepack.compiler.kernels.cpu.emit.vector_math import elementary
from edgepack.compiler.kernels.cpu.emit.vectors import Vectors
from edgepack.compiler.kernels.cpu.rows.row_plan import RowPlan
from edgepack.compiler.kernels.expressions.nodes import Node

__all__ = ["LANE", "Column", "Row", "RowBuffers", "RowContext", "RowVectors"]

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
        part: of the outermost run of reduced axes, [first, last) of what is reduced; None for all.
        results: of the reductions so far, for each column.
        written: the blocks of which this row's scratch has been written.
    """

    variables: IndexVariables
    columns: Sequence[Column]
    conditions: KnownConditions
    lanes: int
    part: tuple[Expr, Expr] | None = None
    results: list[Results] = field(init=False)
    written: set[Buffer] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.results = [{} for _ in self.columns]


@dataclass(frozen=True)
class RowContext:
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

    def nest(
        self,
        extents: Sequence[int],
        body: Callable[[list[Affine], IndexVariables], None],
        part: tuple[Expr, Expr] | None = None,
    ) -> None:
        """Loops over ``extents`` around ``body``, which is given the position along each of them.

        Args:
            part: [first, last) of the outermost one; None for all.
        """

        def level(k: int, place: list[Affine], variables: IndexVariables) -> None:
            if k == len(extents):
                body(place, variables)
                return

            def inside(i: Expr) -> None:
                child = variables.child()
                level(k + 1, [*place, self.loop_variable(child, f"n{k}", i, 1, extents[k] - 1)], child)
                self.e.not_unrolled(i)

            begin, end = part if part and k == 0 else (0, extents[k])
            self.e.loop(begin, end, inside)

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


class RowVectors(Vectors):
    """Evaluates expressions of one pass: reads reductions' results, and blocks that are kept in scratch.

    Args:
        results: of the reductions so far.
        number: of the reduction whose pass this is; None for the outputs'.
    """

    def __init__(
        self, context: RowContext, lanes: int, variables: IndexVariables, results: Results, number: int | None
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

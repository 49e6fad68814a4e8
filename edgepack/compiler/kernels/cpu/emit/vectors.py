"""Evaluate blocks of a fused PrimFunc on vectors: one lane per neighbouring element of one axis.

Reading what another elementwise block writes evaluates that block at the position that is read, so a chain
of blocks becomes one expression whatever its index maps are. A load whose address advances by one per lane
is a vector load; one that does not depend on the lane is a scalar; any other is gathered lane by lane.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import BufferLoad, Ramp, Var

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import INT32, Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.arithmetic import DTYPES
from edgepack.compiler.kernels.cpu.emit.conditions import (
    Conditions,
    NeedsBranch,
    NeedsSplit,
    VariesAcrossLanes,
)
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.float16 import FLOAT16_BITS
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.patterns import (
    Loaded,
    combined_patterns,
    flat_pattern,
    load_pattern,
    pattern_of,
)
from edgepack.compiler.kernels.cpu.emit.tables import looked_up
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.values import Pattern, Value
from edgepack.compiler.kernels.expressions.nodes import Node, dtype_of, operation_of, table_position
from edgepack.compiler.kernels.expressions.operations import Kind
from edgepack.compiler.kernels.expressions.visitor import Visitor

__all__ = ["NeedsBranch", "NeedsSplit", "Vectors"]

Expr = Any

#: The values of an expression's variables.
Environment = Mapping[Any, Any]


class Vectors(Conditions, Visitor[Environment, Any]):
    """Evaluates expressions at one position, to an Affine, a bool (a decided condition) or a Value.

    Args:
        e: where to emit; what is evaluated is bound at the point of evaluation.
        lanes: elements of a vector.
        variables: the variables of positions.
        blocks: elementwise blocks by the buffer that they write.
        pointers: flat arrays by buffer.
        conditions: for positions, whether they are <= 0 here.
        lane_variable: the number of the vector in its loop; conditions on it can be cut.
        origin: where along the lanes' axis the first vector begins.

    Attributes:
        gathered: whether lanes were loaded one by one.
        shuffled: whether lanes were loaded together with others, and brought into order.
    """

    def __init__(
        self,
        e: Emitter,
        lanes: int,
        variables: IndexVariables,
        blocks: Mapping[Any, Block],
        pointers: Mapping[Any, Any],
        conditions: Mapping[Affine, bool] | None = None,
        lane_variable: str = "",
        origin: int = 0,
    ) -> None:
        super().__init__(e, lanes, variables, conditions, lane_variable, origin)
        self.blocks, self.pointers = blocks, pointers
        self.guarded = 0
        self.selected = 0  # conditions on data around what is evaluated
        self.gathered = self.shuffled = False
        self._tables = dict(block.table for block in blocks.values() if block.table)
        self._memo: dict[Any, Any] = {}
        self._spans: dict[Any, list[Loaded]] = {}

    # What subclasses change -------------------------------------------------------------------------------

    def read(self, buffer: Any, at: list[Any]) -> Any:
        """The element of ``buffer`` at a position: a producer's value or a load."""
        block = self.blocks.get(buffer)
        if block is None:
            known = self._looked_up(buffer, at)
            return self.load(buffer, at) if known is None else known
        patterns = [i.pattern if isinstance(i, Value) else None for i in at]
        positions = [i if p else self.position(i) for i, p in zip(at, patterns, strict=True)]
        key = (buffer, tuple(p or i for i, p in zip(positions, patterns, strict=True)))
        if key not in self._memo:
            env = dict(zip(block.iters, positions, strict=True))
            value = self.visit(block.value, env)
            self._memo[key] = self.named(value)
        return self._memo[key]

    def _looked_up(self, buffer: Any, at: list[Any]) -> Affine | Value | None:
        """A position in a table whose elements are known; None where it is read from memory."""
        if buffer not in self._tables or not isinstance(at[0], Affine):
            return None
        found = looked_up(self._tables[buffer], at[0], self.variables, self.lanes)
        if not isinstance(found, Pattern):
            return found
        return Value(self.load(buffer, at).expr, self.lanes, "int32", pattern=found)

    def load(self, buffer: Any, at: list[Any]) -> Value:
        dtype = str(buffer.dtype)
        if buffer not in self.pointers or dtype not in DTYPES:
            raise RuleError(f"it reads {buffer.name}, a buffer of {dtype} that has no vector form")
        if any(isinstance(i, Value) and i.lanes > 1 for i in at):
            if self.guarded:
                raise RuleError(f"a read of {buffer.name} that its condition guards")
            found = self._patterned(buffer, at)
            expr = self._gather(buffer, at) if found is None else found
            loaded = self.loaded(expr, self.lanes, self._stored_dtype(buffer))
            return self._as(buffer, loaded)
        address = constant(0)
        for dimension, i in zip(buffer.shape, at, strict=True):
            position = self.position(i)
            if self.guarded:
                low, high = self.variables.bounds(position, self.lanes)
                if low < 0 or high >= int(dimension):
                    raise RuleError(f"a read of {buffer.name} that its condition guards")
            address = address * int(dimension) + position
        return self.load_flat(buffer, address)

    def look_up(self, table: Any, x: Value) -> Value:
        """The elements of a buffer of 256 bytes that bytes choose."""
        return self.looked_up(self.pointers[table], x)

    def load_flat(self, buffer: Any, address: Affine) -> Value:
        """The element at a flat address."""
        array, dtype = self.pointers[buffer], self._stored_dtype(buffer)
        at = self.variables.scalar(address)
        if address.uniform or self.lanes == 1:
            return self._as(buffer, self.loaded(self.e.load(array, at), 1, dtype, (buffer, address)))
        expr = None if address.lane_step == 1 else self._shuffled(buffer, pattern_of(address, self.lanes))
        if expr is None:
            expr = BufferLoad(array, [Ramp(index(at), index(address.lane_step), self.lanes)])
        return self._as(buffer, self.loaded(expr, self.lanes, dtype, (buffer, address)))

    def _stored_dtype(self, buffer: Any) -> str:
        """The dtype of a buffer's elements in memory, where a float32 constant may be stored as float16."""
        dtype = str(buffer.dtype)
        as_bits = dtype == "float32" and str(self.pointers[buffer].dtype) == FLOAT16_BITS
        return "float16" if as_bits else dtype

    def _as(self, buffer: Any, x: Value) -> Value:
        """What was loaded from a buffer, in the buffer's dtype."""
        return x if x.dtype == str(buffer.dtype) else self.cast(x, str(buffer.dtype))

    # Values -----------------------------------------------------------------------------------------------

    def _patterned(self, buffer: Any, at: list[Any]) -> Expr | None:
        """A load at lanes whose distances are known; None where they are not, or too far apart."""
        return self._shuffled(buffer, flat_pattern(buffer.shape, at, self.lanes))

    def _shuffled(self, buffer: Any, pattern: Pattern | None) -> Expr | None:
        """What lies at a pattern of flat addresses; None where they are not known, or too far apart."""
        if pattern is None:
            return None
        elements, known = prod(int(d) for d in buffer.shape), self._spans.setdefault(buffer, [])
        found = load_pattern(self.e, self.pointers[buffer], elements, pattern, self.variables, known)
        self.shuffled |= found is not None
        return found

    def _gather(self, buffer: Any, at: list[Any]) -> Expr:
        """A load at lanes that are computed. Below a condition on data, which may be what keeps them in the
        buffer (GridSample), they are clamped, as both sides are computed; elsewhere they have been."""
        self.gathered = True
        total: Expr = self.e.splat(index(0), self.lanes)
        for dimension, i in zip(buffer.shape, at, strict=True):
            step = self.e.splat(index(int(dimension)), self.lanes)
            total = self.e.let(total * step + self.expr(self.value(i, "int32"), self.lanes))
        if self.selected:
            first, last = (self.e.splat(index(n), self.lanes) for n in (0, prod(map(int, buffer.shape)) - 1))
            total = self.e.let(tirx.Max(tirx.Min(total, last), first))
        return BufferLoad(self.pointers[buffer], [total])

    # Expressions ------------------------------------------------------------------------------------------

    def visit_constant(self, node: Node, env: Environment) -> Any:
        x = node.expr
        if node.operation.name == "float":
            return self.literal(x)
        value = int(node.number)
        if node.dtype == "bool":
            return bool(value)
        return constant(value) if INT32[0] <= value <= INT32[1] else self.literal(x)

    def visit_variable(self, node: Node, env: Environment) -> Any:
        return env[node.expr]

    def visit_load(self, node: Node, env: Environment) -> Any:
        source = node.expr.source
        byte = table_position(node)
        if byte is not None and source in self.pointers and source not in self.blocks:
            return self.look_up(source, self.value(self.visit(byte, env), dtype_of(byte)))
        return self.read(source, self.operands(node, env))

    def visit_select(self, node: Node, env: Environment) -> Any:
        """A condition on positions is decided here, or by a branch or a cut outside; one on data selects."""
        condition, yes, no = node.operands
        try:
            decided = self._decide(condition, env)
            guards = False
        except VariesAcrossLanes:
            decided, guards = None, True
        if decided is not None:
            return self.visit(yes if decided else no, env)
        chosen = self.visit(condition, env)
        if isinstance(chosen, bool):
            return self.visit(yes if chosen else no, env)
        self.guarded += guards
        self.selected += 1
        dtype = dtype_of(yes)
        a, b = (self.value(self.visit(side, env), dtype) for side in (yes, no))
        self.selected -= 1
        self.guarded -= guards
        lanes = max(chosen.lanes, a.lanes, b.lanes)
        mask, a_expr, b_expr = (self.expr(v, lanes) for v in (chosen, a, b))
        result = Value(tirx.Select(mask, a_expr, b_expr), lanes, dtype)
        return result if dtype == "bool" else self.named(result)

    def visit_cast(self, node: Node, env: Environment) -> Any:
        (x,), dtype = node.operands, node.dtype
        value = self.visit(x, env)
        position = isinstance(value, Affine) or (isinstance(value, Value) and value.pattern is not None)
        if position and dtype in {"int32", "int64"}:
            return value
        if isinstance(value, bool) and dtype in {"int32", "int64"}:
            return constant(int(value))
        return self.cast(self.value(value, "int32" if isinstance(value, Affine) else dtype_of(x)), dtype)

    def visit_logical(self, node: Node, env: Environment) -> Any:
        """What is decided of one side may decide about both; the other is not evaluated then."""
        first, *others = node.operands
        a = self.visit(first, env)
        if not others:
            return not a if isinstance(a, bool) else self.operated(node.operation, [a], "bool")
        absorbing = node.operation.name == "or"
        if isinstance(a, bool):
            return a if a == absorbing else self.visit(others[0], env)
        b = self.visit(others[0], env)
        if isinstance(b, bool):
            return b if b == absorbing else a
        return self.operated(node.operation, [a, b], "bool")

    def visit_operation(self, node: Node, env: Environment) -> Any:
        return self.operate(node, self.operands(node, env))

    def operate(self, node: Node, operands: Sequence[Any]) -> Any:
        """What an operation makes of positions and values: a position where that is known."""
        operation, pattern = node.operation, None
        if len(operands) == 2:
            a, b = operands
            if isinstance(a, Affine) and isinstance(b, Affine):
                folded = self._positions(operation, a, b)
                if folded is not None:
                    return folded
            else:
                patterns = pattern_of(a, self.lanes), pattern_of(b, self.lanes)
                pattern = combined_patterns(operation.name, *patterns, self.variables)
        values = [self.value(v, dtype_of(x)) for v, x in zip(operands, node.operands, strict=True)]
        found = self.operated(operation, values, node.dtype)
        if found.dtype == "bool":
            return found
        expr = found.expr if isinstance(found.expr, Var) else self.e.let(found.expr)
        result = replace(found, expr=expr, pattern=pattern)
        if operation.name in {"max", "min"} and result.lanes == 1 and result.dtype in {"int32", "int64"}:
            return self._clamped(operation.name, result, *operands)
        return result

    def _decide(self, x: Any, env: Environment) -> bool | None:
        """A condition on positions; None where it depends on data."""
        operation = operation_of(x)
        name, operands = operation.name, Node(x, operation).operands
        if operation.kind is Kind.HINT:
            return self._decide(operands[0], env)
        if name == "not":
            inner = self._decide(operands[0], env)
            return None if inner is None else not inner
        if operation.kind is Kind.LOGICAL:
            first = self._decide(operands[0], env)
            if first is None or first == (name == "or"):
                return first
            return self._decide(operands[1], env)
        if operation.kind is not Kind.COMPARE or dtype_of(operands[0]) not in {"int32", "int64"}:
            return None
        a, b = (self.visit(operand, env) for operand in operands)
        if not (isinstance(a, Affine) and isinstance(b, Affine)):
            return None
        if name in {"eq", "ne"}:
            equal = self._at_most(a - b) and self._at_most(b - a)
            return equal == (name == "eq")
        if name in {"gt", "ge"}:
            a, b, name = b, a, {"gt": "lt", "ge": "le"}[name]
        return self._at_most((a - b).plus(1 if name == "lt" else 0))

    def _clamped(self, name: str, result: Value, a: Any, b: Any) -> Any:
        """Positions that are read from memory become positions once they are clamped from both sides."""
        ends = [self._ends(a), self._ends(b)]
        lows, highs = [low for low, _ in ends if low is not None], [h for _, h in ends if h is not None]
        if name == "max":
            low, high = max(lows, default=None), max(highs) if len(highs) == 2 else None
        else:
            low, high = min(lows) if len(lows) == 2 else None, min(highs, default=None)
        if low is not None and high is not None and INT32[0] <= low <= high <= INT32[1]:
            return self._variable(self.value(result, "int32").expr, low, high)
        return Value(result.expr, 1, result.dtype, None, low, high)

    def _ends(self, x: Any) -> tuple[int | None, int | None]:
        return self.variables.bounds(x) if isinstance(x, Affine) else (x.low, x.high)

"""Evaluate blocks of a fused PrimFunc on vectors: one lane per neighbouring element of one axis.

Reading what another elementwise block writes evaluates that block at the position that is read, so a chain
of blocks becomes one expression whatever its index maps are. A load whose address advances by one per lane
is a vector load; one that does not depend on the lane is a scalar; any other is gathered lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import BufferLoad, Ramp

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import INT32, Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.conditions import Conditions, Crosswise, NeedsBranch, NeedsSplit
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index
from edgepack.compiler.kernels.cpu.emit.half import HALVES, STORAGE, number_of
from edgepack.compiler.kernels.cpu.emit.patterns import (
    Loaded,
    combined_patterns,
    flat_pattern,
    load_pattern,
    pattern_of,
)
from edgepack.compiler.kernels.cpu.emit.tables import looked_up
from edgepack.compiler.kernels.cpu.emit.tir_blocks import Block
from edgepack.compiler.kernels.cpu.emit.values import COMPARISONS, DTYPES, FLOATS, Pattern, Value
from edgepack.compiler.kernels.cpu.emit.vector_double import double
from edgepack.compiler.kernels.cpu.emit.vector_integers import divided
from edgepack.compiler.kernels.cpu.emit.vector_math import (
    UNARY,
    elementary,
    is_nan,
    maximum,
    minimum,
    quotient,
)
from edgepack.compiler.kernels.cpu.emit.vector_power import power
from edgepack.compiler.kernels.cpu.emit.vector_remainder import remainder

__all__ = ["NeedsBranch", "NeedsSplit", "Vectors"]

Expr = Any

ARITHMETIC = {"Add", "Sub", "Mul", "Div", "Max", "Min"}
DIVISIONS = {"Div", "Mod", "FloorDiv", "FloorMod"}
BITWISE: dict[str, Callable[[Expr, Expr], Expr]] = {
    "BitwiseAnd": tirx.bitwise_and,
    "BitwiseOr": tirx.bitwise_or,
    "BitwiseXor": tirx.bitwise_xor,
    "LShift": tirx.shift_left,
    "RShift": tirx.shift_right,
}


class Vectors(Conditions):
    """Evaluates expressions at one position.

    Args:
        e: where to emit; what is evaluated is bound at the point of evaluation.
        lanes: elements of a vector.
        variables: the variables of positions.
        blocks: elementwise blocks by the buffer that they write.
        pointers: flat arrays by buffer.
        facts: for positions, whether they are <= 0 here.
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
        facts: Mapping[Affine, bool] | None = None,
        lane_variable: str = "",
        origin: int = 0,
    ) -> None:
        super().__init__(e, lanes, variables, facts, lane_variable, origin)
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
            value = self.evaluate(block.value, env)
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
            loaded = self._loaded(expr, self.lanes, self._stored_dtype(buffer))
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

    def load_flat(self, buffer: Any, address: Affine) -> Value:
        """The element at a flat address."""
        array, dtype = self.pointers[buffer], self._stored_dtype(buffer)
        at = self.variables.scalar(address)
        if address.uniform or self.lanes == 1:
            return self._as(buffer, self._loaded(self.e.load(array, at), 1, dtype))
        expr = None if address.lane_step == 1 else self._shuffled(buffer, pattern_of(address, self.lanes))
        if expr is None:
            expr = BufferLoad(array, [Ramp(index(at), index(address.lane_step), self.lanes)])
        return self._as(buffer, self._loaded(expr, self.lanes, dtype))

    def _stored_dtype(self, buffer: Any) -> str:
        """The dtype of a buffer's elements in memory, where a float32 constant may be stored as float16."""
        dtype = str(buffer.dtype)
        narrow = dtype == "float32" and str(self.pointers[buffer].dtype) == STORAGE
        return "float16" if narrow else dtype

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

    def evaluate(self, x: Any, env: Mapping[Any, Any]) -> Any:
        """An Affine, a bool (a decided condition) or a Value."""
        kind = type(x).__name__
        if kind == "IntImm":
            return bool(x.value) if str(x.ty.dtype) == "bool" else self._integer(int(x.value), x)
        if kind == "FloatImm":
            return self._number(x)
        if kind == "Var":
            return env[x]
        if kind == "TensorLoad":
            return self.read(x.source, [self.evaluate(i, env) for i in x.indices])
        if kind == "Select":
            return self._choose(x.condition, x.true_value, x.false_value, env)
        if kind == "Cast":
            return self._cast(x, env)
        if kind == "Call":
            return self._call(x, env)
        if kind == "Not":
            a = self.evaluate(x.a, env)
            return not a if isinstance(a, bool) else Value(tirx.Not(a.expr), a.lanes, "bool")
        if kind == "BitwiseNot":
            return self._complement(self.value(self.evaluate(x.a, env), str(x.ty.dtype)))
        if kind in {"And", "Or"}:
            return self._logical(kind, x, env)
        if kind in ARITHMETIC | COMPARISONS | BITWISE.keys() | {"FloorDiv", "FloorMod", "Mod"}:
            return self._binary(kind, x, self.evaluate(x.a, env), self.evaluate(x.b, env))
        raise RuleError(f"{kind} has no vector form")

    def _number(self, x: Any) -> Value:
        value, dtype = float(x.value), str(x.ty.dtype)
        return Value(number_of(value, dtype) if dtype in HALVES else x, 1, dtype, value)

    def _integer(self, value: int, x: Any) -> Any:
        if INT32[0] <= value <= INT32[1]:
            return constant(value)
        return Value(x, 1, str(x.ty.dtype), float(value))

    def _cast(self, x: Any, env: Mapping[Any, Any]) -> Any:
        value, dtype = self.evaluate(x.value, env), str(x.ty.dtype)
        position = isinstance(value, Affine) or (isinstance(value, Value) and value.pattern is not None)
        if position and dtype in {"int32", "int64"}:
            return value
        if isinstance(value, bool) and dtype in {"int32", "int64"}:
            return constant(int(value))
        source = str(x.value.ty.dtype)
        return self.cast(self.value(value, "int32" if isinstance(value, Affine) else source), dtype)

    def _call(self, x: Any, env: Mapping[Any, Any]) -> Any:
        name = str(getattr(x.op, "name", "")).rpartition(".")[2]
        dtype = str(x.ty.dtype)
        if name == "if_then_else":
            return self._choose(x.args[0], x.args[1], x.args[2], env)
        arguments = [(a, self.evaluate(a, env)) for a in x.args]
        values = [self.value(v, str(a.ty.dtype)) for a, v in arguments]
        lanes = max((v.lanes for v in values), default=1)
        exprs = [self.expr(v, lanes) for v in values]
        if dtype == "float64" and (doubled := double(self.e, name, exprs, lanes)) is not None:
            return Value(doubled, lanes, dtype)
        if f"tirx.{name}" in UNARY and dtype == "float32":
            return Value(elementary(self.e, f"tirx.{name}", self.e.let(exprs[0]), lanes), lanes, dtype)
        if name == "pow" and dtype == "float32":
            result = power(self.e, self.e.let(exprs[0]), exprs[1], lanes, values[1].number)
            return Value(self.e.let(result), lanes, dtype)
        if name == "isnan" and values[0].dtype in FLOATS:
            return Value(is_nan(self.e, exprs[0], lanes), lanes, "bool")
        raise RuleError(f"{name} has no vector form")

    def _complement(self, x: Value) -> Value:
        if x.dtype == "bool":
            return Value(tirx.Not(x.expr), x.lanes, x.dtype)
        return Value(self.e.let(tirx.bitwise_not(x.expr)), x.lanes, x.dtype)

    def _logical(self, kind: str, x: Any, env: Mapping[Any, Any]) -> Any:
        absorbing = kind == "Or"
        a = self.evaluate(x.a, env)
        if isinstance(a, bool):
            return a if a == absorbing else self.evaluate(x.b, env)
        b = self.evaluate(x.b, env)
        if isinstance(b, bool):
            return b if b == absorbing else a
        lanes = max(a.lanes, b.lanes)
        both = (tirx.Or if absorbing else tirx.And)(self.expr(a, lanes), self.expr(b, lanes))
        return Value(both, lanes, "bool")

    def _choose(self, condition: Any, yes: Any, no: Any, env: Mapping[Any, Any]) -> Any:
        """A condition on positions is decided here, or by a branch or a cut outside; one on data selects."""
        try:
            decided = self._decide(condition, env)
            guards = False
        except Crosswise:
            decided, guards = None, True
        if decided is not None:
            return self.evaluate(yes if decided else no, env)
        chosen = self.evaluate(condition, env)
        if isinstance(chosen, bool):
            return self.evaluate(yes if chosen else no, env)
        self.guarded += guards
        self.selected += 1
        dtype = str(yes.ty.dtype)
        a, b = (self.value(self.evaluate(side, env), dtype) for side in (yes, no))
        self.selected -= 1
        self.guarded -= guards
        lanes = max(chosen.lanes, a.lanes, b.lanes)
        mask, a_expr, b_expr = (self.expr(v, lanes) for v in (chosen, a, b))
        result = Value(tirx.Select(mask, a_expr, b_expr), lanes, dtype)
        return result if dtype == "bool" else self.named(result)

    def _decide(self, x: Any, env: Mapping[Any, Any]) -> bool | None:
        """A condition on positions; None where it depends on data."""
        kind = type(x).__name__
        if kind == "Call" and str(getattr(x.op, "name", "")).endswith(".likely"):
            return self._decide(x.args[0], env)
        if kind == "Not":
            inner = self._decide(x.a, env)
            return None if inner is None else not inner
        if kind in {"And", "Or"}:
            first = self._decide(x.a, env)
            if first is None or first == (kind == "Or"):
                return first
            return self._decide(x.b, env)
        if kind not in COMPARISONS or str(x.a.ty.dtype) not in {"int32", "int64"}:
            return None
        a, b = self.evaluate(x.a, env), self.evaluate(x.b, env)
        if not (isinstance(a, Affine) and isinstance(b, Affine)):
            return None
        if kind in {"EQ", "NE"}:
            equal = self._at_most(a - b) and self._at_most(b - a)
            return equal == (kind == "EQ")
        if kind in {"GT", "GE"}:
            a, b, kind = b, a, {"GT": "LT", "GE": "LE"}[kind]
        return self._at_most((a - b).plus(1 if kind == "LT" else 0))

    def _binary(self, kind: str, x: Any, a: Any, b: Any) -> Any:
        dtype = str(x.a.ty.dtype)
        pattern = None
        if isinstance(a, Affine) and isinstance(b, Affine):
            folded = self._positions(kind, a, b)
            if folded is not None:
                return folded
        else:
            patterns = pattern_of(a, self.lanes), pattern_of(b, self.lanes)
            pattern = combined_patterns(kind, *patterns, self.variables)
        if dtype in HALVES:
            raise RuleError(f"arithmetic on {dtype} has no vector form")
        left, right = self.value(a, dtype), self.value(b, dtype)
        lanes = max(left.lanes, right.lanes)
        p, q = self.expr(left, lanes), self.expr(right, lanes)
        if kind in COMPARISONS:
            return Value(type(x)(p, q), lanes, "bool")
        if kind in BITWISE and dtype != "bool":
            return Value(self.e.let(BITWISE[kind](p, q)), lanes, dtype)
        if dtype == "bool":
            return Value(_logical(kind, p, q), lanes, dtype)
        if dtype in FLOATS and kind in {"Max", "Min"}:
            return Value((maximum if kind == "Max" else minimum)(self.e, p, q), lanes, dtype)
        if kind in DIVISIONS and dtype not in FLOATS:
            return Value(divided(self.e, kind, p, q, lanes, dtype), lanes, dtype)
        if kind == "Mod" and dtype == "float32":
            return Value(remainder(self.e, p, q, lanes), lanes, dtype)
        if kind not in ARITHMETIC:
            raise RuleError(f"{kind} of {dtype} has no vector form")
        ratio = kind == "Div" and dtype == "float32"
        expr = self.e.let(quotient(self.e, p, q) if ratio else type(x)(p, q))
        result = Value(expr, lanes, dtype, pattern=pattern)
        if kind in {"Max", "Min"} and lanes == 1 and dtype in {"int32", "int64"}:
            return self._clamped(kind, result, a, b)
        return result

    def _clamped(self, kind: str, result: Value, a: Any, b: Any) -> Any:
        """Positions that are read from memory become positions once they are clamped from both sides."""
        ends = [self._ends(a), self._ends(b)]
        lows, highs = [low for low, _ in ends if low is not None], [h for _, h in ends if h is not None]
        if kind == "Max":
            low, high = max(lows, default=None), max(highs) if len(highs) == 2 else None
        else:
            low, high = min(lows) if len(lows) == 2 else None, min(highs, default=None)
        if low is not None and high is not None and INT32[0] <= low <= high <= INT32[1]:
            return self._variable(self.value(result, "int32").expr, low, high)
        return Value(result.expr, 1, result.dtype, None, low, high)

    def _ends(self, x: Any) -> tuple[int | None, int | None]:
        return self.variables.bounds(x) if isinstance(x, Affine) else (x.low, x.high)


def _logical(kind: str, p: Expr, q: Expr) -> Expr:
    """A bitwise operation on truth values, whose vectors have no bits."""
    if kind == "BitwiseXor":
        return tirx.Or(tirx.And(p, tirx.Not(q)), tirx.And(tirx.Not(p), q))
    if kind == "BitwiseAnd":
        return tirx.And(p, q)
    if kind == "BitwiseOr":
        return tirx.Or(p, q)
    raise RuleError(f"{kind} of truth values has no vector form")

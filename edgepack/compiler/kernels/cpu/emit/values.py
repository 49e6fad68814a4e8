"""Values and positions while a vector kernel is generated, and the arithmetic on both."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.tirx import Ramp

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import INT32, Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter, index
from edgepack.compiler.kernels.cpu.emit.half import HALVES, STORAGE, narrowed, widened

__all__ = ["COMPARISONS", "DTYPES", "FLOATS", "Pattern", "Value", "Values", "storage_dtype"]

Expr = Any

#: dtypes that have a vector form on every target; those of half precision are moved and converted only.
DTYPES = {
    *("float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"),
    *HALVES,
}

#: Those of them that are computed with and are no integers.
FLOATS = {"float32", "float64"}

COMPARISONS = {"LT", "LE", "GT", "GE", "EQ", "NE"}


def storage_dtype(dtype: str) -> str:
    """The dtype of the elements in memory: a bool is a byte, half precision its bits."""
    return "int8" if dtype == "bool" else STORAGE if dtype in HALVES else dtype


@dataclass(frozen=True)
class Pattern:
    """A position for each lane: ``base + offsets[lane]``, the base the same in all lanes."""

    base: Affine
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """``lanes`` elements, or one that stands for all of them.

    Attributes:
        expr: the elements; those of half precision as they lie in memory.
        number: the value where it is a constant.
        low, high: bounds of an integer, where known.
        pattern: the same whole numbers as positions, where they are known to be such.
    """

    expr: Expr
    lanes: int
    dtype: str
    number: float | None = None
    low: int | None = None
    high: int | None = None
    pattern: Pattern | None = None


class Values:
    """Makes values and positions of each other, and computes with positions.

    Args:
        e: where to emit.
        lanes: elements of a vector.
        variables: the variables of positions.
    """

    def __init__(self, e: Emitter, lanes: int, variables: IndexVariables) -> None:
        self.e, self.lanes, self.variables = e, lanes, variables

    def _loaded(self, expr: Expr, lanes: int, dtype: str) -> Value:
        if dtype == "bool":
            zero = self.e.splat(tirx.IntImm("int8", 0), lanes)
            return Value(tirx.NE(self.e.let(expr), zero), lanes, dtype)
        return Value(self.e.let(expr), lanes, dtype)

    def named(self, value: Any) -> Any:
        if isinstance(value, Value) and value.number is None and value.dtype != "bool":
            return Value(self.e.let(value.expr), value.lanes, value.dtype, pattern=value.pattern)
        return value

    def value(self, x: Any, dtype: str) -> Value:
        """A position, a decided condition or a value as a value of ``dtype``."""
        if isinstance(x, bool):
            return Value(tirx.IntImm("bool", int(x)), 1, "bool", float(x))
        if isinstance(x, Affine):
            at = self.variables.scalar(x)
            if x.lane_step and self.lanes > 1:
                # A sum, as LLVM makes a ramp from a variable lane by lane, and one from 0 is a constant.
                steps = Ramp(index(0), index(x.lane_step), self.lanes)
                expr = steps if x.known and x.constant == 0 else self.e.splat(index(at), self.lanes) + steps
                x = Value(self.e.let(expr), self.lanes, "int32")
            else:
                number = float(x.constant) if x.known else None
                x = Value(at, 1, "int32", number)
        assert isinstance(x, Value)
        return x if x.dtype == dtype else self.cast(x, dtype)

    def cast(self, x: Value, dtype: str) -> Value:
        if dtype not in DTYPES or x.dtype not in DTYPES:
            raise RuleError(f"{dtype} of {x.dtype} has no vector form")
        if x.dtype in HALVES:
            wide = Value(widened(self.e, x.expr, x.lanes, x.dtype), x.lanes, "float32", x.number)
            return wide if dtype == "float32" else self.cast(wide, dtype)
        if dtype in HALVES:
            single = x if x.dtype == "float32" else self.cast(x, "float32")
            return Value(narrowed(self.e, single.expr, x.lanes, dtype), x.lanes, dtype, x.number)
        if dtype == "bool":
            zero = self.e.splat(tirx.const(0, x.dtype), x.lanes)
            return Value(tirx.NE(x.expr, zero), x.lanes, dtype)
        if x.dtype == "bool":
            one, zero = (self.e.splat(tirx.const(v, dtype), x.lanes) for v in (1, 0))
            return Value(self.e.let(tirx.Select(x.expr, one, zero)), x.lanes, dtype)
        vector = dtype if x.lanes == 1 else f"{dtype}x{x.lanes}"
        return Value(self.e.let(tirx.Cast(vector, x.expr)), x.lanes, dtype, x.number)

    def expr(self, x: Value, lanes: int) -> Expr:
        """The value as ``lanes`` lanes."""
        return x.expr if x.lanes == lanes else self.e.splat(x.expr, lanes)

    def position(self, x: Any) -> Affine:
        """An index as an affine position. RuleError where it differs between lanes in another way."""
        if isinstance(x, Affine):
            return x
        x = self.value(x, "int32")
        if x.lanes > 1:
            raise RuleError("a position that is computed lane by lane")
        if x.number is not None:
            return constant(int(x.number))
        return self._variable(x.expr, *INT32)

    def _variable(self, expr: Expr, low: int, high: int) -> Affine:
        bound = self.e.let(expr)
        return self.variables.add(str(bound.name), bound, low, high)

    def _positions(self, kind: str, a: Affine, b: Affine) -> Any:
        """Arithmetic on positions; None where it has to be done on vectors."""
        if kind == "Add":
            return a + b
        if kind == "Sub":
            return a - b
        if kind == "Mul" and (a.known or b.known):
            return b * a.constant if a.known else a * b.constant
        if kind in COMPARISONS:
            return None
        (a_low, a_high), (b_low, b_high) = (self.variables.bounds(p, self.lanes) for p in (a, b))
        if kind in {"Max", "Min"}:
            d_low, d_high = self.variables.bounds(a - b, self.lanes)
            if d_low >= 0 or d_high <= 0:
                return a if (d_low >= 0) == (kind == "Max") else b
            if a.uniform and b.uniform:
                f = tirx.Max if kind == "Max" else tirx.Min
                pick = max if kind == "Max" else min
                expr = f(self.variables.scalar(a), self.variables.scalar(b))
                return self._variable(expr, pick(a_low, b_low), pick(a_high, b_high))
            return None
        if kind in {"Div", "FloorDiv", "FloorMod"} and b.known and b.constant > 0:
            if kind == "Div" and a_low < 0:
                return None
            quotient, rest = self._quotient(a, b.constant)
            return rest if kind == "FloorMod" else quotient
        return None

    def _quotient(self, x: Affine, divisor: int) -> tuple[Any, Any]:
        """Floor quotient and remainder of a position."""
        whole, rest = self.variables.divide(x, divisor)
        low, high = self.variables.bounds(rest, self.lanes)
        extra = low // divisor
        if extra == high // divisor:
            return whole.plus(extra), rest.plus(-extra * divisor)
        shift = constant(-extra * divisor)  # makes it non-negative: the quotient truncates
        if not rest.uniform:
            vector = self.value(rest + shift, "int32").expr
            steps = self.e.splat(index(divisor), self.lanes)
            q = self.e.let(tirx.truncdiv(vector, steps))
            offset = self.expr(self.value(whole.plus(extra), "int32"), self.lanes)
            r = self.e.let(vector - q * steps)
            patterns: list[Pattern | None] = [None, None]
            if not rest.terms:
                numbers = [rest.constant + rest.lane_step * lane for lane in range(self.lanes)]
                patterns[0] = Pattern(whole, tuple(n // divisor for n in numbers))
                patterns[1] = Pattern(constant(0), tuple(n % divisor for n in numbers))
            return (
                Value(self.e.let(q + offset), self.lanes, "int32", pattern=patterns[0]),
                Value(r, self.lanes, "int32", pattern=patterns[1]),
            )
        q = self._variable(
            tirx.truncdiv(self.variables.scalar(rest + shift), index(divisor)), 0, high // divisor - extra
        )
        q = q.plus(extra)
        return whole + q, self._remainder(rest, q, divisor)

    def _remainder(self, rest: Affine, q: Affine, divisor: int) -> Affine:
        remainder = rest - q * divisor
        return self._variable(self.variables.scalar(remainder), 0, divisor - 1)

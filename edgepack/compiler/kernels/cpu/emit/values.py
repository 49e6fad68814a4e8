"""Values and positions while a vector kernel is generated, and the arithmetic on both."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tvm import tirx
from tvm.tirx import Ramp

from edgepack.compiler.kernels.contract import RuleError
from edgepack.compiler.kernels.cpu.emit.affine import INT32, Affine, IndexVariables, constant
from edgepack.compiler.kernels.cpu.emit.arithmetic import Arithmetic
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.float16 import FLOAT16_BITS, SIXTEEN_BIT_FLOATS
from edgepack.compiler.kernels.cpu.emit.indices import index
from edgepack.compiler.kernels.cpu.emit.value import Pattern, Value
from edgepack.compiler.kernels.expressions.operations import Kind, Operation

__all__ = ["Pattern", "Value", "Values", "storage_dtype"]

Expr = Any


def storage_dtype(dtype: str) -> str:
    """The dtype of the elements in memory: a bool is a byte, half precision its bits."""
    return "int8" if dtype == "bool" else FLOAT16_BITS if dtype in SIXTEEN_BIT_FLOATS else dtype


class Values(Arithmetic):
    """Makes values and positions of each other, and computes with positions.

    Args:
        e: where to emit.
        lanes: elements of a vector.
        variables: the variables of positions.
    """

    def __init__(self, e: Emitter, lanes: int, variables: IndexVariables) -> None:
        super().__init__(e)
        self.lanes, self.variables = lanes, variables

    def named(self, value: Any) -> Any:
        if isinstance(value, Value) and value.number is None and value.dtype != "bool":
            return replace(value, expr=self.e.let(value.expr))
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

    def _positions(self, operation: Operation, a: Affine, b: Affine) -> Any:
        """Arithmetic on positions; None where it has to be done on vectors."""
        name = operation.name
        if name == "add":
            return a + b
        if name == "sub":
            return a - b
        if name == "mul" and (a.known or b.known):
            return b * a.constant if a.known else a * b.constant
        if operation.kind is Kind.COMPARE:
            return None
        (a_low, a_high), (b_low, b_high) = (self.variables.bounds(p, self.lanes) for p in (a, b))
        if name in {"max", "min"}:
            d_low, d_high = self.variables.bounds(a - b, self.lanes)
            if d_low >= 0 or d_high <= 0:
                return a if (d_low >= 0) == (name == "max") else b
            if a.uniform and b.uniform:
                f = tirx.Max if name == "max" else tirx.Min
                pick = max if name == "max" else min
                expr = f(self.variables.scalar(a), self.variables.scalar(b))
                return self._variable(expr, pick(a_low, b_low), pick(a_high, b_high))
            return None
        if name in {"div", "floor_div", "floor_mod"} and b.known and b.constant > 0:
            if name == "div" and a_low < 0:
                return None
            quotient, rest = self._quotient(a, b.constant)
            return rest if name == "floor_mod" else quotient
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

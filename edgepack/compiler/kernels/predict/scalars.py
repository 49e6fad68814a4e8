"""Values of the whole numbers that decide how a kernel runs: ends of loops, conditions."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import Any

from edgepack.compiler.kernels.expressions.nodes import name_of, operands_of

__all__ = ["Scalar", "UnknownError", "compiled", "variables"]

Expr = Any


class UnknownError(Exception):
    """A value is not known before the kernel runs: it is read from memory."""


def _truncated(a: int, b: int) -> int:
    if b == 0:
        raise UnknownError
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


#: A number, by the values of variables.
Scalar = Callable[[Mapping[str, int]], Any]

_FORMS: dict[str, Callable[..., int]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": _truncated,
    "mod": lambda a, b: a - b * _truncated(a, b),
    "floor_div": lambda a, b: a // (b or 1),
    "floor_mod": lambda a, b: a % (b or 1),
    "min": min,
    "max": max,
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "and": lambda a, b: bool(a) and bool(b),
    "or": lambda a, b: bool(a) or bool(b),
    "not": operator.not_,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "shift_left": operator.lshift,
    "shift_right": operator.rshift,
    "cast": int,
    "likely": int,
    "select": lambda condition, a, b: a if condition else b,
    "if_then_else": lambda condition, a, b: a if condition else b,
}


def compiled(x: Expr) -> Scalar:
    """A scalar as a function of the values of its variables, by name.

    The function raises:
        UnknownError: it depends on memory, or on a variable that has no value.
    """
    name = name_of(x)
    if name == "integer":
        number = int(x.value)
        return lambda values: number
    if name == "float":  # of an end that LLVM is not to know, see Emitter.opaque
        fraction = float(x.value)
        return lambda values: fraction
    if name == "variable":
        return _variable(str(x.name))
    form = _FORMS.get(name)
    if form is None:
        return _unknown
    operands = [compiled(operand) for operand in operands_of(x)]
    if len(operands) == 2:
        a, b = operands
        return lambda values: form(a(values), b(values))
    return lambda values: form(*(one(values) for one in operands))


def _variable(name: str) -> Scalar:
    def value(values: Mapping[str, int]) -> int:
        if name not in values:
            raise UnknownError
        return values[name]

    return value


def _unknown(values: Mapping[str, int]) -> int:
    raise UnknownError


def variables(x: Expr) -> set[str]:
    """The names of the variables in a scalar, those in positions of loads too."""
    found, pending = set(), [x]
    while pending:
        one = pending.pop()
        if name_of(one) == "variable":
            found.add(str(one.name))
        pending.extend(operands_of(one))
    return found

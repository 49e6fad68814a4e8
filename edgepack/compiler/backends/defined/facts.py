"""What a condition says of numbers where it holds."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

from edgepack.compiler.backends.defined.interval import Interval
from edgepack.compiler.kernels.expressions.nodes import dtype_of, name_of, operands_of

__all__ = ["Fact", "apply", "facts_of", "number_in"]

Expr = Any

#: What a comparison is where it does not hold, of numbers that are none (NaN) nothing is said then.
_OPPOSITE = {"lt": "ge", "le": "gt", "gt": "le", "ge": "lt", "eq": "ne", "ne": "eq"}

#: What a comparison is with its sides exchanged.
_MIRRORED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


_COMPARES: dict[str, Callable[[Any, Any], bool]] = {name: getattr(operator, name) for name in _OPPOSITE}


@dataclass(frozen=True)
class Fact:
    """That an expression lies in an interval, and, unless ``zero``, is not 0."""

    expr: Expr
    interval: Interval
    zero: bool = True


def number_in(x: Expr) -> float | None:
    """The number that a constant is, in every lane; None for what is none."""
    while type(x) is tirx.Broadcast or (type(x) is tirx.Cast and type(x.value) is tirx.IntImm):
        x = x.value
    if type(x) is tirx.IntImm:
        return int(x.value)
    return float(x.value) if type(x) is tirx.FloatImm else None


def facts_of(condition: Expr, holds: bool, named: Callable[[Expr], Expr]) -> tuple[Fact, ...]:
    """What is known where a condition holds, or does not.

    Args:
        named: what a name stands for; any other expression itself.
    """
    condition = named(condition)
    name, operands = name_of(condition), operands_of(condition)
    if name in {"broadcast", "likely"}:
        return facts_of(operands[0], holds, named)
    if name == "not":
        return facts_of(operands[0], not holds, named)
    if name == ("and" if holds else "or"):
        return tuple(fact for x in operands for fact in facts_of(x, holds, named))
    if name not in _OPPOSITE:
        return ()
    a, b = operands
    if (number := _known_number(a, named)) is not None:
        name, a = _MIRRORED[name], b
    elif (number := _known_number(b, named)) is None:
        return ()
    inner = named(a)
    if name_of(inner) == "select":
        return _of_flag(name, inner, number, holds, named)
    return tuple(_compared(name if holds else _OPPOSITE[name], a, number, holds, named))


def _known_number(x: Expr, named: Callable[[Expr], Expr]) -> float | None:
    """The number of a constant, behind names too."""
    inner = named(x)
    return number_in(tirx.Broadcast(named(inner.value), 2) if type(inner) is tirx.Broadcast else inner)


def _of_flag(
    name: str, flag: Expr, number: float, holds: bool, named: Callable[[Expr], Expr]
) -> tuple[Fact, ...]:
    """What a comparison says whose side is a condition that was made an integer (1 or 0)."""
    condition, *sides = operands_of(flag)
    values = [number_in(side) for side in sides]
    if None in values:
        return ()
    chosen = [_COMPARES[name](value, number) == holds for value in values]
    return facts_of(condition, chosen[0], named) if chosen[0] != chosen[1] else ()


def _compared(name: str, x: Expr, number: float, holds: bool, named: Callable[[Expr], Expr]) -> list[Fact]:
    whole = dtype_of(x).startswith(("int", "uint"))
    # A comparison with NaN holds for "not equal" alone.
    nan = not whole and (name == "ne" if holds else name != "eq")
    if name == "ne":
        return [Fact(x, Interval(-inf, inf, nan), zero=number != 0)]
    below, above = _neighbours(number, dtype_of(x))
    least = {"gt": above, "ge": number, "eq": number}.get(name, -inf)
    most = {"lt": below, "le": number, "eq": number}.get(name, inf)
    facts = [Fact(x, Interval(least, most, nan))]
    inner = named(x)
    if name_of(inner) == "fabs" and most < inf:
        facts.append(Fact(operands_of(inner)[0], Interval(-most, most, nan)))
    return facts


def _neighbours(number: float, dtype: str) -> tuple[float, float]:
    """The next smaller and the next larger number of a type."""
    if dtype.startswith(("int", "uint")):
        return number - 1, number + 1
    made = np.float64 if dtype.startswith("float64") else np.float32
    x = made(number)
    return float(np.nextafter(x, made(-inf))), float(np.nextafter(x, made(inf)))


def apply(facts: tuple[Fact, ...], x: Expr, found: Interval) -> Interval:
    """An interval of an expression, with what is known of it."""
    for fact in facts:
        if not (fact.expr is x or tvm_ffi.structural_equal(fact.expr, x)):
            continue
        least, most = max(found.least, fact.interval.least), min(found.most, fact.interval.most)
        apart = found.apart
        if not fact.zero and dtype_of(x).startswith(("int", "uint")):
            least, most, apart = least + (least == 0), most - (most == 0), 1
        found = Interval(least, most, found.nan and fact.interval.nan, apart)
    return found

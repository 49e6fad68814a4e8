"""Arithmetic with sizes: what a Shape gives, and what makes shapes, counters and positions of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat
from typing import Any, TypeAlias

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, least, minus, most, plus, times
from edgepack.compiler.frontend.onnx.growing.values import Value

__all__ = ["numbers_of"]

#: Elements of the longest tensor whose numbers are followed.
LONGEST = 64

#: Numbers of a tensor's elements, each as far as it is known.
Numbers: TypeAlias = "tuple[Dim | None, ...]"


def numbers_of(operator: str, given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    """The numbers of a node's first result; None if none is known.

    Args:
        given: what the node reads; one without a name where an input is left out.
        about: its attributes.
    """
    rule = RULES.get(operator)
    if rule is None or not given:
        return None
    found = rule(given, about)
    known = found is not None and len(found) <= LONGEST and any(number is not None for number in found)
    return found if known else None


def _passed(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    del about
    return given[0].numbers


def _cast(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(about["to"])
    wide = dtype.kind == "i" and dtype.itemsize >= 4
    return given[0].numbers if wide else None


def _shape(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    if given[0].dims is None:
        return None
    return given[0].dims[about.get("start", 0) : about.get("end", len(given[0].dims))]


def _elementwise(
    combine: Callable[[Dim, Dim], Dim | None],
) -> Callable[[Sequence[Value], Mapping[str, Any]], Numbers | None]:
    def rule(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
        del about
        one, other = (value.numbers for value in given[:2])
        if one is None or other is None or (len(one) != len(other) and 1 not in (len(one), len(other))):
            return None
        longest = max(len(one), len(other)) if one and other else 0
        wide = [n * longest if len(n) == 1 else n for n in (one, other)]
        return tuple(
            None if a is None or b is None else combine(a, b) for a, b in zip(wide[0], wide[1], strict=True)
        )

    return rule


def _product(one: Dim, other: Dim) -> Dim | None:
    if isinstance(one, int):
        return times(other, one)
    return times(one, other) if isinstance(other, int) else None


def _quotient(one: Dim, other: Dim) -> Dim | None:
    if not isinstance(other, int) or other <= 0:
        return None
    if isinstance(one, int):
        return abs(one) // other * (1 if one >= 0 else -1)
    if any(factor % other for factor in (one.const, *(factor for _, factor in one.terms))):
        return None
    return Extent(tuple((symbol, factor // other) for symbol, factor in one.terms), one.const // other)


def _smaller(one: Dim, other: Dim) -> Dim | None:
    apart = minus(one, other)
    return one if most(apart) <= 0 else other if least(apart) >= 0 else None


def _larger(one: Dim, other: Dim) -> Dim | None:
    apart = minus(one, other)
    return one if least(apart) >= 0 else other if most(apart) <= 0 else None


def _equal(one: Dim, other: Dim) -> Dim | None:
    apart = minus(one, other)
    if isinstance(apart, int):
        return int(apart == 0)
    return 0 if least(apart) > 0 or most(apart) < 0 else None


def _less(one: Dim, other: Dim) -> Dim | None:
    apart = minus(one, other)
    return 1 if most(apart) < 0 else 0 if least(apart) >= 0 else None


def _where(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    del about
    chosen, one, other = (value.numbers for value in given[:3])
    if chosen is None or one is None or other is None:
        return None
    longest = max(len(chosen), len(one), len(other))
    wide = [n * longest if len(n) == 1 else n for n in (chosen, one, other)]
    if {len(n) for n in wide} != {longest}:
        return None
    return tuple(None if not isinstance(c, int) else a if c else b for c, a, b in zip(*wide, strict=True))


def _gather(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    data, indices = given[0].numbers, given[1].numbers
    if (
        data is None
        or indices is None
        or len(given[0].dims or ()) != 1
        or about.get("axis", 0) not in (0, -1)
    ):
        return None
    if any(not isinstance(i, int) or not -len(data) <= i < len(data) for i in indices):
        return None
    return tuple(data[i] for i in indices if isinstance(i, int))


def _concat(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    found: list[Dim | None] = []
    for value in given:
        if value.dims is None or len(value.dims) != 1 or not isinstance(value.dims[0], int):
            return None
        found += value.numbers if value.numbers is not None else repeat(None, value.dims[0])
    return tuple(found)


def _slice(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    data = given[0].numbers
    if data is None or len(given[0].dims or ()) != 1 or len(given) < 3:
        return None
    bounds = []
    for value in (given[1], given[2], *given[4:5]):
        numbers = value.numbers if value.name else (1,)
        if numbers is None or len(numbers) != 1 or not isinstance(numbers[0], int):
            return None
        bounds.append(numbers[0])
    return data[slice(*bounds)] if len(bounds) < 3 or bounds[2] else None


def _filled(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    from onnx import numpy_helper

    numbers = given[0].numbers
    if numbers is None or len(numbers) > 1 or not all(isinstance(n, int) for n in numbers):
        return None
    if "value" not in about:
        return None
    value = numpy_helper.to_array(about["value"]).reshape(-1)[0]
    length = numbers[0] if numbers else 1
    whole = value.dtype.kind in "iub" and isinstance(length, int) and 0 <= length <= LONGEST
    return (int(value),) * length if whole and isinstance(length, int) else None


def _multiplied(given: Sequence[Value], about: Mapping[str, Any]) -> Numbers | None:
    del about
    if given[0].numbers is None or len(given) > 1:
        return None
    found: Dim | None = 1
    for number in given[0].numbers:
        found = None if found is None or number is None else _product(found, number)
    return (found,)


RULES: dict[str, Callable[[Sequence[Value], Mapping[str, Any]], Numbers | None]] = {
    "Add": _elementwise(plus),
    "Cast": _cast,
    "Concat": _concat,
    "ConstantOfShape": _filled,
    "Div": _elementwise(_quotient),
    "Equal": _elementwise(_equal),
    "Gather": _gather,
    "Identity": _passed,
    "Less": _elementwise(_less),
    "Max": _elementwise(_larger),
    "Min": _elementwise(_smaller),
    "Mul": _elementwise(_product),
    "ReduceProd": _multiplied,
    "Reshape": _passed,
    "Shape": _shape,
    "Slice": _slice,
    "Squeeze": _passed,
    "Sub": _elementwise(minus),
    "Unsqueeze": _passed,
    "Where": _where,
}

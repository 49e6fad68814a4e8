"""Values while a vector kernel is generated, and what is known of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.affine import Affine

__all__ = ["Pattern", "Product", "Value", "product_of"]

Expr = Any


@dataclass(frozen=True)
class Pattern:
    """A position for each lane: ``base + offsets[lane]``, the base the same in all lanes."""

    base: Affine
    offsets: tuple[int, ...]


@dataclass(frozen=True)
class Product:
    """An int64 value: ``(a * b + added) >> shift``.

    Attributes:
        a, b: int32 values.
        signed: whether 1 is subtracted before the shift where ``a`` is negative.
    """

    a: Value
    b: Value
    added: int = 0
    shift: int = 0
    signed: bool = False


@dataclass(frozen=True)
class Value:
    """``lanes`` elements, or one that stands for all of them.

    Attributes:
        expr: the elements; those of half precision as they lie in memory.
        number: the value where it is a constant.
        low, high: bounds of an integer, where known.
        pattern: the same whole numbers as positions, where they are known to be such.
        least, most: bounds that a value was given by constants.
        bounded: the int32 value that was given these bounds, as an expression.
        nearest: the float32 value, within ``least`` and ``most``, that this one is the nearest whole number
        to.
        whole: whether it is a float32 number that was an integer.
        integral: whether it is a float32 number that has no fraction.
        quotient: float32 value and number, of which this one is the quotient, within ``least`` and ``most``.
        magnitude: what a float32 value's magnitude does not exceed, by what it was computed of.
        narrow: the int32 value that this int64 one was.
        wide: the int32 value that this narrower one was, which its type holds.
        product: what this int64 value is of which int32 ones.
        sign_of: the int32 value of which this one is -1 where it is negative, else 0.
        half: the int32 value that this one is twice.
        origin: what an integer of 32 bits was computed of, read or written down as: two of the same origin
            are equal.
        addends: the two int32 values that this one is the sum of.
        rounded: whether it is an integer that a number was rounded to, with what that was bounded by.
    """

    expr: Expr
    lanes: int
    dtype: str
    number: float | None = None
    low: int | None = None
    high: int | None = None
    pattern: Pattern | None = None
    least: float = -inf
    most: float = inf
    bounded: Any = None
    nearest: Any = None
    whole: bool = False
    integral: bool = False
    quotient: tuple[Value, float] | None = None
    magnitude: float = inf
    narrow: Value | None = None
    wide: Value | None = None
    product: Product | None = None
    sign_of: Value | None = None
    half: Value | None = None
    origin: Any = None
    addends: tuple[Value, Value] | None = None
    rounded: bool = False


def product_of(name: str, values: Sequence[Value]) -> Product | None:
    """What an int64 value is as a product, a sum with a constant, and a shift; None of another one."""
    a, b = values if len(values) == 2 else (values[0], values[0])
    if name == "mul":
        first, second = _int32_of(a), _int32_of(b)
        return None if first is None or second is None else Product(first, second)
    known = next((v for v in (a, b) if v.product is not None), None)
    other = b if known is a else a
    if known is None or known.product is None:
        return None
    found = known.product
    if other.number is None:
        sign = name == "add" and other.narrow is not None and other.narrow.sign_of is found.a
        return replace(found, signed=True) if sign and not found.shift and not found.signed else None
    if name == "add" and not found.shift and not found.added:
        return replace(found, added=int(other.number))
    if name == "shift_right" and known is a and not found.shift:
        return replace(found, shift=int(other.number))
    return None


def _int32_of(x: Value) -> Value | None:
    """The int32 value that an int64 one is; None of another one."""
    if x.narrow is None and x.number is not None and -(2**31) < x.number < 2**31:
        return Value(tirx.IntImm("int32", int(x.number)), 1, "int32", x.number)
    return x.narrow

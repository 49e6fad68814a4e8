"""How each operation that LLVM leaves undefined is made one that is defined for all numbers.

What is chosen is said in docs/models.md: a quotient and a remainder by 0 are 0, integers wrap, a shift by
as many bits as there are, more or fewer than none leaves nothing (of a negative number its sign), and a
number that no integer is becomes the nearest one, NaN 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.ir import TensorLoad

from edgepack.compiler.backends.defined.interval import Interval, integer_limits
from edgepack.compiler.backends.defined.known import Known, element_type, is_integer
from edgepack.compiler.kernels.expressions.nodes import dtype_of

__all__ = ["converted", "is_conversion", "quotient", "shifted", "unequal", "wrapped"]

Expr = Any


def quotient(x: Expr, known: Known) -> Expr:
    """``Div`` and ``Mod`` of integers, which truncate."""
    dtype, (a, b) = element_type(x), (x.a, x.b)
    if not is_integer(dtype):
        return x
    divisor, least = known.interval(b), integer_limits(dtype)[0]
    by_zero = divisor.has(0)
    overflows = least < 0 and divisor.has(-1) and known.interval(a).has(least)
    if not by_zero and not overflows:
        return x
    lets: list[tuple[Any, Expr]] = []
    a, b = (_named(side, name, lets) for side, name in ((a, "dividend"), (b, "divisor")))
    zero = _number(0, x)
    is_zero = [tirx.EQ(b, zero)] if by_zero else []
    is_minus = [tirx.EQ(b, _number(-1, x))] if overflows else []
    divided = type(x)(a, tirx.Select(_any(is_zero + is_minus), _number(1, x), b))
    if isinstance(x, tirx.Div):
        for condition in is_minus:
            divided = tirx.Select(condition, _wrapping(tirx.Sub, zero, a), divided)
        for condition in is_zero:
            divided = tirx.Select(condition, zero, divided)
    return _with(lets, divided)


def shifted(x: Expr, a: Expr, by: Expr, left: bool, known: Known) -> Expr:
    """A shift of ``a``."""
    dtype = element_type(x)
    last = integer_limits(dtype)[1].bit_length() - (0 if dtype.startswith("int") else 1)
    if known.interval(by).within(0, last):
        return x
    make = tirx.shift_left if left else tirx.shift_right
    lets: list[tuple[Any, Expr]] = []
    by = _named(by, "bits", lets)
    zero, most = _number(0, by), _number(last, by)
    inside = tirx.And(tirx.GE(by, zero), tirx.LE(by, most))
    if not left and dtype.startswith("int"):
        return _with(lets, make(a, tirx.Select(inside, by, most)))
    moved = make(a, tirx.Select(inside, by, zero))
    return _with(lets, tirx.Select(inside, moved, _number(0, x)))


def is_conversion(x: Expr) -> bool:
    """Whether a ``Cast`` makes an integer of a floating point number."""
    return is_integer(element_type(x)) and element_type(x.value).startswith(("float", "bfloat"))


def converted(x: Expr, known: Known, saturating: bool) -> Expr:
    """A ``Cast``.

    Args:
        saturating: whether the CPU's own conversions give the nearest integer.
    """
    if not is_conversion(x):
        return x
    least, most = integer_limits(element_type(x))
    found = known.interval(x.value)
    # Where the fraction goes, what is less than one beyond is not beyond.
    if not found.nan and least - 1 < found.least and found.most < most + 1:
        return x
    if not saturating and element_type(x.value) in {"float32", "float64"}:
        return _saturated(x, found)
    name = "llvm.fptosi.sat" if least < 0 else "llvm.fptoui.sat"
    return tirx.call_llvm_pure_intrin(dtype_of(x), name, x.value)


def _saturated(x: Expr, found: Interval) -> Expr:
    """A conversion between choices: what LLVM makes of its own that saturates takes x86 ten times as long."""
    least, most = integer_limits(element_type(x))
    lets: list[tuple[Any, Expr]] = []
    value = _named(x.value, "number", lets)

    def number(n: float) -> Expr:
        return _number(n, value)

    # The second operand where the first one is NaN.
    made = tirx.Cast(dtype_of(x), tirx.Max(value, number(least)))
    made = tirx.Select(tirx.LT(value, number(most + 1)), made, _number(most, x))
    return _with(lets, tirx.Select(tirx.EQ(value, value), made, _number(0, x)) if found.nan else made)


def unequal(x: Expr) -> Expr:
    """``NE``: TVM has LLVM compare floating point numbers so that NaN is not unequal to anything."""
    return tirx.Not(tirx.EQ(x.a, x.b)) if element_type(x.a).startswith(("float", "bfloat")) else x


def wrapped(x: Expr, known: Known) -> Expr:
    """``Add``, ``Sub`` and ``Mul`` of integers, of which TVM tells LLVM that their results fit.

    Positions do. What the data decide is computed with twice the bits, of which LLVM computes the lower half.
    """
    dtype = dtype_of(x)
    if not dtype.startswith(("int32", "int64", "uint32", "uint64")):
        return x  # of shorter ones it is not told so
    if ("x" not in dtype and not known.is_data(x)) or known.fits(x):
        return x
    return _wrapping(type(x), x.a, x.b)


def _wrapping(make: Callable[..., Expr], a: Expr, b: Expr) -> Expr:
    dtype = dtype_of(a)
    element, cross, lanes = dtype.partition("x")
    kind = element.rstrip("0123456789")
    bits = int(element.removeprefix(kind))
    if bits < 32:
        return make(a, b)
    wide = f"{kind}{2 * bits}{cross}{lanes}"
    # The difference of two unsigned numbers is negative, which no unsigned number of any width is.
    if kind == "uint" and make is tirx.Sub:
        wide = wide.removeprefix("u")
    return tirx.Cast(dtype, make(tirx.Cast(wide, a), tirx.Cast(wide, b)))


def _any(conditions: list[Expr]) -> Expr:
    return conditions[0] if len(conditions) == 1 else tirx.Or(*conditions)


def _named(x: Expr, name: str, lets: list[tuple[Any, Expr]]) -> Expr:
    """What stands for an expression that is written more than once: itself if it is short."""
    short = x
    while type(short) in {tirx.Broadcast, tirx.Cast}:
        short = short.value
    if type(short) in {tirx.Var, tirx.IntImm, TensorLoad}:
        return x
    lets.append((tirx.Var(name, x.ty), x))
    return lets[-1][0]


def _with(lets: list[tuple[Any, Expr]], body: Expr) -> Expr:
    for variable, value in reversed(lets):
        body = tirx.Let(variable, value, body)
    return body


def _number(value: float, like: Expr) -> Expr:
    """A number of an expression's type, in each of its lanes."""
    element, cross, lanes = dtype_of(like).partition("x")
    number = tirx.const(value, element)
    return tirx.Broadcast(number, int(lanes)) if cross else number

"""Powers of float32 vectors as TIR expressions."""

from __future__ import annotations

from math import inf, nan
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_math import elementary

__all__ = ["power"]

Expr = Any


def power(e: Emitter, x: Expr, y: Expr, lanes: int, exponent: float | None = None) -> Expr:
    """x**y with C's rules for 0, 1, infinities and negative bases.

    Multiples of 1/4 from -4 to 4 that are known when compiling are products, quotients and square roots,
    within 5 ulp. Otherwise e**(y ln |x|) in float32, whose relative error grows with the exponent of the
    result: at most 1.5e-7 * (2 + |y ln x|).

    Args:
        exponent: ``y`` where it is constant.
    """
    one, zero = e.f32(1, lanes), e.f32(0, lanes)
    if exponent is not None and abs(exponent) <= 4 and exponent * 4 == int(exponent * 4):
        return _quarters(e, x, int(exponent * 4), lanes)
    if e.strict_math:
        return _strict_power(e, x, y, lanes)
    a = elementary(e, "tirx.fabs", x, lanes)
    r = elementary(e, "tirx.exp", e.let(y * elementary(e, "tirx.log", a, lanes)), lanes)
    if exponent is not None:
        if exponent != int(exponent):
            ordinary = tirx.And(x < zero, x > e.f32(-inf, lanes))
            return e.let(tirx.Select(ordinary, e.f32(nan, lanes), r))
        negative = r if exponent % 2 == 0 else e.let(zero - r)
        return e.let(tirx.Select(x < zero, negative, r))
    r = e.let(tirx.Select(tirx.EQ(a, one), one, r))  # also to infinity
    whole = tirx.EQ(elementary(e, "tirx.trunc", y, lanes), y)
    half = e.let(y * e.f32(0.5, lanes))
    even = tirx.EQ(elementary(e, "tirx.trunc", half, lanes), half)
    signed = e.let(tirx.Select(whole, e.let(tirx.Select(even, r, zero - r)), e.f32(nan, lanes)))
    infinite = tirx.And(tirx.Not(whole), tirx.EQ(a, e.f32(inf, lanes)))  # to a fraction: no sign
    r = e.let(tirx.Select(tirx.And(x < zero, tirx.Not(infinite)), signed, r))
    r = e.let(tirx.Select(tirx.EQ(y, zero), one, r))
    return e.let(tirx.Select(tirx.EQ(y, one), x, r))


def _quarters(e: Emitter, x: Expr, quarters: int, lanes: int) -> Expr:
    """x**(quarters / 4) from squares and square roots.

    The reciprocal comes last for exponents above -1, where x**-1 could overflow before the result does, and
    first for others, where x**4 could underflow.
    """
    if quarters <= -4:
        x = e.let(e.f32(1, lanes) / x)
    if quarters % 4:  # roots have no sign of zero, and there is one of -inf
        x = e.let(tirx.Select(tirx.EQ(x, x + x), elementary(e, "tirx.fabs", x, lanes), x))
    whole, fraction = divmod(abs(quarters), 4)
    factors = []
    square, bits = x, whole
    while bits:
        if bits & 1:
            factors.append(square)
        bits >>= 1
        if bits:
            square = e.let(square * square)
    if fraction:
        root = elementary(e, "tirx.sqrt", x, lanes)
        factors += [root] if fraction & 2 else []
        factors += [elementary(e, "tirx.sqrt", root, lanes)] if fraction & 1 else []
    value = factors[0] if factors else e.f32(1, lanes)
    for factor in factors[1:]:
        value = e.let(value * factor)
    return e.let(e.f32(1, lanes) / value) if -4 < quarters < 0 else value


def _strict_power(e: Emitter, x: Expr, y: Expr, lanes: int) -> Expr:
    bases, exponents = (e.local(lanes, "float32") for _ in range(2))
    e.vstore(bases, 0, x, lanes)
    e.vstore(exponents, 0, y, lanes)
    for i in range(lanes):
        one = tirx.call_pure_extern("float32", "powf", e.load(bases, i), e.load(exponents, i))
        e.vstore(bases, i, one, 1)
    return e.let(e.vload(bases, 0, lanes))

"""Sine, cosine and tangent of float32 vectors as TIR expressions.

Source: the Cephes library's sinf, cosf and tanf (S. Moshier).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import (
    bits_of,
    float32_of,
    i32,
    int32_of,
    largest,
    polynomial,
)

__all__ = ["cos", "sin", "tan"]

Expr = Any

#: The bits of 8192: from there on what is left after :data:`HALF_PI` is not exact enough, and libm is called.
LARGE_BITS = 0x46000000

#: Half of pi in three parts: products of the first two by a whole number up to 2**13 are exact.
HALF_PI = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)

#: Polynomials in the square of the angle, the highest power first.
SINE = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COSINE = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
TANGENT = (
    *(9.38540185543e-3, 3.11992232697e-3, 2.44301354525e-2),
    *(5.34112807005e-2, 1.33387994085e-1, 3.33331568548e-1),
)


def sin(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Sine, within 1.2e-7 of it; NaN for infinities."""
    return _quarters(e, x, lanes, 0, "sinf")


def cos(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Cosine, within 1.2e-7 of it; NaN for infinities."""
    return _quarters(e, x, lanes, 1, "cosf")


def tan(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Tangent, within 4 ulp and 1.2e-7 (1 + tan(x)**2) of it; NaN for infinities."""

    def quotient(r: Expr, q: Expr) -> Expr:
        z = e.let(r * r)
        p = polynomial(e, z, TANGENT, lanes)
        y = e.let(p * z * r + r)
        return tirx.Select(_odd(e, q, lanes), e.f32(-1, lanes) / y, y)

    return _reduced(e, x, lanes, "tanf", quotient)


def _quarters(e: Emitter, x: Expr, lanes: int, ahead: int, function: str) -> Expr:
    """The sine of ``x``, so many quarters of a turn ahead."""

    def turned(r: Expr, q: Expr) -> Expr:
        q = e.let(q + i32(e, ahead, lanes))
        z = e.let(r * r)
        s = polynomial(e, z, SINE, lanes)
        s = e.let(r * e.let(s * z + e.f32(1, lanes)))
        c = polynomial(e, z, COSINE, lanes)
        c = e.let(e.let(c * z) * z + e.let(e.f32(1, lanes) - z * e.f32(0.5, lanes)))
        value = bits_of(e, e.let(tirx.Select(_odd(e, q, lanes), c, s)), lanes)
        sign = tirx.shift_left(tirx.bitwise_and(q, i32(e, 2, lanes)), i32(e, 30, lanes))
        return tirx.reinterpret(float32_of(lanes), tirx.bitwise_xor(value, sign))

    return _reduced(e, x, lanes, function, turned)


def _odd(e: Emitter, q: Expr, lanes: int) -> Expr:
    return tirx.EQ(tirx.bitwise_and(q, i32(e, 1, lanes)), i32(e, 1, lanes))


def _reduced(e: Emitter, x: Expr, lanes: int, function: str, value: Callable[[Expr, Expr], Expr]) -> Expr:
    """``value(r, q)`` of x = r + q pi / 2, |r| <= pi / 4; libm's function where an angle is large."""
    x = e.let(x)
    magic = e.f32(12582912.0, lanes)  # 1.5 * 2**23 rounds
    shifted = e.let(x * e.f32(0.636619772, lanes) + magic)
    quarters = e.let(shifted - magic)
    r = x
    for part in HALF_PI:
        r = e.let(r - quarters * e.f32(part, lanes))
    result = e.local(lanes, "float32")
    e.vstore(result, 0, value(r, bits_of(e, shifted, lanes)), lanes)
    bits = tirx.bitwise_and(tirx.reinterpret(int32_of(lanes), x), i32(e, 0x7FFFFFFF, lanes))
    e.branch(
        largest(e, e.let(bits), lanes) >= IntImm("int32", LARGE_BITS), _libm(e, x, result, lanes, function)
    )
    return e.let(e.vload(result, 0, lanes))


def _libm(e: Emitter, x: Expr, result: Any, lanes: int, function: str) -> Callable[[], None]:
    def emit() -> None:
        elements = e.local(lanes, "float32")
        e.vstore(elements, 0, x, lanes)
        for i in range(lanes):
            e.vstore(result, i, tirx.call_pure_extern("float32", function, e.load(elements, i)), 1)

    return emit

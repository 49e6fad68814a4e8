"""The logarithm of float32 vectors as a TIR expression, and what it is the greater part of: the inverse
hyperbolic functions.

Source: the Cephes library's logf, asinhf, acoshf and atanhf (S. Moshier).
"""

from __future__ import annotations

from math import log as natural
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import (
    absolute,
    bits_of,
    float32_of,
    i32,
    polynomial,
    through_register,
    with_sign_of,
)

__all__ = ["acosh", "asinh", "atanh", "log"]

Expr = Any

#: From here on sqrt(x**2 + 1) is x.
FAR = 1e4


def log(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Natural logarithm: x = m 2**k with m in [sqrt(1/2), sqrt(2)), k ln 2 + (m - 1) - (m - 1)**2 / 2 + ...

    Error at most 2 ulp; -inf for 0, NaN for negative numbers, denormal numbers are scaled up first.
    """
    smallest, scale = 1.17549435e-38, 2.0**23
    tiny = x < e.f32(smallest, lanes)
    scaled = e.let(tirx.Select(tiny, x * e.f32(scale, lanes), x))
    bits = bits_of(e, scaled, lanes)
    # Subtracting sqrt(1/2)'s bits makes the exponent field that of m in [sqrt(1/2), sqrt(2)).
    shifted = e.let(bits - i32(e, 0x3F3504F3, lanes))
    k = e.let(tirx.shift_right(shifted, i32(e, 23, lanes)))
    mantissa = e.let(bits - tirx.shift_left(k, i32(e, 23, lanes)))
    m = e.let(tirx.reinterpret(float32_of(lanes), mantissa) - e.f32(1, lanes))
    power = e.let(tirx.Cast(float32_of(lanes), k) - tirx.Select(tiny, e.f32(23, lanes), e.f32(0, lanes)))
    z = e.let(m * m)
    p = polynomial(
        e,
        m,
        (
            7.0376836292e-2,
            -1.1514610310e-1,
            1.1676998740e-1,
            -1.2420140846e-1,
            1.4249322787e-1,
            -1.6668057665e-1,
            2.0000714765e-1,
            -2.4999993993e-1,
            3.3333331174e-1,
        ),
        lanes,
    )
    y = e.let(p * m * z + power * e.f32(-2.12194440e-4, lanes))
    y = e.let(y - z * e.f32(0.5, lanes))
    y = e.let(m + y + power * e.f32(0.693359375, lanes))
    y = e.let(tirx.Select(x < e.f32(float("inf"), lanes), y, x))  # inf and NaN
    y = e.let(tirx.Select(x < e.f32(0, lanes), e.f32(float("nan"), lanes), y))
    return through_register(
        e, tirx.Select(tirx.EQ(x, e.f32(0, lanes)), e.f32(float("-inf"), lanes), y), lanes
    )


def asinh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """x + x**3 P(x**2) for |x| < 1/2, else log(|x| + sqrt(x**2 + 1)) with x's sign. Error at most 5 ulp."""
    a = absolute(e, x, lanes)
    z = e.let(x * x)
    large = _log_of_sum(e, a, e.let(z + e.f32(1, lanes)), lanes)
    coefficients = (2.0122003309e-2, -4.2699340972e-2, 7.4847586088e-2, -1.6666288134e-1)
    small = e.let(polynomial(e, z, coefficients, lanes) * z * a + a)
    magnitude = through_register(e, tirx.Select(a < e.f32(0.5, lanes), small, large), lanes)
    return with_sign_of(e, magnitude, x, lanes)


def acosh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """sqrt(z) P(z), z = x - 1, for z < 1/2, else log(x + sqrt(x**2 - 1)). Within 5 ulp; NaN below 1."""
    z = e.let(x - e.f32(1, lanes))
    large = _log_of_sum(e, x, e.let(z * e.let(x + e.f32(1, lanes))), lanes)
    coefficients = (1.7596881071e-3, -7.5272886713e-3, 2.6454905019e-2, -1.1784741703e-1, 1.4142135263)
    small = e.let(polynomial(e, z, coefficients, lanes) * _root(e, z, lanes))
    return through_register(e, tirx.Select(z < e.f32(0.5, lanes), small, large), lanes)


def atanh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """x + x**3 P(x**2) for |x| < 1/2, else half of log((1 + |x|) / (1 - |x|)) with x's sign. Error at most 5
    ulp; infinite at 1, NaN beyond."""
    a, one = absolute(e, x, lanes), e.f32(1, lanes)
    large = e.let(log(e, e.let(e.let(one + a) / e.let(one - a)), lanes) * e.f32(0.5, lanes))
    z = e.let(x * x)
    coefficients = (
        1.81740078349e-1,
        8.24370301058e-2,
        1.46691431730e-1,
        1.99782164500e-1,
        3.33337300303e-1,
    )
    small = e.let(polynomial(e, z, coefficients, lanes) * z * a + a)
    magnitude = through_register(e, tirx.Select(a < e.f32(0.5, lanes), small, large), lanes)
    return with_sign_of(e, magnitude, x, lanes)


def _log_of_sum(e: Emitter, x: Expr, square: Expr, lanes: int) -> Expr:
    """log(x + sqrt(square)), of a square that is nearly that of x and may overflow where x is large."""
    far = x > e.f32(FAR, lanes)
    total = through_register(e, tirx.Select(far, x, x + _root(e, square, lanes)), lanes)
    return e.let(log(e, total, lanes) + tirx.Select(far, e.f32(natural(2), lanes), e.f32(0, lanes)))


def _root(e: Emitter, x: Expr, lanes: int) -> Expr:
    return e.let(tirx.call_llvm_pure_intrin(float32_of(lanes), "llvm.sqrt", x))

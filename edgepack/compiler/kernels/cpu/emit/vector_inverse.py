"""Inverse trigonometric functions of float32 vectors as TIR expressions.

Source: the Cephes library's asinf, acosf and atanf (S. Moshier).
"""

from __future__ import annotations

from math import pi
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import (
    absolute,
    float32_of,
    polynomial,
    through_register,
    with_sign_of,
)

__all__ = ["acos", "asin", "atan"]

Expr = Any

#: Tangents of pi / 8 and 3 pi / 8.
EIGHTH, THREE_EIGHTHS = 0.4142135623730950, 2.414213562373095


def asin(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Within 4 ulp; NaN outside of [-1, 1]."""
    large, p = _arc(e, x, lanes)
    turned = e.f32(pi / 2, lanes) - e.let(p + p)
    return with_sign_of(e, through_register(e, tirx.Select(large, turned, p), lanes), x, lanes)


def acos(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Within 4 ulp where it is more than 0.1, else 2e-7; NaN outside of [-1, 1]."""
    large, p = _arc(e, x, lanes)
    twice = e.let(p + p)
    far = e.let(tirx.Select(x < e.f32(0, lanes), e.f32(pi, lanes) - twice, twice))
    signed = with_sign_of(e, p, x, lanes)
    return through_register(e, tirx.Select(large, far, e.f32(pi / 2, lanes) - signed), lanes)


def _arc(e: Emitter, x: Expr, lanes: int) -> tuple[Expr, Expr]:
    """Whether |x| > 1/2, and there half of its arc cosine, elsewhere the arc sine of |x|."""
    a = absolute(e, x, lanes)
    large = a > e.f32(0.5, lanes)
    half = e.let(e.f32(0.5, lanes) - a * e.f32(0.5, lanes))
    z = through_register(e, tirx.Select(large, half, a * a), lanes)
    root = e.let(tirx.call_llvm_pure_intrin(float32_of(lanes), "llvm.sqrt", z))
    w = e.let(tirx.Select(large, root, a))
    coefficients = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
    return large, through_register(e, polynomial(e, z, coefficients, lanes) * z * w + w, lanes)


def atan(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Within 3 ulp: of |x| above the tangent of 3 pi / 8 or pi / 8 that of -1 / |x| or (|x| - 1) / (|x| + 1),
    and a half or a quarter of pi."""
    a = absolute(e, x, lanes)
    one = e.f32(1, lanes)
    far, near = a > e.f32(THREE_EIGHTHS, lanes), a < e.f32(EIGHTH, lanes)
    above = e.let(tirx.Select(far, e.f32(-1, lanes), tirx.Select(near, a, a - one)))
    below = e.let(tirx.Select(far, a, tirx.Select(near, one, a + one)))
    r = through_register(e, above / below, lanes)
    start = tirx.Select(far, e.f32(pi / 2, lanes), tirx.Select(near, e.f32(0, lanes), e.f32(pi / 4, lanes)))
    z = e.let(r * r)
    coefficients = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
    y = e.let(polynomial(e, z, coefficients, lanes) * z * r + r)
    return with_sign_of(e, through_register(e, e.let(start) + y, lanes), x, lanes)

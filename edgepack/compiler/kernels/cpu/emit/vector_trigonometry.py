"""Sine and cosine of float32 vectors as TIR expressions.

Source: the Cephes library's sinf and cosf (S. Moshier).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter

__all__ = ["cos", "sin"]

Expr = Any

#: The bits of 8192: from there on what is left after :data:`HALF_PI` is not exact enough, and libm is called.
LARGE_BITS = 0x46000000

#: Half of pi in three parts: products of the first two by a whole number up to 2**13 are exact.
HALF_PI = (1.5703125, 4.837512969970703125e-4, 7.54978995489188216e-8)


def sin(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Sine, within 1.2e-7 of it; NaN for infinities."""
    return _quarters(e, x, lanes, 0, "sinf")


def cos(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Cosine, within 1.2e-7 of it; NaN for infinities."""
    return _quarters(e, x, lanes, 1, "cosf")


def _quarters(e: Emitter, x: Expr, lanes: int, ahead: int, function: str) -> Expr:
    """The sine of ``x``, so many quarters of a turn ahead: x = r + q pi / 2, |r| <= pi / 4, and a polynomial
    for the sine or the cosine of r."""

    def whole(value: int) -> Expr:
        return e.splat(IntImm("int32", value), lanes)

    x = e.let(x)
    magic = e.f32(12582912.0, lanes)  # 1.5 * 2**23 rounds
    shifted = e.let(x * e.f32(0.636619772, lanes) + magic)
    quarters = e.let(shifted - magic)
    r = x
    for part in HALF_PI:
        r = e.let(r - quarters * e.f32(part, lanes))
    z = e.let(r * r)
    s = e.let(e.f32(-1.9515295891e-4, lanes) * z + e.f32(8.3321608736e-3, lanes))
    s = e.let(s * z + e.f32(-1.6666654611e-1, lanes))
    s = e.let(r * e.let(s * z + e.f32(1, lanes)))
    c = e.let(e.f32(2.443315711809948e-5, lanes) * z + e.f32(-1.388731625493765e-3, lanes))
    c = e.let(c * z + e.f32(4.166664568298827e-2, lanes))
    c = e.let(e.let(c * z) * z + e.let(e.f32(1, lanes) - z * e.f32(0.5, lanes)))
    q = e.let(tirx.reinterpret(_vector("int32", lanes), shifted) + whole(ahead))
    odd = tirx.EQ(tirx.bitwise_and(q, whole(1)), whole(1))
    value = e.let(tirx.reinterpret(_vector("int32", lanes), e.let(tirx.Select(odd, c, s))))
    sign = tirx.shift_left(tirx.bitwise_and(q, whole(2)), whole(30))
    result = e.local(lanes)
    e.vstore(result, 0, tirx.reinterpret(_vector("float32", lanes), tirx.bitwise_xor(value, sign)), lanes)
    bits = tirx.bitwise_and(tirx.reinterpret(_vector("int32", lanes), x), whole(0x7FFFFFFF))
    e.branch(
        _largest(e, e.let(bits), lanes) >= IntImm("int32", LARGE_BITS), _libm(e, x, result, lanes, function)
    )
    return e.let(e.vload(result, 0, lanes))


def _libm(e: Emitter, x: Expr, result: Any, lanes: int, function: str) -> Callable[[], None]:
    def emit() -> None:
        elements = e.local(lanes)
        e.vstore(elements, 0, x, lanes)
        for i in range(lanes):
            e.vstore(result, i, tirx.call_pure_extern("float32", function, e.load(elements, i)), 1)

    return emit


def _largest(e: Emitter, x: Expr, lanes: int) -> Expr:
    """The largest of the lanes, int32 that are not negative."""
    if lanes == 1:
        return x
    return e.let(tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.umax", x))


def _vector(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"

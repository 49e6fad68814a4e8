"""Elementary functions on float32 vectors as TIR expressions: polynomials instead of a libm call per lane.

Sources: the Cephes library's single precision functions (expf, tanhf, erff; S. Moshier) and, for erf of |x|
>= 1, Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26 (absolute error 1.5e-7).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.kernels.emit import Emitter

__all__ = ["UNARY"]

Expr = Any


def _int32(lanes: int) -> str:
    return "int32" if lanes == 1 else f"int32x{lanes}"


def _float32(lanes: int) -> str:
    return "float32" if lanes == 1 else f"float32x{lanes}"


def _i32(e: Emitter, value: int, lanes: int) -> Expr:
    return e.splat(IntImm("int32", value), lanes)


def _polynomial(e: Emitter, x: Expr, coefficients: tuple[float, ...], lanes: int) -> Expr:
    """Horner's scheme, the highest power's coefficient first."""
    value = e.f32(coefficients[0], lanes)
    for c in coefficients[1:]:
        value = e.let(value * x + e.f32(c, lanes))
    return value


def exp(e: Emitter, x: Expr, lanes: int) -> Expr:
    """e**x, clamped to the range of normal numbers: 2**k * p(r) with r = x - k ln 2, |r| <= ln 2 / 2."""
    x = e.let(tirx.max(tirx.min(x, e.f32(88.3762626647949, lanes)), e.f32(-87.3365, lanes)))
    shifted = e.let(x * e.f32(1.44269504088896341, lanes) + e.f32(12582912.0, lanes))  # 1.5 * 2**23 rounds
    k = e.let(shifted - e.f32(12582912.0, lanes))
    r = e.let(x - k * e.f32(0.693359375, lanes))
    r = e.let(r - k * e.f32(-2.12194440e-4, lanes))
    p = _polynomial(
        e,
        r,
        (
            1.9875691500e-4,
            1.3981999507e-3,
            8.3334519073e-3,
            4.1665795894e-2,
            1.6666665459e-1,
            5.0000001201e-1,
        ),
        lanes,
    )
    y = e.let(p * (r * r) + (r + e.f32(1, lanes)))
    exponent = tirx.shift_left(tirx.reinterpret(_int32(lanes), shifted), _i32(e, 23, lanes))
    bits = tirx.reinterpret(_int32(lanes), y) + exponent
    return e.let(tirx.reinterpret(_float32(lanes), bits))


def sigmoid(e: Emitter, x: Expr, lanes: int) -> Expr:
    one = e.f32(1, lanes)
    return e.let(one / (one + exp(e, e.let(e.f32(0, lanes) - x), lanes)))


def _absolute(e: Emitter, x: Expr, lanes: int) -> Expr:
    bits = tirx.bitwise_and(tirx.reinterpret(_int32(lanes), x), _i32(e, 0x7FFFFFFF, lanes))
    return e.let(tirx.reinterpret(_float32(lanes), bits))


def _with_sign_of(e: Emitter, magnitude: Expr, x: Expr, lanes: int) -> Expr:
    sign = tirx.bitwise_and(tirx.reinterpret(_int32(lanes), x), _i32(e, -0x80000000, lanes))
    bits = tirx.bitwise_or(tirx.reinterpret(_int32(lanes), magnitude), sign)
    return e.let(tirx.reinterpret(_float32(lanes), bits))


def tanh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """x + x**3 P(x**2) for |x| < 0.625, else 1 - 2 / (e**2|x| + 1) with x's sign."""
    a = _absolute(e, x, lanes)
    large = e.let(e.f32(1, lanes) - e.f32(2, lanes) / (exp(e, e.let(a + a), lanes) + e.f32(1, lanes)))
    z = e.let(x * x)
    p = _polynomial(
        e,
        z,
        (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1),
        lanes,
    )
    small = e.let(p * z * x + x)
    return e.let(tirx.Select(a < e.f32(0.625, lanes), small, _with_sign_of(e, large, x, lanes)))


def erf(e: Emitter, x: Expr, lanes: int) -> Expr:
    """x P(x**2) for |x| < 1 (Cephes), else 1 - t Q(t) e**(-x**2) with x's sign (A&S 7.1.26)."""
    a = _absolute(e, x, lanes)
    z = e.let(x * x)
    p = _polynomial(
        e,
        z,
        (
            7.853861353153693e-5,
            -8.010193625184903e-4,
            5.188327685732524e-3,
            -2.685381193529856e-2,
            1.128358514861418e-1,
            -3.761262582423300e-1,
            1.128379165726710e0,
        ),
        lanes,
    )
    t = e.let(e.f32(1, lanes) / (e.f32(1, lanes) + a * e.f32(0.3275911, lanes)))
    q = _polynomial(e, t, (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592), lanes)
    large = e.let(e.f32(1, lanes) - q * t * exp(e, e.let(e.f32(0, lanes) - a * a), lanes))
    return e.let(tirx.Select(a < e.f32(1, lanes), p * x, _with_sign_of(e, large, x, lanes)))


def _intrinsic(name: str) -> Callable[[Emitter, Expr, int], Expr]:
    def call(e: Emitter, x: Expr, lanes: int) -> Expr:
        return e.let(tirx.call_llvm_pure_intrin(_float32(lanes), name, x))

    return call


def _rsqrt(e: Emitter, x: Expr, lanes: int) -> Expr:
    return e.let(e.f32(1, lanes) / UNARY["tirx.sqrt"](e, x, lanes))


#: TIR intrinsic name -> function of (emitter, float32 vector of ``lanes`` lanes, lanes).
UNARY: dict[str, Callable[[Emitter, Expr, int], Expr]] = {
    "tirx.exp": exp,
    "tirx.sigmoid": sigmoid,
    "tirx.tanh": tanh,
    "tirx.erf": erf,
    "tirx.fabs": _absolute,
    "tirx.sqrt": _intrinsic("llvm.sqrt"),
    "tirx.rsqrt": _rsqrt,
}

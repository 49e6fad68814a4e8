"""Elementary functions on float32 vectors as TIR expressions: polynomials instead of a libm call per lane.

Each states its largest error; tests/compiler/kernels/test_vector_math.py measures it against float64.

Source of what does not say that it was fitted: the Cephes library's single precision functions (sinhf; S.
Moshier).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_inverse import acos, asin, atan
from edgepack.compiler.kernels.cpu.emit.vector_logarithm import acosh, asinh, atanh, log
from edgepack.compiler.kernels.cpu.emit.vector_parts import (
    LOG2_E,
    absolute,
    float32_of,
    i32,
    int32_of,
    polynomial,
    scalar_of,
    through_register,
    two_polynomials,
    with_sign_of,
)
from edgepack.compiler.kernels.cpu.emit.vector_trigonometry import cos, sin, tan
from edgepack.compiler.tvm_target import has_feature
from edgepack.plan.target import CpuTarget

__all__ = ["LOG2_E", "UNARY", "elementary", "exp_below", "is_nan", "maximum", "minimum"]

Expr = Any

#: 1.5 * 2**23: a float32 that it is added to is rounded to a whole number.
ROUNDING = 12582912.0


def exp(e: Emitter, x: Expr, lanes: int) -> Expr:
    """e**x: 2**k * p(r) with r = x - k ln 2, |r| <= ln 2 / 2.

    Error at most 2 ulp. Infinite above 88.73 and for inf; results below 2.4e-38 (x < -86.98) are 0; NaN stays
    NaN.
    """
    return _power_of_e(e, x, lanes, 1)


def _power_of_e(e: Emitter, x: Expr, lanes: int, sign: int) -> Expr:
    """e**x, or e**-x where ``sign`` is -1.

    p was fitted to e**r with the least largest relative error, 3.1e-9.
    """
    end, instruction = e.f32(89.0 * sign, lanes), lanes == 16 and _scales_floats(e.target)
    # Clamps take NaN from their second operand.
    x = e.let(tirx.Min(end, x) if sign > 0 else tirx.Max(end, x))
    if not instruction:
        # The clamp makes the scale's exponent field 0, which is the value 0.
        least = e.f32(-87.6 * sign, lanes)
        x = e.let(tirx.Max(least, x) if sign > 0 else tirx.Min(least, x))
    shifted = e.let(x * e.f32(LOG2_E * sign, lanes) + e.f32(ROUNDING, lanes))
    k = e.let(shifted - e.f32(ROUNDING, lanes))
    high = k * e.f32(0.693359375, lanes)
    r = e.let(x - high if sign > 0 else e.let(e.f32(0, lanes) - x) - high)
    r = e.let(r - k * e.f32(-2.12194440e-4, lanes))
    coefficients = (1.381949e-3, 8.3686905e-3, 4.166828e-2, 1.6666521e-1, 4.9999994e-1, 1.0, 1.0)
    if instruction:
        return through_register(e, _scaled(e, x, polynomial(e, r, coefficients, lanes), k, sign), lanes)
    # Twice the polynomial times 2**(k - 1): neither overflows before the result does.
    p = polynomial(e, r, tuple(2 * c for c in coefficients), lanes)
    exponent = tirx.shift_left(tirx.reinterpret(int32_of(lanes), shifted), i32(e, 23, lanes))
    scale = tirx.reinterpret(float32_of(lanes), exponent + i32(e, 126 << 23, lanes))
    return through_register(e, p * scale, lanes)


def _scales_floats(target: CpuTarget | None) -> bool:
    """Whether one instruction multiplies 16 numbers by powers of two (AVX-512's VSCALEFPS)."""
    return target is not None and has_feature(target, "avx512f")


def _scaled(e: Emitter, x: Expr, p: Expr, k: Expr, sign: int) -> Expr:
    """p 2**k of 16 lanes by one instruction; 0 where it would be below 2.4e-38.

    A vector with a result below 1.2e-38 takes a Sapphire Rapids 70 ns in place of 2. LLVM makes the choice
    the instruction's mask, so there is none.
    """
    everywhere, rounding = tirx.const(-1, "int16"), tirx.const(4, "int32")
    name = "llvm.x86.avx512.mask.scalef.ps.512"
    scaled = e.let(tirx.call_llvm_pure_intrin("float32x16", name, p, k, p, everywhere, rounding))
    end = e.f32(-86.98 * sign, 16)
    return tirx.Select(x < end if sign > 0 else x > end, e.f32(0, 16), scaled)


def _multiply_add(e: Emitter, a: Expr, b: Expr, c: Expr, lanes: int) -> Expr:
    """a b + c, fused where that is one instruction, also where LLVM would keep a b for another use."""
    return e.let(tirx.call_llvm_pure_intrin(float32_of(lanes), "llvm.fmuladd", a, b, c))


def exp_below(e: Emitter, x: Expr, top: Expr, lanes: int) -> Expr:
    """A weight of a softmax: e**(x - top), ``top`` the largest score.

    2**t, t = (x - top) log2 e, at most 0: a relative error of 8e-8 + 1e-7 |t|. Below 2**-125 it is that; NaN
    stays NaN. Less to do than for :func:`exp`: nothing overflows, and the exponent is added to the
    polynomial's bits. The difference is exact where it counts, so scores may be of any size, a row of the
    least numbers (where all is masked) among them.
    """
    below = e.let(tirx.Max(e.f32(-125 / LOG2_E, lanes), e.let(x - top)))
    shifted, r = _whole_and_rest(e, below, LOG2_E, lanes)
    p = polynomial(
        e,
        r,
        (1.5345811e-4, 1.3399931e-3, 9.6184891e-3, 5.5503286e-2, 2.4022646e-1, 6.9314718e-1, 1.0),
        lanes,
    )
    exponent = tirx.shift_left(tirx.reinterpret(int32_of(lanes), shifted), i32(e, 23, lanes))
    bits = tirx.reinterpret(int32_of(lanes), p) + exponent
    return e.let(tirx.reinterpret(float32_of(lanes), bits))


def _whole_and_rest(e: Emitter, x: Expr, factor: float, lanes: int) -> tuple[Expr, Expr]:
    """t = x factor as k + r, |r| <= 1/2: k plus 1.5 * 2**23, whose lowest bits are k, and r."""
    scale = e.f32(factor, lanes)
    shifted = _multiply_add(e, x, scale, e.f32(ROUNDING, lanes), lanes)
    return shifted, _multiply_add(e, x, scale, e.let(e.f32(ROUNDING, lanes) - shifted), lanes)


def _intrinsic(name: str) -> Callable[[Emitter, Expr, int], Expr]:
    def call(e: Emitter, x: Expr, lanes: int) -> Expr:
        return e.let(tirx.call_llvm_pure_intrin(float32_of(lanes), name, x))

    return call


_sqrt = _intrinsic("llvm.sqrt")


def _rsqrt(e: Emitter, x: Expr, lanes: int) -> Expr:
    return e.let(e.f32(1, lanes) / _sqrt(e, x, lanes))


def _libm(function: str) -> Callable[[Emitter, Expr, int], Expr]:
    """libm's function for each lane."""

    def call(e: Emitter, x: Expr, lanes: int) -> Expr:
        elements = e.local(lanes, "float32")
        e.vstore(elements, 0, x, lanes)
        for i in range(lanes):
            e.vstore(elements, i, tirx.call_pure_extern("float32", function, e.load(elements, i)), 1)
        return e.let(e.vload(elements, 0, lanes))

    return call


def _strict_sigmoid(e: Emitter, x: Expr, lanes: int) -> Expr:
    one = e.f32(1, lanes)
    return e.let(one / (one + STRICT["tirx.exp"](e, e.let(e.f32(0, lanes) - x), lanes)))


def elementary(e: Emitter, name: str, x: Expr, lanes: int) -> Expr:
    """The TIR intrinsic ``name`` of a float32 vector: a polynomial, or libm's function in a strict kernel."""
    table = {**UNARY, **STRICT} if e.strict_math else UNARY
    return table[name](e, x, lanes)


#: With strict math, in place of the polynomials.
STRICT: dict[str, Callable[[Emitter, Expr, int], Expr]] = {
    "tirx.exp": _libm("expf"),
    "tirx.sigmoid": _strict_sigmoid,
    "tirx.tanh": _libm("tanhf"),
    "tirx.erf": _libm("erff"),
    "tirx.log": _libm("logf"),
    "tirx.sin": _libm("sinf"),
    **{f"tirx.{name}": _libm(f"{name}f") for name in ("cos", "tan", "asin", "acos", "atan", "sinh", "cosh")},
    **{f"tirx.{name}": _libm(f"{name}f") for name in ("asinh", "acosh", "atanh")},
}


def truncate(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Towards zero, exact, without an instruction that SSE2 and ARMv7 lack; 2**23 and more are whole."""
    a = absolute(e, x, lanes)
    whole = tirx.Cast(float32_of(lanes), e.let(tirx.Cast(int32_of(lanes), x)))
    return e.let(tirx.Select(a < e.f32(2.0**23, lanes), with_sign_of(e, whole, x, lanes), x))


def floor(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Exact; floor(-0.0) is -0.0."""
    t = truncate(e, x, lanes)
    return e.let(tirx.Select(x < t, t - e.f32(1, lanes), t))


def ceil(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Exact; ceil(-0.5) is -0.0."""
    t = truncate(e, x, lanes)
    return e.let(tirx.Select(t < x, e.f32(1, lanes) + t, t))


def nearest(e: Emitter, x: Expr, lanes: int) -> Expr:
    """To the nearest whole number, halves to the even one (ONNX's Round, TIR's round); exact."""
    a = absolute(e, x, lanes)
    magic = e.f32(2.0**23, lanes)
    rounded = e.let(e.let(a + magic) - magic)
    return e.let(tirx.Select(a < magic, with_sign_of(e, rounded, x, lanes), x))


def maximum(e: Emitter, a: Expr, b: Expr) -> Expr:
    """The larger one, NaN if either is: TIR's Max alone forgets a NaN in its first operand."""
    return _propagating(e, tirx.Max, a, b)


def minimum(e: Emitter, a: Expr, b: Expr) -> Expr:
    """The smaller one, NaN if either is."""
    return _propagating(e, tirx.Min, a, b)


def _propagating(e: Emitter, smaller_or_larger: Any, a: Expr, b: Expr) -> Expr:
    if _is_number(b):
        a, b = b, a
    if _is_number(a):
        return e.let(smaller_or_larger(a, b))
    a, b = e.let(a), e.let(b)
    return e.let(tirx.Select(tirx.EQ(a, a), smaller_or_larger(a, b), a))


def _is_number(x: Expr) -> bool:
    scalar = scalar_of(x)
    return isinstance(scalar, tirx.FloatImm) and scalar.value == scalar.value


def sigmoid(e: Emitter, x: Expr, lanes: int) -> Expr:
    """1 / (1 + e**-x). Error at most 3 ulp."""
    one = e.f32(1, lanes)
    return e.let(one / (one + _power_of_e(e, x, lanes, -1)))


def is_nan(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Whether the value is not a number, by its bits: TVM compiles ``x != x`` to what is false for NaN."""
    if "float64" in str(x.ty):
        bits = tirx.reinterpret("int64" if lanes == 1 else f"int64x{lanes}", x)
        rest, infinite = (e.splat(tirx.IntImm("int64", n), lanes) for n in ((1 << 63) - 1, 0x7FF << 52))
        return tirx.GT(tirx.bitwise_and(bits, rest), infinite)
    magnitude = tirx.bitwise_and(tirx.reinterpret(int32_of(lanes), x), i32(e, 0x7FFFFFFF, lanes))
    return tirx.GT(magnitude, i32(e, 0x7F800000, lanes))


def tanh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """y / (y + 2) with x's sign, y = e**2|x| - 1. Error at most 4 ulp, never beyond 1.

    With 2|x| log2 e = k + r, |r| <= 1/2, y is 2**k (2**r - 1) + (2**k - 1), in which nothing cancels.
    (2**r - 1) / r is a polynomial that was fitted with the least largest relative error, 1.3e-8.
    """
    a = e.let(tirx.Min(e.f32(10, lanes), absolute(e, x, lanes)))
    shifted, r = _whole_and_rest(e, a, 2 * LOG2_E, lanes)
    coefficients = (1.5384577e-4, 1.3387421e-3, 9.618306e-3, 5.5503674e-2, 2.4022649e-1, 6.931472e-1)
    p = polynomial(e, r, coefficients, lanes)
    exponent = tirx.shift_left(tirx.reinterpret(int32_of(lanes), shifted), i32(e, 23, lanes))
    scale = e.let(tirx.reinterpret(float32_of(lanes), exponent + i32(e, 127 << 23, lanes)))
    y = e.let(e.let(p * r) * scale + e.let(scale - e.f32(1, lanes)))
    return with_sign_of(e, through_register(e, y / e.let(y + e.f32(2, lanes)), lanes), x, lanes)


def sinh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """x + x**3 P(x**2) for |x| < 1, else (e**|x| - e**-|x|) / 2 with x's sign. Error at most 6 ulp."""
    half = _half_power(e, x, lanes)
    large = e.let(half - e.f32(0.25, lanes) / half)
    z = e.let(x * x)
    p = polynomial(e, z, (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1), lanes)
    a = absolute(e, x, lanes)
    magnitude = through_register(e, tirx.Select(a < e.f32(1, lanes), e.let(p * z * a + a), large), lanes)
    return with_sign_of(e, magnitude, x, lanes)


def cosh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """(e**|x| + e**-|x|) / 2. Error at most 5 ulp."""
    half = _half_power(e, x, lanes)
    return e.let(half + e.f32(0.25, lanes) / half)


def _half_power(e: Emitter, x: Expr, lanes: int) -> Expr:
    """e**|x| / 2, as a product of two powers, which overflows no sooner than that."""
    root = exp(e, e.let(absolute(e, x, lanes) * e.f32(0.5, lanes)), lanes)
    return e.let(e.let(root * e.f32(0.5, lanes)) * root)


def erf(e: Emitter, x: Expr, lanes: int) -> Expr:
    """x P(t), t = 2 (x / 3.92)**2 - 1, of |x| <= 3.92; from there on it is one, exactly, for what a GELU
    multiplies by 1 - erf may be of any size.

    P was fitted to erf(x) / x with the least largest relative error, 2.2e-8 up to 3.84, and so that x P(t)
    goes beyond 1 where erf rounds to it, whatever the rounding of the steps. In t its coefficients are small,
    so nothing cancels. No division and no branch: 23 operations. Error at most 4 ulp; 6 on a CPU without
    fused multiply-add, where t and each step of the polynomial are rounded twice.
    """
    end = 3.92
    x = e.let(tirx.Max(e.f32(-end, lanes), e.let(tirx.Min(e.f32(end, lanes), x))))
    t = e.let(e.let(x * x) * e.f32(2 / end**2, lanes) - e.f32(1, lanes))
    p = two_polynomials(
        e,
        t,
        (
            -9.055522830101657e-4,
            2.080501695988291e-3,
            -1.175605336773566e-3,
            1.980359506619825e-3,
            -7.968546487769372e-3,
            1.4133080705266926e-2,
            -1.9776430623883515e-2,
            2.9745160644524836e-2,
            -4.351915689229329e-2,
            5.838115634045034e-2,
            -7.400407258777106e-2,
            9.059913173782849e-2,
            -1.091805386071176e-1,
            1.3408443967768902e-1,
            -1.8010859693712813e-1,
            3.607368123045218e-1,
        ),
        lanes,
    )
    y = e.let(tirx.Min(e.f32(1, lanes), e.let(p * x)))
    return through_register(e, tirx.Max(e.f32(-1, lanes), y), lanes)


#: TIR intrinsic name -> function of (emitter, float32 vector of ``lanes`` lanes, lanes).
UNARY: dict[str, Callable[[Emitter, Expr, int], Expr]] = {
    "tirx.exp": exp,
    "tirx.sigmoid": sigmoid,
    "tirx.tanh": tanh,
    "tirx.erf": erf,
    "tirx.fabs": absolute,
    "tirx.sqrt": _sqrt,
    "tirx.rsqrt": _rsqrt,
    "tirx.log": log,
    "tirx.sin": sin,
    "tirx.cos": cos,
    "tirx.tan": tan,
    "tirx.asin": asin,
    "tirx.acos": acos,
    "tirx.atan": atan,
    "tirx.sinh": sinh,
    "tirx.cosh": cosh,
    "tirx.asinh": asinh,
    "tirx.acosh": acosh,
    "tirx.atanh": atanh,
    "tirx.floor": floor,
    "tirx.ceil": ceil,
    "tirx.trunc": truncate,
    "tirx.nearbyint": nearest,
    "tirx.round": nearest,
}

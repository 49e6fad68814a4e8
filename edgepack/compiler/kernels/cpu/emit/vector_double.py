"""Elementary functions on float64 vectors: instructions where LLVM has them, polynomials for the exponential
and what is made of it, else libm for each lane.

A single number, and all with strict math, is libm's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import LOG2_E, through_register

__all__ = ["CALLED_LANE_BY_LANE", "FLOAT64_FUNCTIONS", "double"]

Expr = Any

INSTRUCTIONS = {
    **{name: f"llvm.{name}" for name in ("sqrt", "fabs", "floor", "ceil", "trunc", "nearbyint")},
    "round": "llvm.nearbyint",
}

#: p of e**r = 1 + r + r**2 p(r), |r| <= ln 2 / 2, the highest power first: through Chebyshev's nodes, so that
#: e**r has a relative error of 1.6e-17.
EXP = (
    *(2.5100472505694996e-08, 2.7620201591031547e-07, 2.7557268276905696e-06, 2.4801521057868204e-05),
    *(0.00019841269863171557, 0.0013888888917367081, 0.008333333333330039, 0.041666666666623824),
    *(0.16666666666666669, 0.5000000000000001),
)
#: ln 2 as a sum, of which products of the first part by whole numbers up to 2**33 are exact.
#: Source: the Cephes library's exp (S. Moshier).
LN2 = (6.93145751953125e-1, 1.42860682030941723212e-6)
#: 1.5 * 2**52: a float64 that it is added to is rounded to a whole number.
ROUNDING = 1.5 * 2.0**52

LIBM = {
    *("exp", "log", "pow", "tanh", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh"),
    *("asinh", "acosh", "atanh", "fmod"),
}

#: The functions that float64 vectors have.
FLOAT64_FUNCTIONS = LIBM | INSTRUCTIONS.keys() | {"rsqrt", "sigmoid"}


def double(e: Emitter, name: str, arguments: Sequence[Expr], lanes: int) -> Expr:
    """The function ``name``, one of :data:`FLOAT64_FUNCTIONS`, of float64 vectors."""
    x = e.let(arguments[0])
    if name in INSTRUCTIONS:
        return e.let(tirx.call_llvm_pure_intrin(_float64_of(lanes), INSTRUCTIONS[name], x))
    one = _number(e, 1, lanes)
    if name == "rsqrt":
        return e.let(one / e.let(tirx.call_llvm_pure_intrin(_float64_of(lanes), "llvm.sqrt", x)))
    if name == "sigmoid":
        power = double(e, "exp", [e.let(_number(e, 0, lanes) - x)], lanes)
        return e.let(one / (one + power))
    if name in POLYNOMIALS and lanes > 1 and not e.strict_math:
        return through_register(e, POLYNOMIALS[name](e, x, lanes), lanes, "float64")
    return _libm(e, name, [x, *arguments[1:]], lanes)


def _float64_of(lanes: int) -> str:
    return "float64" if lanes == 1 else f"float64x{lanes}"


def _number(e: Emitter, value: float, lanes: int) -> Expr:
    return e.splat(tirx.FloatImm("float64", float(value)), lanes)


def _exp(e: Emitter, x: Expr, lanes: int) -> Expr:
    """e**x. Error at most 2 ulp; infinite above 709.8; results below 3.2e-308 are 0; NaN stays NaN."""
    # Twice e**r times 2**(k - 1): neither overflows before the result does. The lower clamp makes the
    # scale's exponent field 0, which is the value 0. Clamps take NaN from their second operand.
    x = e.let(tirx.Max(_number(e, -708.6, lanes), e.let(tirx.Min(_number(e, 710, lanes), x))))
    shifted, r = _reduced(e, x, lanes)
    one = _number(e, 1, lanes)
    y = e.let(e.let(_polynomial(e, r, lanes) * r + one) * r + one)
    return e.let(y + y) * _power_of_two(e, shifted, -1, lanes)


def _tanh(e: Emitter, x: Expr, lanes: int) -> Expr:
    """y / (y + 2) with x's sign, y = e**2|x| - 1. Error at most 4 ulp, never beyond 1.

    y is 2**k (e**r - 1) + (2**k - 1), in which nothing cancels.
    """
    absolute = tirx.call_llvm_pure_intrin(_float64_of(lanes), "llvm.fabs", x)
    a = e.let(tirx.Min(_number(e, 20, lanes), absolute))
    shifted, r = _reduced(e, e.let(a + a), lanes)
    scale = _power_of_two(e, shifted, 0, lanes)
    small = e.let(e.let(_polynomial(e, r, lanes) * r) * r + r)
    y = e.let(small * scale + e.let(scale - _number(e, 1, lanes)))
    magnitude = e.let(y / e.let(y + _number(e, 2, lanes)))
    return tirx.call_llvm_pure_intrin(_float64_of(lanes), "llvm.copysign", magnitude, x)


def _reduced(e: Emitter, x: Expr, lanes: int) -> tuple[Expr, Expr]:
    """x as k ln 2 + r, |r| <= ln 2 / 2: k plus :data:`ROUNDING`, whose lowest bits are k, and r."""
    shifted = e.let(x * _number(e, LOG2_E, lanes) + _number(e, ROUNDING, lanes))
    k = e.let(shifted - _number(e, ROUNDING, lanes))
    r = e.let(x - k * _number(e, LN2[0], lanes))
    return shifted, e.let(r - k * _number(e, LN2[1], lanes))


def _polynomial(e: Emitter, r: Expr, lanes: int) -> Expr:
    value = _number(e, EXP[0], lanes)
    for c in EXP[1:]:
        value = e.let(value * r + _number(e, c, lanes))
    return value


def _power_of_two(e: Emitter, shifted: Expr, more: int, lanes: int) -> Expr:
    """2**(k + more), k as :func:`_reduced` returns it."""
    bits, bias = (e.splat(tirx.IntImm("int64", n), lanes) for n in (52, (1023 + more) << 52))
    k = tirx.reinterpret("int64" if lanes == 1 else f"int64x{lanes}", shifted)
    return e.let(tirx.reinterpret(_float64_of(lanes), tirx.shift_left(k, bits) + bias))


#: What has a polynomial.
POLYNOMIALS: dict[str, Callable[[Emitter, Expr, int], Expr]] = {"exp": _exp, "tanh": _tanh}

#: What libm computes, one lane after the other.
CALLED_LANE_BY_LANE = LIBM - POLYNOMIALS.keys()


def _libm(e: Emitter, name: str, arguments: Sequence[Expr], lanes: int) -> Expr:
    elements = [e.local(lanes, "float64") for _ in arguments]
    for buffer, x in zip(elements, arguments, strict=True):
        e.vstore(buffer, 0, x, lanes)
    for i in range(lanes):
        values = [e.load(buffer, i) for buffer in elements]
        e.vstore(elements[0], i, tirx.call_pure_extern("float64", name, *values), 1)
    return e.let(e.vload(elements[0], 0, lanes))

"""What the elementary functions on float32 vectors are made of: bits, signs, polynomials."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter

__all__ = [
    "LOG2_E",
    "MATH_DTYPE",
    "absolute",
    "bits_of",
    "float32_of",
    "i32",
    "int32_of",
    "largest",
    "polynomial",
    "scalar_of",
    "through_register",
    "two_polynomials",
    "with_sign_of",
]

#: The type of which elementary functions are computed by polynomials, and so that of kernels that are made of
#: them: attention, recurrent layers.
MATH_DTYPE = "float32"

Expr = Any

#: log2 of e.
LOG2_E = 1.44269504088896341


def int32_of(lanes: int) -> str:
    """The dtype of a vector of int32."""
    return "int32" if lanes == 1 else f"int32x{lanes}"


def float32_of(lanes: int) -> str:
    """The dtype of a vector of float32."""
    return "float32" if lanes == 1 else f"float32x{lanes}"


def i32(e: Emitter, value: int, lanes: int) -> Expr:
    """A whole number in every lane."""
    return e.splat(IntImm("int32", value), lanes)


def scalar_of(x: Expr) -> Expr:
    """What is in every lane of a vector that was made of one scalar; the expression itself otherwise."""
    return x.value if isinstance(x, tirx.Broadcast) else x


def polynomial(e: Emitter, x: Expr, coefficients: tuple[float, ...], lanes: int) -> Expr:
    """Horner's scheme, the highest power's coefficient first."""
    value = e.f32(coefficients[0], lanes)
    for c in coefficients[1:]:
        value = e.let(value * x + e.f32(c, lanes))
    return value


def two_polynomials(e: Emitter, x: Expr, coefficients: tuple[float, ...], lanes: int) -> Expr:
    """As :func:`polynomial`, the even and the odd powers apart: half as long a chain of operations that wait
    for each other, for one more of them."""
    square = e.let(x * x)
    last, other = (
        polynomial(e, square, coefficients[(len(coefficients) - 1 - n) % 2 :: 2], lanes) for n in (0, 1)
    )
    return e.let(other * x + last)


def through_register(e: Emitter, x: Expr, lanes: int, dtype: str = "float32") -> Expr:
    """The value by way of a local array, which LLVM turns into a register.

    TVM's analyser replaces names by what they are bound to: without this, functions of functions take it time
    that grows with the product of their polynomials' degrees.
    """
    register = e.local(lanes, dtype)
    e.vstore(register, 0, x, lanes)
    return e.let(e.vload(register, 0, lanes))


def bits_of(e: Emitter, x: Expr, lanes: int) -> Expr:
    """The bits as whole numbers."""
    return e.let(tirx.reinterpret(int32_of(lanes), x))


def absolute(e: Emitter, x: Expr, lanes: int) -> Expr:
    """Without the sign."""
    bits = tirx.bitwise_and(tirx.reinterpret(int32_of(lanes), x), i32(e, 0x7FFFFFFF, lanes))
    return e.let(tirx.reinterpret(float32_of(lanes), bits))


def with_sign_of(e: Emitter, magnitude: Expr, x: Expr, lanes: int) -> Expr:
    """A magnitude with the sign of ``x``."""
    sign = tirx.bitwise_and(tirx.reinterpret(int32_of(lanes), x), i32(e, -0x80000000, lanes))
    bits = tirx.bitwise_or(tirx.reinterpret(int32_of(lanes), magnitude), sign)
    return e.let(tirx.reinterpret(float32_of(lanes), bits))


def largest(e: Emitter, x: Expr, lanes: int) -> Expr:
    """The largest of the lanes, int32 that are not negative."""
    if lanes == 1:
        return x
    return e.let(tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.umax", x))

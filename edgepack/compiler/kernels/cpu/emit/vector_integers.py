"""Quotients and remainders of integers on vectors: no CPU divides vectors of integers, all divide numbers."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import scalar_of

__all__ = ["BEYOND_INT32", "divided"]

Expr = Any

#: The number whose quotients are exact enough, by integer type: it has more digits than the integer.
EXACT = {"int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32", "int32": "float64"}

#: What is no int32 any more.
BEYOND_INT32 = 2.0**31


def divided(e: Emitter, name: str, a: Expr, b: Expr, lanes: int, dtype: str) -> Expr:
    """``div`` and ``mod`` truncate; ``floor_div`` and ``floor_mod`` round down. By zero both are zero, and
    the least integer by -1 is itself.

    A quotient of integers of up to 32 bits is that of the numbers, rounded to more digits and truncated: one
    that is no whole number is further from the next one than it is rounded by. By a constant LLVM multiplies.
    """
    divisor = scalar_of(b)
    number = int(divisor.value) if isinstance(divisor, tirx.IntImm) else None
    zero, one = (e.splat(tirx.const(n, dtype), lanes) for n in (0, 1))
    if number == 0:
        return zero
    a = e.let(a)
    # By one instead of zero there is no remainder, and nothing that rounding down would change.
    by_zero = tirx.EQ(b := b if number else e.let(b), zero)
    b = b if number else e.let(tirx.Select(by_zero, one, b))
    if number or not _by_numbers(e, dtype, lanes):
        quotient = e.let(tirx.truncdiv(a, b))
    else:
        quotient = _by_number(e, a, b, lanes, dtype)
    if name == "div":
        return quotient if number else e.let(tirx.Select(by_zero, zero, quotient))
    rest = e.let(a - e.let(quotient * b))
    if name == "mod" or (dtype.startswith("uint") and name == "floor_mod"):
        return rest
    if not dtype.startswith("uint"):
        differs = e.let(tirx.bitwise_xor(rest, b))
        below = tirx.And(tirx.NE(rest, zero), tirx.LT(differs, zero))
        if name == "floor_mod":
            return e.let(tirx.Select(below, rest + b, rest))
        quotient = e.let(tirx.Select(below, quotient - one, quotient))
    return quotient if number else e.let(tirx.Select(by_zero, zero, quotient))


def _by_number(e: Emitter, a: Expr, b: Expr, lanes: int, dtype: str) -> Expr:
    """The quotient of numbers, ``b`` not 0, truncated."""
    wide, whole = (f"{name}x{lanes}" for name in (EXACT[dtype], "int32"))
    ratio = e.let(tirx.Cast(wide, a) / tirx.Cast(wide, b))
    if dtype != "int32":
        return e.let(tirx.Cast(f"{dtype}x{lanes}", tirx.Cast(whole, ratio)))
    beyond, least = (e.splat(tirx.FloatImm("float64", n), lanes) for n in (BEYOND_INT32, -BEYOND_INT32))
    return e.let(tirx.Cast(whole, e.let(tirx.Select(tirx.LT(ratio, beyond), ratio, least))))


def _by_numbers(e: Emitter, dtype: str, lanes: int) -> bool:
    if lanes == 1 or dtype not in EXACT or e.target is None:
        return False
    return EXACT[dtype] == "float32" or e.target.float64_vectors

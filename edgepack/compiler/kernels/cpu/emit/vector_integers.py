"""Quotients and remainders of integers on vectors: no CPU divides vectors of integers, all divide numbers."""

from __future__ import annotations

from typing import Any

from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import scalar_of

__all__ = ["divided"]

Expr = Any

#: The number whose quotients are exact enough, by integer type: it has more digits than the integer.
EXACT = {"int8": "float32", "uint8": "float32", "int16": "float32", "uint16": "float32", "int32": "float64"}


def divided(e: Emitter, name: str, a: Expr, b: Expr, lanes: int, dtype: str) -> Expr:
    """``div`` and ``mod`` truncate; ``floor_div`` and ``floor_mod`` round down. What a quotient by zero is is
    not defined, as in C.

    A quotient of integers of up to 32 bits is that of the numbers, rounded to more digits and truncated: one
    that is no whole number is further from the next one than it is rounded by. By a constant LLVM multiplies.
    """
    constant = isinstance(scalar_of(b), tirx.IntImm)
    a, b = e.let(a), b if constant else e.let(b)
    if constant or not _by_numbers(e, dtype, lanes):
        quotient = e.let(tirx.truncdiv(a, b))
    else:
        wide, whole = (f"{name}x{lanes}" for name in (EXACT[dtype], "int32"))
        ratio = tirx.Cast(whole, e.let(tirx.Cast(wide, a) / tirx.Cast(wide, b)))
        quotient = e.let(ratio if dtype == "int32" else tirx.Cast(f"{dtype}x{lanes}", ratio))
    if name == "div":
        return quotient
    rest = e.let(a - e.let(quotient * b))
    if name == "mod" or (dtype.startswith("uint") and name == "floor_mod"):
        return rest
    if dtype.startswith("uint"):
        return quotient
    zero, one = (e.splat(tirx.const(n, dtype), lanes) for n in (0, 1))
    differs = e.let(tirx.bitwise_xor(rest, b))
    below = tirx.And(tirx.NE(rest, zero), tirx.LT(differs, zero))
    return e.let(
        tirx.Select(below, *((rest + b, rest) if name == "floor_mod" else (quotient - one, quotient)))
    )


def _by_numbers(e: Emitter, dtype: str, lanes: int) -> bool:
    if lanes == 1 or dtype not in EXACT or e.target is None:
        return False
    return EXACT[dtype] == "float32" or e.target.float64_vectors

"""float16 and bfloat16 in memory to float32 in registers and back, on vectors; both lie there as uint16.

Every number is widened exactly, subnormal ones, infinities and NaN included, and narrowed to the nearest one,
ties to even (IEEE 754-2019, 4.3.1). Where a CPU has no instruction for float16, integer arithmetic and
selections do it, for LLVM would call a function for each element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import FloatImm, IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter

__all__ = ["HALVES", "STORAGE", "narrowed", "number_of", "widened"]

Expr = Any

#: dtypes that are stored only.
HALVES = {"float16", "bfloat16"}

#: What their elements are in memory.
STORAGE = "uint16"


def _dtype(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"{scalar}x{lanes}"


def number_of(value: float, dtype: str) -> Expr:
    """A constant of a half precision dtype as it lies in memory."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return IntImm(STORAGE, int(np.float16(value).view(np.uint16)))
    if np.isnan(value):
        return IntImm(STORAGE, 0x7FC0)
    bits = int(np.float32(value).view(np.uint32))
    return IntImm(STORAGE, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def widened(e: Emitter, stored: Expr, lanes: int, dtype: str) -> Expr:
    """float32 of ``lanes`` elements as they lie in memory; a NaN stays one."""
    if dtype == "float16" and e.target is not None and e.target.converts_float16:
        half = tirx.reinterpret(_dtype("float16", lanes), stored)
        return e.let(tirx.Cast(_dtype("float32", lanes), half))

    def number(value: int) -> Expr:
        return e.splat(IntImm("int32", value), lanes)

    def as_float(x: Expr) -> Expr:
        return tirx.reinterpret(_dtype("float32", lanes), x)

    bits = e.let(tirx.Cast(_dtype("int32", lanes), stored))
    if dtype == "bfloat16":
        return e.let(as_float(tirx.shift_left(bits, number(16))))
    magnitude = e.let(tirx.bitwise_and(bits, number(0x7FFF)))
    sign = tirx.shift_left(tirx.bitwise_and(bits, number(0x8000)), number(16))
    moved = e.let(tirx.shift_left(magnitude, number(13)))
    # The exponent's bias is 127 instead of 15; that of infinities and NaN is 255 instead of 31.
    special = magnitude >= number(0x7C00)
    bias = tirx.Select(special, number(224 << 23), number(112 << 23))
    # Subnormal numbers are multiples of 2**-24. Not made of subnormal float32: NEON takes these for 0.
    scale = e.splat(FloatImm("float32", 2.0**-24), lanes)
    small = tirx.reinterpret(
        _dtype("int32", lanes), e.let(tirx.Cast(_dtype("float32", lanes), magnitude) * scale)
    )
    absolute = e.let(tirx.Select(magnitude < number(0x400), small, moved + bias))
    return e.let(as_float(tirx.bitwise_or(absolute, sign)))


def narrowed(e: Emitter, value: Expr, lanes: int, dtype: str) -> Expr:
    """``lanes`` float32 as they are stored, rounded; a NaN becomes the quiet one."""
    if dtype == "float16" and e.target is not None and e.target.converts_float16:
        half = e.let(tirx.Cast(_dtype("float16", lanes), value))
        return e.let(tirx.reinterpret(_dtype(STORAGE, lanes), half))

    def number(value: int) -> Expr:
        return e.splat(IntImm("int32", value), lanes)

    def rounded(x: Expr, places: int) -> Expr:
        """The bits without the last ``places``; what is cut off is added by half less one, and the last bit
        that stays."""
        last = tirx.bitwise_and(tirx.shift_right(x, number(places)), number(1))
        return tirx.shift_right(x + number((1 << places - 1) - 1) + last, number(places))

    bits = e.let(tirx.reinterpret(_dtype("int32", lanes), value))
    magnitude = e.let(tirx.bitwise_and(bits, number(0x7FFFFFFF)))
    sign = tirx.bitwise_and(tirx.shift_right(bits, number(16)), number(0x8000))
    nan = magnitude > number(0x7F800000)
    if dtype == "bfloat16":
        absolute = e.let(tirx.Select(nan, number(0x7FC0), rounded(magnitude, 16)))
    else:
        # Added to 0.5, whose last bit is 2**-24, a number is rounded to a multiple of that.
        half = e.splat(FloatImm("float32", 0.5), lanes)
        sum_ = e.let(tirx.reinterpret(_dtype("float32", lanes), magnitude) + half)
        small = tirx.reinterpret(_dtype("int32", lanes), sum_) - number(0x3F000000)
        normal = rounded(magnitude - number(112 << 23), 13)
        absolute = e.let(tirx.Select(magnitude < number(0x38800000), small, normal))
        # From 65520 on the nearest number would be 65536.
        absolute = e.let(tirx.Select(magnitude >= number(0x477FF000), number(0x7C00), absolute))
        absolute = e.let(tirx.Select(nan, number(0x7E00), absolute))
    return e.let(tirx.Cast(_dtype(STORAGE, lanes), tirx.bitwise_or(absolute, sign)))

"""float16 and bfloat16 in memory to float32 in registers and back, on vectors; both lie there as uint16.

Every number is widened exactly, subnormal ones, infinities and NaN included, and narrowed to the nearest one,
ties to even (IEEE 754-2019, 4.3.1). Where a CPU has no instruction for float16, arithmetic on the bits
does it, for LLVM would call a function for each element.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx import FloatImm, IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter

__all__ = ["FLOAT16_BITS", "SIXTEEN_BIT_FLOATS", "as_float16", "narrowed", "number_of", "widened"]

Expr = Any

#: dtypes that are stored only.
SIXTEEN_BIT_FLOATS = {"float16", "bfloat16"}

#: What their elements are in memory.
FLOAT16_BITS = "uint16"


def _dtype(scalar: str, lanes: int) -> str:
    return scalar if lanes == 1 else f"{scalar}x{lanes}"


def number_of(value: float, dtype: str) -> Expr:
    """A constant of a half precision dtype as it lies in memory."""
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return IntImm(FLOAT16_BITS, int(np.float16(value).view(np.uint16)))
    if np.isnan(value):
        return IntImm(FLOAT16_BITS, 0x7FC0)
    bits = int(np.float32(value).view(np.uint32))
    return IntImm(FLOAT16_BITS, (bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


def as_float16(e: Emitter, stored: Expr, lanes: int) -> Expr:
    """The float16 numbers of ``lanes`` elements as they lie in memory, on a CPU that computes with them."""
    return e.let(tirx.reinterpret(_dtype("float16", lanes), e.let(stored)))


def widened(e: Emitter, stored: Expr, lanes: int, dtype: str) -> Expr:
    """float32 of ``lanes`` elements as they lie in memory; a NaN stays one."""
    if dtype == "float16" and e.target is not None and e.target.converts_float16:
        half = tirx.reinterpret(_dtype("float16", lanes), stored)
        return e.let(tirx.Cast(_dtype("float32", lanes), half))

    def number(value: int) -> Expr:
        return e.splat(IntImm("int32", value), lanes)

    def as_float(x: Expr) -> Expr:
        return tirx.reinterpret(_dtype("float32", lanes), x)

    high = e.let(tirx.shift_left(tirx.Cast(_dtype("int32", lanes), stored), number(16)))
    if dtype == "bfloat16":
        return e.let(as_float(high))
    magnitude = e.let(tirx.bitwise_and(high, number(0x7FFFFFFF)))
    moved = e.let(tirx.shift_right(magnitude, number(3)))
    # The exponent's bias is 127 instead of 15; that of infinities and NaN is all ones.
    value = e.let(as_float(moved + number(112 << 23)))
    # That makes 2**-15 (1 + m) of a subnormal 2**-14 m. No step has a subnormal float32: NEON takes it for 0.
    excess = e.let(value - e.splat(FloatImm("float32", 2.0**-14), lanes))
    subnormal = magnitude < number(0x400 << 16)
    value = e.let(value + tirx.Select(subnormal, excess, e.splat(FloatImm("float32", 0.0), lanes)))
    ones = tirx.Select(magnitude > number(0x7BFF << 16), number(0x7F800000), number(0))
    sign = e.let(tirx.bitwise_or(tirx.bitwise_and(high, number(-0x80000000)), ones))
    return e.let(as_float(tirx.bitwise_or(tirx.reinterpret(_dtype("int32", lanes), value), sign)))


def narrowed(e: Emitter, value: Expr, lanes: int, dtype: str) -> Expr:
    """``lanes`` float32 as they are stored, rounded; a NaN becomes the quiet one."""
    if dtype == "float16" and e.target is not None and e.target.converts_float16:
        half = e.let(tirx.Cast(_dtype("float16", lanes), value))
        return e.let(tirx.reinterpret(_dtype(FLOAT16_BITS, lanes), half))

    def number(value: int) -> Expr:
        return e.splat(IntImm("int32", value), lanes)

    def rounded(x: Expr, places: int) -> Expr:
        """The bits without the last ``places``; what is cut off is added by half less one, and the last bit
        that stays."""
        last = tirx.bitwise_and(tirx.shift_right(x, number(places)), number(1))
        return tirx.shift_right(x + number((1 << places - 1) - 1) + last, number(places))

    bits = e.let(tirx.reinterpret(_dtype("int32", lanes), value))
    magnitude = e.let(tirx.bitwise_and(bits, number(0x7FFFFFFF)))
    if dtype == "bfloat16":
        nan = magnitude > number(0x7F800000)
        sign = tirx.bitwise_and(tirx.shift_right(bits, number(16)), number(0x8000))
        absolute = e.let(tirx.Select(nan, number(0x7FC0), rounded(magnitude, 16)))
        return e.let(tirx.Cast(_dtype(FLOAT16_BITS, lanes), tirx.bitwise_or(absolute, sign)))
    return _narrowed_float16(e, bits, magnitude, lanes)


def _narrowed_float16(e: Emitter, bits: Expr, magnitude: Expr, lanes: int) -> Expr:
    """The float16 of a float32 with these bits, without an instruction for it.

    Added to 2**13 times its own power of two, a number is rounded by the addition to 11 significant bits,
    which are the sum's last ones; with 2**-14, the least normal number's, to a multiple of 2**-24.
    """

    def number(value: int) -> Expr:
        return e.splat(IntImm("int32", value), lanes)

    def as_float(x: Expr) -> Expr:
        return tirx.reinterpret(_dtype("float32", lanes), x)

    def as_bits(x: Expr) -> Expr:
        return tirx.reinterpret(_dtype("int32", lanes), x)

    def constant(value: float) -> Expr:
        return e.splat(FloatImm("float32", value), lanes)

    absolute = as_float(magnitude)
    # From 65520 on it rounds to 65536, whose bits would be infinity's.
    absolute = e.let(tirx.Select(absolute < constant(65536), absolute, constant(65536)))
    power = e.let(as_float(tirx.bitwise_and(as_bits(absolute), number(0x7F800000))))
    power = as_bits(tirx.Select(power > constant(2.0**-14), power, constant(2.0**-14)))
    power = e.let(power + number(13 << 23))
    mantissa = e.let(as_bits(e.let(absolute + as_float(power))) - power)
    # The leading bit of a normal number's mantissa adds 1 to the exponent.
    rounded = mantissa + (tirx.shift_right(power, number(13)) - number(126 << 10))
    quiet = tirx.Select(magnitude > number(0x7F800000), number(0x200), number(0))
    sign = tirx.bitwise_and(tirx.shift_right(bits, number(16)), number(0x8000))
    positive = tirx.bitwise_or(rounded, quiet)
    return e.let(tirx.Cast(_dtype(FLOAT16_BITS, lanes), tirx.bitwise_or(positive, sign)))

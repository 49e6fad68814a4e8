"""The remainder of float32 vectors with the sign of the dividend: C's fmodf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import (
    absolute,
    float32_of,
    int32_of,
    largest,
    with_sign_of,
)

__all__ = ["remainder"]

Expr = Any

#: The bits of 2**29, from which on a quotient times the divisor is not exact in float64, and of infinity.
LARGE_BITS, INFINITE_BITS = 0x4E000000, 0x7F800000
LARGEST = 2.0**29


def remainder(e: Emitter, a: Expr, b: Expr, lanes: int) -> Expr:
    """a - b times the whole part of a / b, exact; a vector with a quotient of 2**29 or more, an infinity or
    NaN calls libm."""
    a, b = e.let(a), e.let(b)
    result = e.local(lanes, "float32")
    if lanes == 1 or e.target is None or not e.target.float64_vectors:
        _libm(e, a, b, result, lanes)()
        return e.let(e.vload(result, 0, lanes))
    ratio = absolute(e, e.let(a / b), lanes)
    bits = [
        largest(e, e.let(tirx.reinterpret(int32_of(lanes), x)), lanes) for x in (ratio, absolute(e, b, lanes))
    ]
    ordinary = tirx.And(bits[0] < IntImm("int32", LARGE_BITS), bits[1] < IntImm("int32", INFINITE_BITS))
    e.branch(ordinary, _by_float64(e, a, b, result, lanes), _libm(e, a, b, result, lanes))
    return e.let(e.vload(result, 0, lanes))


def _by_float64(e: Emitter, a: Expr, b: Expr, result: Any, lanes: int) -> Callable[[], None]:
    wide = f"float64x{lanes}"

    def number(value: float) -> Expr:
        return e.splat(tirx.FloatImm("float64", value), lanes)

    zero = number(0.0)

    def emit() -> None:
        p, q = (e.let(tirx.Cast(wide, absolute(e, x, lanes))) for x in (a, b))
        # Bounds for who does not know that the quotient is ordinary.
        ratio = tirx.Min(tirx.Max(e.let(p / q), number(0.0)), number(LARGEST))
        whole = e.let(tirx.Cast(wide, e.let(tirx.Cast(int32_of(lanes), e.let(ratio)))))
        rest = e.let(p - whole * q)
        # A quotient just below a whole number was rounded to it.
        rest = e.let(tirx.Select(rest < zero, rest + q, rest))
        e.vstore(result, 0, with_sign_of(e, e.let(tirx.Cast(float32_of(lanes), rest)), a, lanes), lanes)

    return emit


def _libm(e: Emitter, a: Expr, b: Expr, result: Any, lanes: int) -> Callable[[], None]:
    def emit() -> None:
        elements = [e.local(lanes, "float32") for _ in range(2)]
        for buffer, x in zip(elements, (a, b), strict=True):
            e.vstore(buffer, 0, x, lanes)
        for i in range(lanes):
            values = (e.load(buffer, i) for buffer in elements)
            e.vstore(result, i, tirx.call_pure_extern("float32", "fmodf", *values), 1)

    return emit

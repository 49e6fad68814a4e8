"""Quotients of float32 vectors by numbers: within a unit in the last place, or exact."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.vector_parts import scalar_of

__all__ = ["exact_quotient", "quotient"]

Expr = Any


def quotient(e: Emitter, a: Expr, b: Expr) -> Expr:
    """a / b; a product where b is a number, within 1.5 ulp: a division costs as much as 10 to 20 of them."""
    number = scalar_of(b)
    if e.strict_math or not isinstance(number, tirx.FloatImm) or not 1e-30 < abs(number.value) < 1e30:
        return tirx.Div(a, b)
    reciprocal = tirx.const(1 / number.value, str(number.ty.dtype))
    return a * (tirx.Broadcast(reciprocal, b.lanes) if b is not number else reciprocal)


def exact_quotient(e: Emitter, a: Expr, number: float, lanes: int, *, finite: bool = False) -> Expr:
    """a / number, rounded once as IEEE 754 does it.

    Args:
        finite: whether ``a`` and the quotient are finite numbers.

    With fused multiply-adds a product and a correction by its residual, which is correctly rounded as the
    reciprocal is (Markstein, Computation of elementary functions on the IBM RISC System/6000, 1990, theorem
    7: but for a divisor whose significand is all ones); elsewhere a division.
    """
    divisor, reciprocal = np.float32(number), np.float32(1 / np.float64(np.float32(number)))
    significand = int(divisor.view(np.int32)) & 0x7FFFFF
    usual = 1e-30 < abs(number) < 1e30 and significand != 0x7FFFFF
    if usual and significand == 0:
        return e.let(a * e.f32(float(reciprocal), lanes))
    if not usual or e.target is None or not e.target.fma or e.target.virtual_registers:
        return e.let(tirx.Div(a, e.f32(float(divisor), lanes)))
    vector = "float32" if lanes == 1 else f"float32x{lanes}"
    a, r = e.let(a), e.f32(float(reciprocal), lanes)
    q = e.let(a * r)
    minus = e.f32(-float(divisor), lanes)
    residual = e.let(tirx.call_llvm_pure_intrin(vector, "llvm.fma", q, minus, a))
    corrected = e.let(tirx.call_llvm_pure_intrin(vector, "llvm.fma", residual, r, q))
    # The residual of an infinite q is no number.
    return corrected if finite else e.let(tirx.Select(tirx.EQ(corrected, corrected), corrected, q))

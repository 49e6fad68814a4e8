"""Rounded shifts of vectors of int32: ``(x + ((1 << by) >> 1)) >> by``, by one instruction (VRSHL)."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx import IntImm

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.tvm_target import has_feature

__all__ = ["half_of", "rounded_shift"]

Expr = Any


def half_of(by: Any) -> Any:
    """The origin (:attr:`.arithmetic.Value.origin`) of half of two to the power of what has origin ``by``."""
    return "shift_right", ("shift_left", 1, by), 1


def rounded_shift(e: Emitter, x: Expr, by: Expr, lanes: int) -> Expr | None:
    """The shift of a vector by another one, from 0 to 31; None where no instruction does it (Helium's)."""
    if e.target is None or lanes != 4 or not has_feature(e.target, "mve"):
        return None
    left = e.splat(IntImm("int32", 0), lanes) - by
    flags = [IntImm("int32", flag) for flag in (0, 1, 0)]  # saturated, rounded, unsigned
    name = "llvm.arm.mve.vshl.vector.v4i32.v4i32"
    return e.let(tirx.call_llvm_pure_intrin("int32x4", name, x, left, *flags))

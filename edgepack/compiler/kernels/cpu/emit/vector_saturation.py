"""Bytes of int32 vectors, with saturation, by instructions that narrow two vectors together."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.tvm_target import has_feature

__all__ = ["limits_of", "saturated"]

Expr = Any

#: By lanes of int32 in a vector: LLVM's names of what brings the instructions, and what theirs begin and end
#: with.
VECTORS = {
    16: ("avx512bw", "llvm.x86.avx512.", ".512"),
    8: ("avx2", "llvm.x86.avx2.", ""),
    4: ("sse2", "llvm.x86.sse2.", ".128"),
}
#: The instruction that narrows int16 to a type of bytes.
BYTES = {"uint8": "packuswb", "int8": "packsswb"}


def limits_of(dtype: str) -> tuple[float, float]:
    """The least and the largest integer of a type."""
    info = np.iinfo(dtype)
    return float(info.min), float(info.max)


def saturated(e: Emitter, x: Expr, lanes: int, dtype: str) -> Expr | None:
    """The nearest bytes of two or four vectors of int32; None where no instruction makes them.

    x86 narrows two vectors to int16 and two of these to bytes, each with saturation, inside of each 128 bits;
    one permutation brings them into order. Of two vectors with AVX-512 these are 3 operations instead of the
    9 that LLVM makes of two bounds and VPMOVDB.
    """
    if e.target is not None and lanes == 4 and dtype in BYTES and has_feature(e.target, "mve"):
        return _narrowed_twice(e, x, dtype)
    width = e.target.word_lanes if e.target is not None else 0
    if e.target is None or width not in VECTORS or lanes not in (2 * width, 4 * width) or dtype not in BYTES:
        return None
    feature, before, behind = VECTORS[width]
    if not has_feature(e.target, feature):
        return None
    x = e.let(x)
    parts = [e.let(tirx.Shuffle([x], list(range(at, at + width)))) for at in range(0, lanes, width)]

    def narrowed(name: str, narrow: str, a: Expr, b: Expr) -> Expr:
        return e.let(tirx.call_llvm_pure_intrin(narrow, f"{before}{name}{behind}", a, b))

    halves = [
        narrowed("packssdw", f"int16x{2 * width}", *parts[i : i + 2]) for i in range(0, lanes // width, 2)
    ]
    packed = narrowed(BYTES[dtype], f"int8x{4 * width}", halves[0], halves[-1])
    # Each 128 bits have four bytes of each part.
    order = [16 * (i // 4) + 4 * part + i % 4 for part in range(lanes // width) for i in range(width)]
    found = packed if order == list(range(4 * width)) else tirx.Shuffle([packed], order)
    return tirx.reinterpret(f"{dtype}x{lanes}", found) if dtype != "int8" else found


def _narrowed_twice(e: Emitter, x: Expr, dtype: str) -> Expr:
    """The nearest bytes of a vector of int32 by Helium's VQMOVNB, which leaves each where its number was:
    first 16 bits, then 8."""
    unsigned = int(dtype == "uint8")
    for narrow, wide, names, operand in (
        ("int16x8", "int32x4", "v8i16.v4i32", 0),
        ("int8x16", "int16x8", "v16i8.v8i16", unsigned),
    ):
        flags = [tirx.IntImm("int32", flag) for flag in (unsigned, operand, 0)]  # the last: upper halves
        into, value = (e.let(tirx.reinterpret(kind, x)) for kind in (narrow, wide))
        x = e.let(tirx.call_llvm_pure_intrin(narrow, f"llvm.arm.mve.vqmovn.{names}", into, value, *flags))
    return tirx.Cast(f"{dtype}x4", e.let(tirx.reinterpret("int32x4", x)))

"""Bytes of int32 vectors, with saturation, by instructions that narrow two vectors together."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.tvm_target import has_feature

__all__ = ["limits_of", "narrowed", "saturated"]

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


def narrowed(
    e: Emitter, x: Expr, upper: int, into: Expr = None, *, unsigned: tuple[int, int] = (0, 0)
) -> Expr:
    """Numbers of half the width, with saturation, by Helium's VQMOVN: each where the lower or the upper half
    of its number was.

    Args:
        x: a vector of int32 or of int16.
        upper: 1 for the upper halves, else 0.
        into: has the other halves; anything unless given.
        unsigned: 1 for numbers without signs: the results and the operands.
    """
    wide, narrow = ("v4i32", "int16x8") if str(x.ty.dtype) == "int32x4" else ("v8i16", "int8x16")
    name = f"llvm.arm.mve.vqmovn.{'v8i16' if wide == 'v4i32' else 'v16i8'}.{wide}"
    flags = [tirx.IntImm("int32", flag) for flag in (*unsigned, upper)]
    into = e.let(tirx.reinterpret(narrow, x)) if into is None else into
    return e.let(tirx.call_llvm_pure_intrin(narrow, name, into, x, *flags))


def _narrowed_twice(e: Emitter, x: Expr, dtype: str) -> Expr:
    """The nearest bytes of a vector of int32, each where its number was: first 16 bits, then 8."""
    unsigned = int(dtype == "uint8")
    half = narrowed(e, e.let(x), 0, unsigned=(unsigned, 0))
    bytes_ = narrowed(e, half, 0, unsigned=(unsigned, unsigned))
    return tirx.Cast(f"{dtype}x4", e.let(tirx.reinterpret("int32x4", bytes_)))

"""How quantised tensors become the integers that are kept: rounded, bounded, of a narrow type."""

from __future__ import annotations

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import Rewriter, constant, dtype_of

__all__ = ["rounded", "shifted"]


def shifted(rewriter: Rewriter, expr: relax.Expr, by: int, dtype: str) -> relax.Expr:
    """Integers of up to 16 bits plus a number, as another type that holds them."""
    if not by and dtype_of(expr) == dtype:
        return expr
    wide = expr if dtype_of(expr) == "int16" else rewriter.emit(relax.op.astype(expr, "int16"))
    if by:
        wide = rewriter.emit(relax.op.add(wide, constant(np.array(by, np.int16))))
    return wide if dtype == "int16" else rewriter.emit(relax.op.astype(wide, dtype))


def rounded(
    rewriter: Rewriter, x: relax.Expr, limits: tuple[int, int], kept: tuple[int, str], *, joint: bool
) -> relax.Expr:
    """The nearest integers of float32, halves to the even one.

    Args:
        limits: the least and the largest of them.
        kept: what is added to them, and the type that they are kept in.
        joint: whether they are rounded to int32 and then narrowed by instructions that saturate, which takes
            magnitudes below 2**31; otherwise they are bounded before.
    """
    emit, (low, high), (offset, stored) = rewriter.emit, limits, kept
    if not joint:
        whole = emit(relax.op.round(emit(relax.op.clip(x, low, high))))
        return shifted(rewriter, emit(relax.op.astype(whole, "int16")), offset, stored)
    whole = emit(relax.op.astype(emit(relax.op.round(x)), "int32"))
    if offset:
        whole = emit(relax.op.add(whole, constant(np.array(offset, np.int32))))
    info = np.iinfo(stored)
    whole = _between(rewriter, whole, int(info.min), int(info.max), "int32")
    narrow = emit(relax.op.astype(whole, stored))
    return _between(rewriter, narrow, low + offset, high + offset, stored)


def _between(rewriter: Rewriter, x: relax.Expr, low: int, high: int, dtype: str) -> relax.Expr:
    """Integers of a type, bounded where it has others."""
    info = np.iinfo(dtype)
    if low > info.min:
        x = rewriter.emit(relax.op.maximum(x, constant(np.array(low, dtype))))
    if high < info.max:
        x = rewriter.emit(relax.op.minimum(x, constant(np.array(high, dtype))))
    return x

"""Means of quantised tensors: of integers, whose sum is exact, times the scale by how many there are."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from tvm import relax

from edgepack.compiler.graph.integer_operands import BYTES
from edgepack.compiler.graph.quantised_values import Integers, Scaled
from edgepack.compiler.graph.rewrite import Rewriter, dtype_of, is_constant, op_name, shape_of

__all__ = ["mean"]


def mean(
    rewriter: Rewriter,
    call: relax.Call,
    known: dict[relax.Expr, Integers | Scaled],
    readers: Sequence[relax.Call | None],
) -> Scaled | None:
    """What ``relax.mean`` makes of a dequantised tensor of one scale; None of another one, and where sums do
    not fit int32.

    A mean that is subtracted from the same tensor, as a norm that is spelled out begins, stays: both get the
    same float32 values, so that all of the norm becomes one operator later.

    Args:
        known: what is known of tensors; those that get their values are taken out.
        readers: what reads the mean.
    """
    value = known.get(call.args[0])
    if not isinstance(value, Scaled) or is_constant(value.expr) or not value.single or value.bounded:
        return None
    kept = dtype_of(value.expr)
    if kept not in BYTES | {"int16"}:  # sums of products, whose values are the same for all that read them
        return None
    centred = [one.args[0] for one in readers if op_name(one) == "relax.subtract" and one is not None]
    if same := [one for one in centred if _is_same(known.get(one), value)]:
        values = rewriter.use(call.args[0])
        for one in {call.args[0], *same}:
            del known[one]
            rewriter.bind(one, values)
        return None
    shape = shape_of(call.args[0])
    axes = [int(axis) % len(shape) for axis in (call.attrs.axis or range(len(shape)))]
    count, info = prod(shape[axis] for axis in axes), np.iinfo(kept)
    if not axes or count * max(-int(info.min), int(info.max)) >= 2**31:
        return None
    wide = rewriter.emit(relax.op.astype(value.expr, "int32"))
    total = rewriter.emit(relax.op.sum(wide, axes, bool(call.attrs.keepdims)))
    low, high = (count * limit for limit in value.limits)
    return Scaled(
        total,
        (value.scale / np.float32(count)).astype(np.float32),
        0,
        (low, high),
        addend=np.array(-count * value.offset, np.int32) if value.offset else None,
    )


def _is_same(other: Integers | Scaled | None, value: Scaled) -> bool:
    """Whether another tensor is of the same integers by the same scale."""
    if not isinstance(other, Scaled) or other.bounded or not other.single:
        return False
    return bool(other.expr.same_as(value.expr)) and other.kept_as == value.kept_as

"""Means of quantised tensors: of integers, whose sum is exact, times the scale by how many there are."""

from __future__ import annotations

from math import prod

import numpy as np
from tvm import relax

from edgepack.compiler.graph.integer_operands import BYTES
from edgepack.compiler.graph.quantised_values import Integers, Scaled
from edgepack.compiler.graph.rewrite import Rewriter, dtype_of, is_constant, shape_of

__all__ = ["mean"]


def mean(rewriter: Rewriter, call: relax.Call, value: Integers | Scaled | None) -> Scaled | None:
    """What ``relax.mean`` makes of a dequantised tensor of one scale; None of another one, and where sums do
    not fit int32.

    Args:
        value: what is known of the tensor.
    """
    if not isinstance(value, Scaled) or is_constant(value.expr) or not value.single or value.bounded:
        return None
    kept = dtype_of(value.expr)
    if kept not in BYTES | {"int16"}:
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

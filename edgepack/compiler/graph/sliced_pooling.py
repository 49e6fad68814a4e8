"""Pooling of channels-first images over few taps: the largest, or the mean, of slices, one for each tap.

The sliding windows' kernels want channels last. An image that is channels first would be transposed before
and behind them, which takes longer than the pooling itself; slices at steps are loads and shuffles.
"""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import OptionalExpr, Rewriter, dtype_of, op_name, shape_of

__all__ = ["sliced_pooling"]

#: Taps of the largest window.
MOST_TAPS = 9

#: The largest step along a row, which loads and shuffles still bridge, and the shortest row of the output.
LARGEST_STEP, SHORTEST_ROW = 4, 8


def sliced_pooling(rewriter: Rewriter, data: relax.Expr, call: relax.Call) -> OptionalExpr:
    """A maximum or average over windows; None for what is better done, or only known, channels last.

    Args:
        data: the input, channels first.
        call: ``relax.nn.max_pool2d``, ``avg_pool2d`` or those of one and three dimensions, channels first.
    """
    a, rank, largest = call.attrs, len(shape_of(call)) - 2, ".max_pool" in op_name(call)
    sizes, strides, dilation, before = (
        [int(v) for v in values][:rank] for values in (a.pool_size, a.strides, a.dilation, a.padding)
    )
    out = shape_of(call)[2:]
    if prod(sizes) > MOST_TAPS or strides[-1] > LARGEST_STEP or out[-1] < SHORTEST_ROW:
        return None
    after = [
        max(0, (out[i] - 1) * strides[i] + (sizes[i] - 1) * dilation[i] + 1 - before[i] - n)
        for i, n in enumerate(shape_of(data)[2:])
    ]
    padded = any((*before, *after))
    if str(a.layout)[1] != "C" or dtype_of(call) != "float32" or (padded and not largest):
        return None
    if padded:
        widths = [0, 0, 0, 0, *(n for pair in zip(before, after, strict=True) for n in pair)]
        data = rewriter.emit(relax.op.nn.pad(data, widths, "constant", -np.inf))
    axes = list(range(2, rank + 2))
    total = relax.const(-np.inf, "float32") if largest else None
    for tap in product(*(range(n) for n in sizes)):
        begin = [i * d for i, d in zip(tap, dilation, strict=True)]
        end = [b + (n - 1) * s + 1 for b, n, s in zip(begin, out, strides, strict=True)]
        term = rewriter.emit(relax.op.strided_slice(data, axes, begin, end, strides))
        if total is None:
            total = term
        elif largest:  # NaN is not greater than anything: it is left out
            total = rewriter.emit(relax.op.where(rewriter.emit(relax.op.greater(term, total)), term, total))
        else:
            total = rewriter.emit(relax.op.add(total, term))
    if largest:
        return total
    return rewriter.emit(relax.op.multiply(total, relax.const(1 / prod(sizes), "float32")))

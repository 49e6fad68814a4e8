"""Products of one tensor by several weights as one product: queries, keys and values of attention.

One product by all their columns reads its rows once, fills threads and tiles better, and is one step instead
of three. What reads the parts must be able to read them by strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import Rewriter, constant, is_constant, numpy_of, op_name, shape_of
from edgepack.compiler.graph.use_counts import CountingRewriter
from edgepack.compiler.graph.views import View

__all__ = ["joined"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class _Projection:
    """x @ weights + bias."""

    x: Any
    weights: Array
    bias: Array


def joined(rewriter: CountingRewriter, views: Sequence[View]) -> list[View]:
    """The views, of fewer tensors where they are projections of one tensor that nothing else reads."""
    found = [_projection(rewriter, view.base) for view in views]
    result = list(views)
    done: set[int] = set()
    for i, first in enumerate(found):
        if first is None or i in done:
            continue
        group = [(k, p) for k, p in enumerate(found) if p is not None and p.x.same_as(first.x)]
        done |= {k for k, _ in group}
        if len(group) > 1 and len({views[k].base for k, _ in group}) == len(group):
            _join(rewriter, group, result)
    return result


def _join(rewriter: Rewriter, group: Sequence[tuple[int, _Projection]], views: list[View]) -> None:
    """Computes the projections of ``group`` at once; views of the result replace theirs in ``views``."""
    widths = [p.weights.shape[1] for _, p in group]
    moved = []
    for n, (k, _) in enumerate(group):
        view = _widened(views[k], widths[n], sum(widths), sum(widths[:n]))
        if view is None:
            return
        moved.append(view)
    base = _emit(rewriter, [p for _, p in group])
    for (k, _), view in zip(group, moved, strict=True):
        views[k] = replace(view, base=base)


def _projection(rewriter: CountingRewriter, expr: Any) -> _Projection | None:
    call = rewriter.only(expr)
    bias = None
    if op_name(call) == "relax.add":
        for one, other in (call.args, call.args[::-1]):
            if is_constant(other) and numpy_of(other).size == shape_of(expr)[-1]:
                bias, call = numpy_of(other).reshape(-1), rewriter.only(one)
                break
    if op_name(call) != "relax.matmul" or shape_of(call) != shape_of(expr) or not is_constant(call.args[1]):
        return None
    weights = numpy_of(call.args[1])
    if weights.ndim != 2 or weights.dtype != np.float32:
        return None
    zeros = np.zeros(weights.shape[1], np.float32)
    return _Projection(call.args[0], weights, zeros if bias is None else bias)


def _widened(view: View, width: int, total: int, start: int) -> View | None:
    """The view of a tensor of rows of ``width`` where they lie at ``start`` in rows of ``total``."""
    strides, last = [], view.offset % width
    for n, stride in zip(view.shape, view.strides, strict=True):
        if stride % width == 0:
            strides.append(stride // width * total)
            continue
        last += (n - 1) * stride
        strides.append(stride)
    if last >= width:
        return None
    offset = view.offset // width * total + view.offset % width + start
    return replace(view, offset=offset, strides=tuple(strides))


def _emit(rewriter: Rewriter, parts: Sequence[_Projection]) -> Any:
    weights = constant(np.concatenate([p.weights for p in parts], axis=1))
    product = rewriter.emit(relax.op.matmul(parts[0].x, weights))
    bias = np.concatenate([p.bias for p in parts])
    return rewriter.emit(relax.op.add(product, constant(bias))) if bias.any() else product

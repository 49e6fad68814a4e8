"""Merge projections: products of one tensor by several constant weights become one product.

The queries, keys and values of attention are such projections of the same tokens. One product by the weights
of all, side by side, reads the tokens once, fills threads and register tiles better, and is one step instead
of three. Whoever reads the parts must be able to read them by strides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import (
    Array,
    Rewriter,
    constant,
    is_constant,
    numpy_of,
    op_name,
    shape_of,
)
from edgepack.compiler.graph.use_counts import UseCountingRewriter
from edgepack.compiler.graph.views import View

__all__ = ["merge_projections"]


@dataclass(frozen=True)
class _Projection:
    """x @ weights + bias."""

    x: relax.Expr
    weights: Array
    bias: Array


def merge_projections(rewriter: UseCountingRewriter, views: Sequence[View]) -> list[View]:
    """Makes one matrix product of the projections of the same tensor that nothing but ``views`` reads.

    Returns:
        The views, in order; those of merged projections are views of the one product's result.
    """
    found = [_projection(rewriter, view.base) for view in views]
    result = list(views)
    done: set[int] = set()
    for i, first in enumerate(found):
        if first is None or i in done:
            continue
        same = [(k, p) for k, p in enumerate(found) if p is not None and p.x.same_as(first.x)]
        done |= {k for k, _ in same}
        if len(same) > 1 and len({views[k].base for k, _ in same}) == len(same):
            _merge(rewriter, same, result)
    return result


def _merge(rewriter: Rewriter, same: Sequence[tuple[int, _Projection]], views: list[View]) -> None:
    """Computes projections of the same tensor by one product; views of its result replace theirs.

    Args:
        same: (index of the projection's view, projection).
        views: changed in place, or left as they are where a view would take more than strides.
    """
    widths = [p.weights.shape[1] for _, p in same]
    moved = []
    for n, (k, _) in enumerate(same):
        view = _widened(views[k], widths[n], sum(widths), sum(widths[:n]))
        if view is None:
            return
        moved.append(view)
    base = _emit(rewriter, [p for _, p in same])
    for (k, _), view in zip(same, moved, strict=True):
        views[k] = replace(view, base=base)


def _projection(rewriter: UseCountingRewriter, expr: relax.Expr) -> _Projection | None:
    call = rewriter.definition_if_used_once(expr)
    bias = None
    if op_name(call) == "relax.add":
        for one, other in (call.args, call.args[::-1]):
            if is_constant(other) and numpy_of(other).size == shape_of(expr)[-1]:
                bias, call = numpy_of(other).reshape(-1), rewriter.definition_if_used_once(one)
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


def _emit(rewriter: Rewriter, parts: Sequence[_Projection]) -> relax.Expr:
    weights = constant(np.concatenate([p.weights for p in parts], axis=1))
    product = rewriter.emit(relax.op.matmul(parts[0].x, weights))
    bias = np.concatenate([p.bias for p in parts])
    return rewriter.emit(relax.op.add(product, constant(bias))) if bias.any() else product

"""What values tensors of integers may have, as far as the operators that compute them say."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from tvm import relax

from edgepack.compiler.graph.rewrite import OptionalExpr, dtype_of, is_constant, numpy_of, op_name

__all__ = ["MOVES", "Range", "limits_of", "range_of", "wider"]

#: The least and the largest value.
Range = tuple[int, int]

#: What hands its first operand's elements on.
MOVES = {"relax.reshape", "relax.permute_dims", "relax.expand_dims", "relax.squeeze", "relax.broadcast_to"}

#: What takes some of them.
TAKES = {"relax.strided_slice", "relax.take", *(f"relax.nn.max_pool{rank}d" for rank in (1, 2, 3))}


def range_of(calls: Mapping[relax.Expr, relax.Call], expr: relax.Expr) -> Range | None:
    """The range of a tensor of integers; None where nothing is known.

    Args:
        calls: what each value is computed by.
    """
    if is_constant(expr):
        values = numpy_of(expr)
        whole = values.size and values.dtype.kind in "iu"
        return (int(values.min()), int(values.max())) if whole else None
    known, limits = _computed(calls, calls.get(expr), expr), limits_of(dtype_of(expr))
    if known is None or limits is None or known[0] < limits[0] or known[1] > limits[1]:
        return limits
    return known


def _computed(calls: Mapping[relax.Expr, relax.Call], call: OptionalExpr, expr: relax.Expr) -> Range | None:
    """What the operator alone says; it may exceed what the type holds."""
    name = op_name(call)
    if name in MOVES | TAKES:
        return range_of(calls, call.args[0])
    if name == "relax.astype":
        source = call.args[0]
        if limits_of(dtype_of(source)) is None:
            return _rounded(calls, source)
        return range_of(calls, source) if wider(dtype_of(source), dtype_of(expr)) else None
    if name == "relax.concat" and isinstance(call.args[0], relax.Tuple):
        return _joined([range_of(calls, field) for field in call.args[0].fields])
    if name == "relax.nn.pad" and str(call.attrs.pad_mode) == "constant":
        value = int(float(call.attrs.pad_value))
        return _joined([range_of(calls, call.args[0]), (value, value)])
    if name not in {"relax.subtract", "relax.add", "relax.maximum", "relax.minimum"}:
        return None
    a, b = (range_of(calls, arg) for arg in call.args)
    if a is None or b is None:
        return None
    if name in {"relax.maximum", "relax.minimum"}:
        chosen = max if name == "relax.maximum" else min
        return chosen(a[0], b[0]), chosen(a[1], b[1])
    return (a[0] - b[1], a[1] - b[0]) if name == "relax.subtract" else (a[0] + b[0], a[1] + b[1])


def _rounded(calls: Mapping[relax.Expr, relax.Call], expr: relax.Expr) -> Range | None:
    """The range of floats that are bounded by whole numbers and then rounded."""
    call: OptionalExpr = calls.get(expr)
    if op_name(call) != "relax.round" or op_name(bounded := calls.get(call.args[0])) != "relax.clip":
        return None
    assert isinstance(bounded, relax.Call)
    low, high = (float(bound.value) for bound in bounded.args[1:])
    return (int(low), int(high)) if low.is_integer() and high.is_integer() else None


def _joined(ranges: list[Range | None]) -> Range | None:
    """The range of tensors side by side."""
    known = [one for one in ranges if one is not None]
    if len(known) < len(ranges):
        return None
    return min(low for low, _ in known), max(high for _, high in known)


def limits_of(dtype: str) -> Range | None:
    """The least and the largest value of a type of integers; None for another type."""
    if not dtype.startswith(("int", "uint")):
        return None
    limits = np.iinfo(dtype)
    return int(limits.min), int(limits.max)


def wider(dtype: str, other: str) -> bool:
    """Whether the second type of integers has all values of the first."""
    a, b = limits_of(dtype), limits_of(other)
    return a is not None and b is not None and b[0] <= a[0] and a[1] <= b[1]

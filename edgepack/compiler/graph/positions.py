"""Gathers and scatters to TIR: a position counts from the end if it is negative, and one that is out of range
stands for the nearest element.

Both are said where the position is used, so that no kernel reads or writes elsewhere, whatever computes the
position and whatever is fused with it. ``safe_addresses.py`` proves that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax, te, tirx
from tvm.ir import PrimType

from edgepack.compiler.graph.rewrite import constant, is_constant, numpy_of, shape_of
from edgepack.errors import ModelError

__all__ = ["POSITIONED", "known_positions", "position"]

#: Types of positions that are computed with as they are; others as int32.
COMPUTED_AS_THEY_ARE = {"int32", "int64", "uint32", "uint64"}

Expr = Any


def known_positions(indices: relax.Expr, extents: int | Sequence[int]) -> np.ndarray[Any, Any]:
    """A constant's positions, brought into range: int32.

    Args:
        extents: of the one dimension that they are positions along, or of those of their last dimension.
    """
    found, ends = numpy_of(indices).astype(np.int64), np.asarray(extents, np.int64)
    return np.asarray(np.where(found < 0, found + ends, found).clip(0, ends - 1), np.int32)


def position(index: Expr, extent: int, *, known: bool = False) -> Expr:
    """A position along a dimension, in range.

    Args:
        index: of a type of integers, as a caller hands it in.
        extent: elements of the dimension.
        known: whether the index is in range, which is said once more where it is read.

    Raises:
        ModelError: the dimension has no element.
    """
    if extent < 1:
        raise ModelError(
            "The model reads or writes elements of a dimension that has none.",
            hint="Give its inputs larger sizes, or export it without the operator that leaves nothing.",
        )
    dtype = str(index.ty.dtype)
    if dtype not in COMPUTED_AS_THEY_ARE:
        index, dtype = tirx.Cast("int32", index), "int32"
    if dtype.startswith("uint"):
        return tirx.Cast("int64", tirx.Min(index, tirx.const(extent - 1, dtype)))
    zero, last = tirx.const(0, dtype), tirx.const(extent - 1, dtype)
    if not known:
        index = tirx.Select(index < zero, index + tirx.const(extent, dtype), index)
    return tirx.Max(tirx.Min(index, last), zero)


class _Positions:
    """The operand of a call that has positions, and how its elements are read.

    Attributes:
        operand: of the new call.
    """

    def __init__(self, indices: relax.Expr, extents: int | Sequence[int]) -> None:
        self.known = is_constant(indices)
        self.operand = constant(known_positions(indices, extents)) if self.known else indices

    def at(self, indices: Any, place: Sequence[Expr], extent: Expr) -> Expr:
        """The position that one element of the indices, a tensor or a buffer, stands for."""
        element = indices(*place) if isinstance(indices, te.Tensor) else indices[tuple(place)]
        return position(element, int(extent), known=self.known)


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """Where the positions are, all elements of the other dimensions."""
    data, indices = call.args
    axis = 0 if call.attrs.axis is None else int(call.attrs.axis) % len(shape_of(data))
    positions, rank = _Positions(indices, shape_of(data)[axis]), len(shape_of(indices))

    def compute(x: te.Tensor, ids: te.Tensor) -> te.Tensor:
        shape = [*x.shape[:axis], *ids.shape, *x.shape[axis + 1 :]]

        def element(*at: Any) -> Any:
            place = positions.at(ids, at[axis : axis + rank], x.shape[axis])
            return x[(*at[:axis], place, *at[axis + rank :])]

        return te.compute(shape, element, name="take")

    return builder.call_te(compute, data, positions.operand, primfunc_name_hint="take")


def _gather_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    data, indices = call.args
    axis = int(call.attrs.axis) % len(shape_of(data))
    positions = _Positions(indices, shape_of(data)[axis])

    def compute(x: te.Tensor, ids: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            return x[(*at[:axis], positions.at(ids, at, x.shape[axis]), *at[axis + 1 :])]

        return te.compute(ids.shape, element, name="gather")

    return builder.call_te(compute, data, positions.operand, primfunc_name_hint="gather")


def _gather_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """The last dimension of the indices has a position along each of some dimensions."""
    data, indices = call.args
    batches, depth, outer = int(call.attrs.batch_dims), shape_of(indices)[-1], len(shape_of(indices)) - 1
    positions = _Positions(indices, shape_of(data)[batches : batches + depth])

    def compute(x: te.Tensor, ids: te.Tensor) -> te.Tensor:
        def element(*at: Any) -> Any:
            place = [positions.at(ids, (*at[:outer], j), x.shape[batches + j]) for j in range(depth)]
            return x[(*at[:batches], *place, *at[outer:])]

        return te.compute([*ids.shape[:-1], *x.shape[batches + depth :]], element, name="gather_nd")

    return builder.call_te(compute, data, positions.operand, primfunc_name_hint="gather_nd")


#: What an update does to the element at its place.
REDUCTIONS: dict[str, Callable[[Expr, Expr], Expr]] = {
    "update": lambda _, new: new,
    "add": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "min": tirx.min,
    "max": tirx.max,
}


#: Makes the loops that write updates into a copy of the data: of the copy, the indices, the updates.
Loops = Callable[[Any, Any, Any], tirx.Stmt]


def _scatter(
    builder: relax.BlockBuilder, call: relax.Call, positions: _Positions, loops: Loops, name: str
) -> relax.Call:
    """A copy of the data, into which updates are written."""

    def statements(ins: Sequence[Any], outs: Sequence[Any]) -> tirx.Stmt:
        (data, indices, updates), (out,) = ins, outs
        extents = [int(n) for n in data.shape]

        def copy(at: Expr) -> tirx.Stmt:
            place = _unravelled(at, extents)
            return tirx.BufferStore(out, data[tuple(place)], place)

        return tirx.SeqStmt([_loop(prod(extents), copy, parallel=True), loops(out, indices, updates)])

    def compute(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        operands = [data, indices, updates]
        return te.extern([data.shape], operands, statements, dtype=str(data.dtype), name=name)

    data, _, updates = call.args
    return builder.call_te(compute, data, positions.operand, updates, primfunc_name_hint=name)


def _scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """Lines of the indices along the axis are done in parallel: no two write to the same line of the data."""
    shape, reduce = shape_of(call.args[0]), REDUCTIONS[str(call.attrs.reduction)]
    axis, extents = int(call.attrs.axis) % len(shape), shape_of(call.args[1])
    positions = _Positions(call.args[1], shape[axis])

    def loops(out: Any, indices: Any, updates: Any) -> tirx.Stmt:
        def line(number: Expr) -> tirx.Stmt:
            before = _unravelled(number, [*extents[:axis], *extents[axis + 1 :]])

            def element(k: Expr) -> tirx.Stmt:
                at = (*before[:axis], k, *before[axis:])
                place = [*before[:axis], positions.at(indices, at, shape[axis]), *before[axis:]]
                return tirx.BufferStore(out, reduce(out[tuple(place)], updates[at]), place)

            return _loop(extents[axis], element)

        return _loop(prod(extents) // max(1, extents[axis]), line, parallel=True)

    return _scatter(builder, call, positions, loops, "scatter_elements")


def _scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Call:
    """Positions in the order in which the indices have them, for two may be the same."""
    shape, reduce = shape_of(call.args[0]), REDUCTIONS[str(call.attrs.reduction)]
    *extents, depth = shape_of(call.args[1])
    positions = _Positions(call.args[1], shape[:depth])

    def loops(out: Any, indices: Any, updates: Any) -> tirx.Stmt:
        def part(number: Expr) -> tirx.Stmt:
            at = _unravelled(number, extents)
            first = [positions.at(indices, (*at, j), shape[j]) for j in range(depth)]

            def element(k: Expr) -> tirx.Stmt:
                rest = _unravelled(k, shape[depth:])
                place = [*first, *rest]
                return tirx.BufferStore(out, reduce(out[tuple(place)], updates[(*at, *rest)]), place)

            return _loop(prod(shape[depth:]), element)

        return _loop(prod(extents), part)

    return _scatter(builder, call, positions, loops, "scatter_nd")


def _loop(extent: int, body: Callable[[Expr], tirx.Stmt], *, parallel: bool = False) -> tirx.Stmt:
    variable = tirx.Var("i", PrimType("int64"))
    zero, end = tirx.const(0, "int64"), tirx.const(extent, "int64")
    kind = tirx.ForKind.PARALLEL if parallel else tirx.ForKind.SERIAL
    return tirx.For(variable, zero, end, kind, body(variable))


def _unravelled(number: Expr, extents: Sequence[int]) -> list[Expr]:
    """The place of an element in a tensor of these extents, by its number."""
    place: list[Expr] = []
    for axis, extent in reversed(list(enumerate(extents))):
        place.append(tirx.floormod(number, tirx.const(extent, "int64")) if axis else number)
        number = tirx.floordiv(number, tirx.const(extent, "int64"))
    return place[::-1]


#: Legalisations of the operators whose second operand has positions, by the operator.
POSITIONED: dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Call]] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.scatter_elements": _scatter_elements,
    "relax.scatter_nd": _scatter_nd,
}

"""Positions that no data decide: proved in range, under the conditions that an access stands behind.

Legalisations trust the shapes and widths that they are given. Those of a hostile model need not fit each
other (updates of more rows than the data have, a mirror that is wider than what it mirrors), and where no
shape inference looks, as in a branch, nothing else says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir import SBlock, SBlockRealize
from tvm.tirx import PrimFunc

from edgepack.compiler.graph.index_bounds import Bounds, Range

__all__ = ["wild_access"]

Expr = Any

#: An expression, and whether it is true where an access is done.
Condition = tuple[Expr, bool]

#: Places of counters that are tried one by one; where there are more, a position counts as not proved.
MOST_PLACES = 1 << 24


def wild_access(function: PrimFunc, bounds: Bounds) -> tuple[Expr, int] | None:
    """A tensor, and the axis along which it is read or written outside, or cannot be seen not to be; None if
    there is none. Positions that depend on data are not looked at.

    Args:
        bounds: of the function.
    """
    static = (
        (tensor, axis, index)
        for tensor, indices in bounds.accesses
        for axis, index in enumerate(indices)
        if not bounds.depends_on_data(index)
    )
    if all(_fits(bounds.of(index), int(tensor.shape[axis])) for tensor, axis, index in static):
        return None
    return next(_of_statement(function.body, (), bounds), None)


def _fits(found: Range, extent: int) -> bool:
    return found[0] >= 0 and found[1] < extent


Found = Iterator[tuple[Expr, int]]


def _of_statement(x: Any, behind: tuple[Condition, ...], bounds: Bounds) -> Found:
    if isinstance(x, tirx.SeqStmt):
        for part in x.seq:
            yield from _of_statement(part, behind, bounds)
    elif isinstance(x, tirx.For | tirx.AttrStmt):
        yield from _of_statement(x.body, behind, bounds)
    elif isinstance(x, SBlockRealize):
        yield from _of_statement(x.block, (*behind, (x.predicate, True)), bounds)
    elif isinstance(x, SBlock):
        for part in (x.init, x.body):
            if part is not None:
                yield from _of_statement(part, behind, bounds)
    elif isinstance(x, tirx.IfThenElse):
        yield from _of_statement(x.then_case, (*behind, (x.condition, True)), bounds)
        if x.else_case is not None:
            yield from _of_statement(x.else_case, (*behind, (x.condition, False)), bounds)
    elif isinstance(x, tirx.BufferStore):
        yield from _of_access(x.buffer, x.indices, behind, bounds)
        yield from _of_expression(x.value, behind, bounds)
    else:
        loads: list[TensorLoad] = []
        tvm_ffi.structural_walk(x, (TensorLoad, loads.append))
        for load in loads:
            yield from _of_access(load.source, load.indices, behind, bounds)


def _of_expression(x: Expr, behind: tuple[Condition, ...], bounds: Bounds) -> Found:
    if isinstance(x, Call) and str(getattr(x.op, "name", "")).rpartition(".")[2] == "if_then_else":
        condition, yes, no = x.args
        yield from _of_expression(condition, behind, bounds)
        yield from _of_expression(yes, (*behind, (condition, True)), bounds)
        yield from _of_expression(no, (*behind, (condition, False)), bounds)
    elif isinstance(x, TensorLoad):
        yield from _of_access(x.source, x.indices, behind, bounds)
        for index in x.indices:
            yield from _of_expression(index, behind, bounds)
    else:
        for part in _parts(x):
            yield from _of_expression(part, behind, bounds)


def _parts(x: Expr) -> Sequence[Expr]:
    if isinstance(x, Call):
        return [part for part in x.args if hasattr(part, "ty")]
    names = ("a", "b", "value", "condition", "true_value", "false_value", "body", "source", "init")
    found: list[Expr] = []
    for name in names:
        part = getattr(x, name, None)
        if part is not None and hasattr(part, "ty"):
            found.append(part)
        elif name in {"source", "init"} and part is not None and not isinstance(part, str | bytes):
            found += list(part)
    return found


def _of_access(tensor: Any, indices: Sequence[Expr], behind: tuple[Condition, ...], bounds: Bounds) -> Found:
    for axis, index in enumerate(indices):
        extent = int(tensor.shape[axis])
        if bounds.depends_on_data(index) or _fits(bounds.of(index), extent):
            continue
        conditions = list(_single(behind))
        if _fits(bounds.within(_narrowed(conditions, bounds)).of(index), extent):
            continue
        if not _is_tried(index, extent, [c for c in conditions if not bounds.depends_on_data(c[0])], bounds):
            yield tensor, axis


def _single(conditions: Sequence[Condition]) -> Iterator[Condition]:
    """Conditions that all hold, those that are made of several taken apart."""
    for x, truth in conditions:
        if (isinstance(x, tirx.And) and truth) or (isinstance(x, tirx.Or) and not truth):
            yield from _single([(x.a, truth), (x.b, truth)])
        elif isinstance(x, tirx.Not):
            yield from _single([(x.a, not truth)])
        else:
            yield x, truth


_OPPOSITE = {tirx.LT: tirx.GE, tirx.GE: tirx.LT, tirx.LE: tirx.GT, tirx.GT: tirx.LE}
_TURNED = {tirx.LT: tirx.GT, tirx.GT: tirx.LT, tirx.LE: tirx.GE, tirx.GE: tirx.LE}


def _narrowed(conditions: Sequence[Condition], bounds: Bounds) -> dict[Expr, Range]:
    """The ranges of counters that are compared with numbers."""
    ranges: dict[Expr, Range] = {}
    for x, truth in conditions:
        kind = type(x) if truth else _OPPOSITE.get(type(x))
        if kind not in _TURNED:
            continue
        variable, number = x.a, x.b
        if isinstance(variable, tirx.IntImm):
            variable, number, kind = number, variable, _TURNED[kind]
        if not isinstance(variable, tirx.Var) or not isinstance(number, tirx.IntImm):
            continue
        low, high = ranges.get(variable, bounds.of(variable))
        end = int(number)
        if kind in {tirx.LT, tirx.LE}:
            high = min(high, end - (kind is tirx.LT))
        else:
            low = max(low, end + (kind is tirx.GT))
        ranges[variable] = low, high
    return ranges


def _is_tried(index: Expr, extent: int, conditions: Sequence[Condition], bounds: Bounds) -> bool:
    """Whether the index is in range at every place of its counters at which the conditions hold."""
    own = _variables(index)
    for chosen in (
        [c for c in conditions if _variables(c[0]) <= own],
        [c for c in conditions if _variables(c[0]) & own],
        conditions,
    ):
        counters = sorted(own.union(*(_variables(c[0]) for c in chosen)), key=str)
        ranges = [bounds.of(counter) for counter in counters]
        sizes = [int(high - low) + 1 for low, high in ranges if high - low < MOST_PLACES]
        if len(sizes) < len(ranges) or prod(sizes) > MOST_PLACES:
            continue
        axes = (np.arange(int(low), int(high) + 1, dtype=np.int64) for low, high in ranges)
        values = dict(zip(counters, np.meshgrid(*axes, indexing="ij", sparse=True), strict=True))
        try:
            found = np.asarray(_value(index, values))
            wrong = (found < 0) | (found >= extent)
            for condition, truth in chosen:
                wrong = wrong & (np.asarray(_value(condition, values), bool) == truth)
        except _UnknownError:
            continue
        if not wrong.any():
            return True
    return False


def _variables(x: Expr) -> set[Expr]:
    found: set[Expr] = set()
    tvm_ffi.structural_walk(x, (tirx.Var, found.add))
    return found


class _UnknownError(Exception):
    """An operation that is not computed here."""


_OPERATIONS: Mapping[type, Callable[[Any, Any], Any]] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.FloorDiv: np.floor_divide,
    tirx.FloorMod: np.mod,
    tirx.Div: lambda a, b: np.sign(a) * np.sign(b) * (np.abs(a) // np.abs(b)),
    tirx.Mod: np.fmod,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
    tirx.Min: np.minimum,
    tirx.Max: np.maximum,
    tirx.And: np.logical_and,
    tirx.Or: np.logical_or,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
}


def _value(x: Expr, values: dict[Expr, Any]) -> Any:
    """An expression of whole numbers at all places of the counters."""
    kind = type(x)
    if kind is tirx.IntImm:
        return int(x)
    if kind is tirx.Var and x in values:
        return values[x]
    if kind in _OPERATIONS:
        return _OPERATIONS[kind](_value(x.a, values), _value(x.b, values))
    if kind is tirx.Not:
        return np.logical_not(_value(x.a, values))
    if kind is tirx.Select:
        return np.where(*(_value(part, values) for part in (x.condition, x.true_value, x.false_value)))
    if kind is tirx.Cast and str(x.ty.dtype).startswith("int"):
        return _value(x.value, values)
    if kind is Call and str(getattr(x.op, "name", "")).rpartition(".")[2] in {"likely", "if_then_else"}:
        parts = [_value(part, values) for part in x.args]
        return parts[0] if len(parts) == 1 else np.where(*parts)
    raise _UnknownError

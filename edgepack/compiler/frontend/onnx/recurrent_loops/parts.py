"""What operators that reshape, cut and join make of the values of a trip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.recurrent_loops.trip import (
    Choice,
    Found,
    Operator,
    Outer,
    Rows,
    Schedule,
    Shaped,
    Trip,
    Value,
    Written,
    integers,
)
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["PARTS"]


# Shapes -------------------------------------------------------------------------------------------------


def _shape(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    import numpy as np

    values, (one,) = attributes(node), operands
    if one is None:
        return None
    dims = list(one.shape)[values.get("start", 0) : values.get("end")]
    return [np.asarray(dims, np.int64)]


def _same(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    return [operands[0]]


def _with_shape(trip: Trip, value: Value, shape: Sequence[int]) -> Found:
    """The same elements, in another shape."""
    if isinstance(value, Schedule):
        return [Schedule(value.numbers, tuple(shape))] if prod(shape) == 1 else None
    if isinstance(value, Choice):
        return [replace(value, shape=tuple(shape))] if prod(shape) == trip.batch else None
    return [trip.rows(shape, *value.parts)] if isinstance(value, Rows) else None


def _reshape(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    one, wanted = operands[0], integers(operands[1])
    if wanted is None or not isinstance(one, Rows | Schedule | Choice):
        return None
    kept = [one.shape[i] if size == 0 and i < len(one.shape) else size for i, size in enumerate(wanted)]
    rest = prod(size for size in kept if size != -1)
    if kept.count(-1) > 1 or not rest:
        return None
    shape = [prod(one.shape) // rest if size == -1 else size for size in kept]
    return _with_shape(trip, one, shape) if prod(shape) == prod(one.shape) else None


def _axes(node: onnx.NodeProto, operands: Sequence[Value]) -> list[int] | None:
    """The operand or attribute of that name; None of one that is not known."""
    if len(node.input) > 1 and node.input[1]:
        return integers(operands[1])
    return [int(axis) for axis in attributes(node).get("axes", ())]


def _squeeze(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    one, axes = operands[0], _axes(node, operands)
    if axes is None or not isinstance(one, Rows | Schedule | Choice):
        return None
    rank = len(one.shape)
    gone = {axis % rank for axis in axes} or {i for i, size in enumerate(one.shape) if size == 1}
    return _with_shape(trip, one, [size for i, size in enumerate(one.shape) if i not in gone])


def _unsqueeze(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    one, axes = operands[0], _axes(node, operands)
    if axes is None or not isinstance(one, Rows | Schedule | Choice):
        return None
    rank = len(one.shape) + len(axes)
    places, rest = {axis % rank for axis in axes}, iter(one.shape)
    return _with_shape(trip, one, [1 if i in places else next(rest) for i in range(rank)])


def _flatten(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    (one,) = operands
    if not isinstance(one, Rows):
        return None
    axis = attributes(node).get("axis", 1)
    axis += len(one.shape) if axis < 0 else 0
    return _with_shape(trip, one, [prod(one.shape[:axis]), prod(one.shape[axis:])])


def _transpose(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    """Where only dimensions of 1 move."""
    (one,) = operands
    if not isinstance(one, Rows):
        return None
    perm = attributes(node).get("perm", list(reversed(range(len(one.shape)))))
    moved = [axis for axis in perm if one.shape[axis] > 1]
    return _with_shape(trip, one, [one.shape[axis] for axis in perm]) if moved == sorted(moved) else None


def _expand(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    import numpy as np

    one, wanted = operands[0], integers(operands[1])
    if wanted is None or not isinstance(one, Rows):
        return None
    return _with_shape(trip, one, np.broadcast_shapes(one.shape, tuple(wanted)))


# Parts --------------------------------------------------------------------------------------------------


def _columns(trip: Trip, rows: Rows, axis: int, start: int, stop: int) -> Rows | None:
    """A slice along an axis that numbers columns."""
    axis %= len(rows.shape)
    if prod(rows.shape[:axis]) != trip.batch or not 0 <= start < stop <= rows.shape[axis]:
        return None
    inner = prod(rows.shape[axis + 1 :])
    shape = [*rows.shape[:axis], stop - start, *rows.shape[axis + 1 :]]
    return trip.rows(shape, *rows.slice(start * inner, stop * inner))


def _split(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    values, one = attributes(node), operands[0]
    if not isinstance(one, Rows):
        return None
    axis = values.get("axis", 0)
    extent, count = one.shape[axis], len(node.output)
    sizes = values.get("split")
    if len(node.input) > 1 and node.input[1]:
        sizes = integers(operands[1])
        if sizes is None:
            return None
    each = -(-extent // count)
    sizes = sizes or [min(each, extent - i * each) for i in range(count)]
    if sum(sizes) != extent or min(sizes) < 1:
        return None
    starts = [sum(sizes[:i]) for i in range(count)]
    return [_columns(trip, one, axis, s, s + size) for s, size in zip(starts, sizes, strict=True)]


def _slice(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    one, starts, ends, *others = operands
    if isinstance(one, Outer):
        return _element_slice(trip, one, [starts, ends, *others], len(node.input))
    given = [integers(value) for value in operands[1:]]
    if not isinstance(one, Rows) or any(n and g is None for n, g in zip(node.input[1:], given, strict=True)):
        return None
    first, last, axes, steps = [*given, None, None][:4]
    assert first is not None and last is not None
    for place, axis in enumerate(axes or range(len(first))):
        if steps is not None and steps[place] != 1:
            return None
        start, stop, _ = slice(first[place], last[place]).indices(one.shape[axis])
        if (start, stop) != (0, one.shape[axis]):
            one = _columns(trip, one, axis, start, stop)
            if one is None:
                return None
    return [one]


def _element_slice(trip: Trip, source: Outer, given: Sequence[Value], count: int) -> Found:
    """One element of a sequence, of which the axis is kept."""
    starts, ends, axes, steps = [*given, None, None][:4]
    axis, step = integers(axes), integers(steps)
    if not isinstance(starts, Schedule) or not isinstance(ends, Schedule) or count < 4:
        return None
    if axis is None or len(axis) != 1 or (count > 4 and step != [1]):
        return None
    if (ends.numbers - starts.numbers != 1).any() or (starts.numbers < 0).any():
        return None
    place = axis[0] % len(source.shape)
    shape = [*source.shape[:place], 1, *source.shape[place + 1 :]]
    return [trip.element(source, starts, place, shape)]


def _gather(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    one, index = operands
    axis = attributes(node).get("axis", 0)
    if isinstance(index, Schedule) and isinstance(one, Outer | Shaped):
        axis %= len(one.shape)
        shape = [*one.shape[:axis], *index.shape, *one.shape[axis + 1 :]]
        return [Shaped(tuple(shape)) if isinstance(one, Shaped) else trip.element(one, index, axis, shape)]
    places = integers(index)
    if not isinstance(one, Rows) or places is None or len(places) != 1:
        return None
    axis %= len(one.shape)
    start = places[0] % one.shape[axis]
    found = _columns(trip, one, axis, start, start + 1)
    shape = [*one.shape[:axis], *index.shape, *one.shape[axis + 1 :]]
    return None if found is None else _with_shape(trip, found, shape)


def _concat(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    if not all(isinstance(one, Rows) for one in operands):
        return None
    axis = attributes(node)["axis"] % len(operands[0].shape)
    others = {(*one.shape[:axis], *one.shape[axis + 1 :]) for one in operands}
    if len(others) != 1 or prod(operands[0].shape[:axis]) != trip.batch:
        return None
    shape = list(operands[0].shape)
    shape[axis] = sum(one.shape[axis] for one in operands)
    return [trip.rows(shape, *(part for one in operands for part in one.parts))]


def _scatter(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    """A row of what the loop carries, replaced."""
    one, where, row = operands
    if not isinstance(one, Shaped) or one.place < 0 or not isinstance(where, Schedule):
        return None
    if not isinstance(row, Rows) or attributes(node).get("reduction", "none") != "none" or not where.shape:
        return None
    fits = where.shape[-1] == 1 and tuple(row.shape) == (*where.shape[:-1], *one.shape[1:])
    return [Written(one.place, one.shape, where, row)] if fits else None


#: By operator.
PARTS: dict[str, Operator] = {
    "Concat": _concat,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gather": _gather,
    "Identity": _same,
    "Reshape": _reshape,
    "ScatterND": _scatter,
    "Shape": _shape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}

"""Tensors that are a part of another one, or its elements in another order: where in memory they would lie.

Transposes, slices, splits, picking by a constant index and reshapes are index maps. What can read with
strides does not need their results in memory. A number that a view is multiplied by is kept with it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import relax

from edgepack.compiler.graph.rewrite import OptionalExpr, dtype_of, is_constant, numpy_of, op_name, shape_of

__all__ = ["View", "number_of", "strides_of", "transposed_base", "view_of"]


#: What a variable is bound to; None for a parameter.
Definition = Callable[[relax.Expr], OptionalExpr]


@dataclass(frozen=True)
class View:
    """Element ``i`` is ``scale`` times ``base``'s flat element ``offset + sum(i[d] * strides[d])``."""

    base: relax.Expr
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    scale: float = 1.0

    def picked(self, axes: Sequence[int]) -> View:
        """These axes, in this order; the others are left at their first element."""
        shape, strides = tuple(self.shape[a] for a in axes), tuple(self.strides[a] for a in axes)
        return replace(self, shape=shape, strides=strides)

    def sliced(self, axis: int, begin: int, length: int, step: int = 1) -> View:
        """``length`` elements of one axis from ``begin`` on."""
        shape, strides = list(self.shape), list(self.strides)
        offset = self.offset + begin * strides[axis]
        shape[axis], strides[axis] = length, strides[axis] * step
        return replace(self, offset=offset, shape=tuple(shape), strides=tuple(strides))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """The same elements in another shape; None where that takes more than strides."""
        strides: list[int] = []
        old = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        have, step = 1, 0  # what is left of the old axis, and its stride
        for n in reversed(shape):
            if n == 1:
                strides.append(0)
                continue
            if have == 1:
                have, step = old.pop()
            while have % n and old and old[-1][1] == step * have:
                have *= old.pop()[0]
            if have % n:
                return None
            strides.append(step)
            have, step = have // n, step * n
        return replace(self, shape=tuple(shape), strides=tuple(reversed(strides)))


def strides_of(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides of a dense array in C order."""
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def view_of(expr: relax.Expr, definition: Definition) -> View:
    """The expression as a view of a tensor that has to be in memory, at worst of itself.

    Args:
        definition: what a variable is bound to, or None.
    """
    shape = shape_of(expr)
    call = definition(expr) if isinstance(expr, relax.Var) else None
    if isinstance(call, relax.TupleGetItem):
        found = _part(call, definition)
    else:
        found = _mapped(call, shape, definition)
    return found or View(expr, 0, shape, strides_of(shape))


def _mapped(call: OptionalExpr, shape: tuple[int, ...], definition: Definition) -> View | None:
    name = op_name(call)
    if name == "relax.permute_dims":
        rank = len(shape)
        axes = call.attrs.axes
        order = list(reversed(range(rank))) if axes is None else [int(a) % rank for a in axes]
        return view_of(call.args[0], definition).picked(order)
    if name in {"relax.reshape", "relax.squeeze", "relax.expand_dims"}:
        return view_of(call.args[0], definition).reshaped(shape)
    if name == "relax.take" and call.attrs.axis is not None and is_constant(call.args[1]):
        return _taken(call, definition)
    if name == "relax.strided_slice":
        return _sliced(call, definition)
    if name in {"relax.multiply", "relax.divide"} and shape_of(call.args[0]) == shape:
        number = number_of(call.args[1])
        if number is None or not number:
            return None
        data = view_of(call.args[0], definition)
        return replace(data, scale=data.scale * (number if name == "relax.multiply" else 1 / number))
    return None


def transposed_base(expr: relax.Expr, axes: Sequence[int], definition: Definition) -> relax.Expr | None:
    """The tensor whose elements a transpose of the expression brings back into their order; None if it does
    not.

    Args:
        axes: of the transpose.
        definition: what a variable is bound to, or None.
    """
    view = view_of(expr, definition).picked(axes)
    dense = zip(view.shape, view.strides, strides_of(view.shape), strict=True)
    whole = prod(view.shape) == prod(shape_of(view.base)) and view.offset == 0 and view.scale == 1
    return view.base if whole and all(own == s for n, own, s in dense if n != 1) else None


def number_of(expr: relax.Expr, dtypes: Collection[str] = ("float32",)) -> float | None:
    """The value of a constant of one element, of one of these types; None for another expression."""
    if not is_constant(expr) or numpy_of(expr).size != 1 or dtype_of(expr) not in dtypes:
        return None
    return float(numpy_of(expr).reshape(-1)[0])


def _taken(call: relax.Call, definition: Definition) -> View | None:
    index = numpy_of(call.args[1])
    data = view_of(call.args[0], definition)
    axis = int(call.attrs.axis) % len(data.shape)
    at = int(index.reshape(-1)[0]) if index.size == 1 else data.shape[axis]
    at += data.shape[axis] if at < 0 else 0
    if not 0 <= at < data.shape[axis]:
        return None
    found = data.sliced(axis, at, 1)
    return found.reshaped([*data.shape[:axis], *index.shape, *data.shape[axis + 1 :]])


def _sliced(call: relax.Call, definition: Definition) -> View | None:
    data = view_of(call.args[0], definition)
    lists = [_numbers(argument) for argument in call.args[1:]]
    if any(numbers is None for numbers in lists) or len(lists) < 3:
        return None
    axes, begins = lists[0] or [], lists[1] or []
    steps = (lists[3] if len(lists) > 3 else None) or [1] * len(axes)
    for axis, begin, step in zip(axes, begins, steps, strict=True):
        length, n = shape_of(call)[axis], data.shape[axis]
        first = min(max(begin + n if begin < 0 else begin, 0), n)
        if step < 1 or first + (length - 1) * step >= n:
            return None
        data = data.sliced(axis % len(data.shape), first, length, step)
    return data


def _numbers(expr: relax.Expr) -> list[int] | None:
    """A tuple of numbers that are known now."""
    if not isinstance(expr, relax.Tuple):
        return None
    values = [getattr(field, "value", field) for field in expr.fields]
    try:
        return [int(v) for v in values]
    except (TypeError, ValueError):
        return None


def _part(item: relax.TupleGetItem, definition: Definition) -> View | None:
    """A field of a split tensor."""
    call = definition(item.tuple_value) if isinstance(item.tuple_value, relax.Var) else None
    if call is None or op_name(call) != "relax.split":
        return None
    data = view_of(call.args[0], definition)
    axis = int(call.attrs.axis) % len(data.shape)
    before = sum(int(field.shape[axis]) for field in call.ty.fields[: item.index])
    return data.sliced(axis, before, int(call.ty.fields[item.index].shape[axis]))

"""Operators that mix elements along an axis with padding: padding is made what does not count."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, least, minus, most, plus
from edgepack.compiler.frontend.onnx.growing.node import Node
from edgepack.compiler.frontend.onnx.growing.rules import Rule, broadcast
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value

__all__ = ["MIXING"]

_INF = float("inf")

#: What padding becomes before a reduction, so that it changes nothing.
NEUTRAL = {
    **{"ReduceL1": 0.0, "ReduceL2": 0.0, "ReduceLogSum": 0.0, "ReduceMean": 0.0, "ReduceSum": 0.0},
    **{"ReduceLogSumExp": -_INF, "ReduceMax": -_INF, "ReduceMin": _INF, "ReduceProd": 1.0},
    "ReduceSumSquare": 0.0,
}

#: Those whose result of no elements is the same as without padding.
OF_NONE = {"ReduceL1", "ReduceL2", "ReduceProd", "ReduceSum", "ReduceSumSquare"}


def _filled(n: Node, value: Value, axis: int, fill: float) -> Value:
    """A tensor of which there is an element, with a number in the place of its padding."""
    if least((value.dims or ())[axis]) < 1:
        raise UnknownError(f"{value.name!r} may have no elements, and it needs one")
    return n.scope.guarded(value, axis, fill)


def reduce(n: Node) -> list[Value]:
    import onnx

    dims = n.dims(0)
    axes = n.axes(() if n.about.get("noop_with_empty_axes", 0) else None)
    padded = [axis for axis in axes if isinstance(dims[axis], Extent)]
    value = n[0]
    boolean = value.element == onnx.TensorProto.BOOL
    for axis in padded:
        fill = 0.0 if boolean and n.op == "ReduceMax" else 1.0 if boolean else NEUTRAL[n.op]
        given = n.scope.guarded if n.op in OF_NONE else lambda v, a, f: _filled(n, v, a, f)
        value = given(value, axis, fill)
    kept = n.about.get("keepdims", 1)
    after = [1 if axis in axes else dim for axis, dim in enumerate(dims) if kept or axis not in axes]
    given_all = [value, *n.given[1:]]
    if n.op != "ReduceMean" or not padded:
        return n.written(after, given_all)
    return _mean(n, value, axes, after)


def _mean(n: Node, value: Value, axes: Sequence[int], after: Sequence[Dim]) -> list[Value]:
    import onnx

    keep = int(n.about.get("keepdims", 1))
    if n.scope.shared.opset >= 13:
        total = n.scope.op("ReduceSum", value, n.scope.numbers(*axes), keepdims=keep)
    else:
        total = n.scope.op("ReduceSum", value, axes=list(axes), keepdims=keep)
    count: Value | None = None
    for axis in axes:
        one = n.scope.amount([n.dims(0)[axis]], onnx.TensorProto.INT64, [])
        count = one if count is None else n.scope.op("Mul", count, one)
    assert count is not None
    number = n.scope.op("Cast", count, to=value.element)
    return [n.described(n.scope.op("Div", total, number), after)]


def softmax(n: Node) -> list[Value]:
    """Softmax and LogSoftmax: padding is minus infinity, whose exponential is 0."""
    dims = n.dims(0)
    old = n.scope.shared.opset < 13
    axis = n.axis(1 if old else -1)
    if old and axis != len(dims) - 1:
        raise UnknownError("it computes along several axes at once: convert the model to opset 13 or later")
    value = n[0]
    if isinstance(dims[axis], Extent):
        value = _filled(n, value, axis, -_INF)
    return n.written(dims, [value], {axis} if n.op == "Softmax" else set())


def arg(n: Node) -> list[Value]:
    """ArgMax and ArgMin: of equal elements the first one is found, never padding."""
    dims, axis, value = n.dims(0), n.axis(0), n[0]
    if isinstance(dims[axis], Extent):
        if n.about.get("select_last_index", 0):
            raise UnknownError("it finds the last one of equal elements, which may be padding")
        value = _filled(n, value, axis, -_INF if n.op == "ArgMax" else _INF)
    kept = n.about.get("keepdims", 1)
    after = [1 if i == axis else dim for i, dim in enumerate(dims) if kept or i != axis]
    return n.written(after, [value])


def top_k(n: Node) -> list[Value]:
    dims, axis, value = n.dims(0), n.axis(-1), n[0]
    (number,) = n.whole(1) or [0]
    if isinstance(dims[axis], Extent):
        if number > least(dims[axis]):
            raise UnknownError("it looks for more elements than there may be")
        value = n.scope.guarded(value, axis, -_INF if n.about.get("largest", 1) else _INF)
    after = [number if i == axis else dim for i, dim in enumerate(dims)]
    return n.written(after, [value, *n.given[1:]])


# Products -------------------------------------------------------------------------------------------------


def mat_mul(n: Node) -> list[Value]:
    left, right = n.dims(0), n.dims(1)
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    summed = (left[-1], right[-2] if len(right) > 1 else right[-1])
    values = _multiplied(n, summed, (len(left) - 1, max(0, len(right) - 2)))
    n.plain(*range(2, len(n.given)))
    batch = broadcast(n, [left[:-2], right[:-2]]) if max(len(left), len(right)) > 2 else []
    return n.written([*batch, *rows, *columns], values)


def _multiplied(n: Node, summed: tuple[Dim, Dim], axes: tuple[int, int]) -> list[Value]:
    """The factors of a product, 0 in the place of padding that would be summed."""
    if summed[0] != summed[1]:
        raise UnknownError("it multiplies by as many rows as there are columns only in some trips")
    values = list(n.given)
    if isinstance(summed[0], Extent):
        if n.op not in ("MatMul", "Gemm"):
            raise UnknownError("it sums integers with a zero point along a size that changes with each trip")
        values[:2] = [n.scope.guarded(value, axis) for value, axis in zip(values[:2], axes, strict=True)]
    return values


def gemm(n: Node) -> list[Value]:
    left, right = list(n.dims(0)), list(n.dims(1))
    turned = bool(n.about.get("transA", 0)), bool(n.about.get("transB", 0))
    summed = left[0 if turned[0] else 1], right[1 if turned[1] else 0]
    values = _multiplied(n, summed, (0 if turned[0] else 1, 1 if turned[1] else 0))
    dims = [left[1 if turned[0] else 0], right[0 if turned[1] else 1]]
    if n[2].name and broadcast(n, [dims, n.dims(2)]) != dims:
        raise UnknownError("what it adds is larger than the product")
    return n.written(dims, values)


# Places ---------------------------------------------------------------------------------------------------


def gather(n: Node) -> list[Value]:
    data, axis, indices = n.dims(0), n.axis(), n[1]
    for along in indices.padded:
        indices = n.scope.guarded(indices, along)
    if isinstance(data[axis], Extent):
        indices = _from_the_front(n, indices, data[axis])
    dims = [*data[:axis], *n.dims(1), *data[axis + 1 :]]
    more = len(n.dims(1)) - 1
    zero = {i + (more if i > axis else 0) for i in n[0].zero if i != axis}
    return n.written(dims, [n[0], indices], zero)


def _from_the_front(n: Node, indices: Value, dim: Dim) -> Value:
    """Indices of which negative ones count from the end of elements before padding."""
    numbers = indices.numbers
    if numbers is not None and all(one is not None for one in numbers):
        known = [one for one in numbers if one is not None]
        wrapped = [plus(one, dim) if most(one) < 0 else one for one in known]
        if any(most(one) >= n.scope.size(dim) for one in wrapped):
            raise UnknownError("it looks up an element that there may not be")
        if all(least(one) >= 0 for one in wrapped):
            changed = wrapped != known
            shape = n.scope.shape(indices)
            return n.scope.amount(wrapped, indices.element, shape) if changed else indices
    zero = n.scope.scalar(0, indices.element)
    size = n.scope.amount([dim], indices.element, [])
    negative = n.scope.op("Less", indices, zero)
    return n.scope.op("Where", negative, n.scope.op("Add", indices, size), indices)


def concat(n: Node) -> list[Value]:
    axis, rank = n.axis(), len(n.dims(0))
    apart = [n.dims(number) for number in range(len(n.given))]
    for other in range(rank):
        if other != axis and len({dims[other] for dims in apart}) > 1:
            raise UnknownError("it joins tensors of which it is not known that they are of the same size")
    found: Value | None = None
    for value in n.given:
        if value.dims is not None and value.dims[axis] == 0:
            continue
        found = value if found is None else _joined(n, found, value, axis)
    return [n[0] if found is None else found]


def _joined(n: Node, one: Value, other: Value, axis: int) -> Value:
    """Two tensors behind each other."""
    import onnx

    assert one.dims is not None
    assert other.dims is not None
    scope, front, back = n.scope, one.dims[axis], other.dims[axis]
    total = plus(front, back)
    dims = tuple(total if i == axis else dim for i, dim in enumerate(one.dims))
    zero = one.zero & other.zero | ({axis} & other.zero)
    if isinstance(front, int):
        made = scope.op("Concat", one, other, axis=axis)
        now = front + scope.size(back)
        known = Value(made.name, one.element, dims, zero=frozenset(zero))
        return known if isinstance(total, int) else scope.fitted(known, axis, now, total)
    behind = len(dims) - 1 - axis
    number = scope.amount([front], onnx.TensorProto.INT64, [])
    if back == 1:
        wide = scope.fitted(one, axis, scope.size(front), total)
        here = scope.op("Equal", scope.places(total, behind), number)
        made = scope.op("Where", here, other, wide)
        kept = (one.zero & other.zero) | ({axis} & one.zero)
        return Value(made.name, one.element, dims, zero=frozenset(kept))
    both = scope.op("Concat", one, other, axis=axis)
    places = scope.places(total, 0)
    int64 = onnx.TensorProto.INT64
    room = scope.scalar(scope.size(front), int64)
    last = scope.scalar(scope.size(front) + scope.size(back) - 1, int64)
    moved = scope.op("Min", scope.op("Sub", scope.op("Add", places, room), number), last)
    chosen = scope.op("Where", scope.op("Less", places, number), places, moved)
    made = scope.op("Gather", both, chosen, axis=axis)
    return Value(made.name, one.element, dims, zero=(one.zero & other.zero) - {axis})


def slice_(n: Node) -> list[Value]:
    dims, value = n.dims(0), n[0]
    if len(n.given) < 3:
        raise UnknownError("its bounds are attributes: convert the model to opset 10 or later")
    starts, ends = n.sizes(1), n.sizes(2)
    axes = n.whole(3, range(len(starts))) or []
    steps = n.whole(4, [1] * len(starts)) or []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        along = axis % len(dims)
        if step != 1:
            if not (isinstance(dims[along], int) and isinstance(start, int) and isinstance(end, int)):
                raise UnknownError("it leaves out elements of a size that changes with each trip")
            bounds = [n.scope.numbers(number) for number in (start, end, along, step)]
            made = n.scope.op("Slice", value, *bounds)
            size = (made.dims or ())[along] if made.dims is not None else 0
            own = [size if i == along else dim for i, dim in enumerate(value.dims or ())]
            value = n.described(made, own, value.zero)
            continue
        value = _part(n, value, along, start, end)
    return [value]


def _bound(number: Dim, dim: Dim) -> Dim:
    """Where a part of an axis begins or ends, counted from the front."""
    if most(number) < 0:
        number = plus(number, dim)
        if least(number) < 0:
            if most(number) <= 0:
                return 0
            raise UnknownError("whether it begins before the first element is known at run time only")
    elif least(number) < 0:
        raise UnknownError("whether it counts from the end is known at run time only")
    if least(minus(dim, number)) >= 0:
        return number
    if least(minus(number, dim)) >= 0:
        return dim
    raise UnknownError("whether it ends behind the last element is known at run time only")


def _part(n: Node, value: Value, axis: int, start: Dim, end: Dim) -> Value:
    """The elements from one place to before another one."""
    import onnx

    scope, dims = n.scope, value.dims or ()
    dim = dims[axis]
    first, last = _bound(start, dim), _bound(end, dim)
    length = minus(last, first)
    if least(length) < 0:
        if most(length) > 0:
            raise UnknownError("whether there is an element between its bounds is known at run time only")
        length = 0
    if first == 0 and length == dim:
        return value
    own = tuple(length if i == axis else one for i, one in enumerate(dims))
    room, now = scope.size(length), scope.size(dim)
    if isinstance(first, int):
        end_ = min(first + room, now)
        bounds = [scope.numbers(number) for number in (first, end_, axis)]
        made = scope.op("Slice", value, *bounds)
        zero = value.zero if last == dim else value.zero - {axis}
        found = Value(made.name, value.element, own, zero=frozenset(zero))
        return found if isinstance(length, int) else scope.fitted(found, axis, end_ - first, length)
    element = onnx.TensorProto.INT64
    places = scope.op("Add", scope.places(length, 0), scope.amount([first], element, []))
    if isinstance(length, Extent):
        places = scope.op("Min", places, scope.scalar(now - 1, element))
    made = scope.op("Gather", value, places, axis=axis)
    return Value(made.name, value.element, own, zero=value.zero - {axis})


# Layers ---------------------------------------------------------------------------------------------------


def recurrent(n: Node) -> list[Value]:
    """LSTM, GRU and RNN over a sequence: the number of its steps becomes that of each sequence's."""
    import onnx

    dims = list(n.dims(0))
    n.plain(*range(1, len(n.given)))
    if n.about.get("layout", 0) or not isinstance(dims[1], int):
        raise UnknownError("its batch is of a size that changes with each trip")
    if n[4].name or least(dims[0]) < 1:
        raise UnknownError("its sequences have lengths of their own, or may have no steps")
    given = [*n.given, *[Value("")] * (5 - len(n.given))]
    given[0] = n.scope.guarded(n[0], 0)
    given[4] = n.scope.amount([dims[0]] * dims[1], onnx.TensorProto.INT32, [dims[1]])
    made = n.copied(given)
    whole = [n.described(made[0], [dims[0], *(made[0].dims or ())[1:]], {0})] if made[0].name else made[:1]
    return [*whole, *made[1:]]


MIXING: dict[str, Rule] = {
    **dict.fromkeys(NEUTRAL, reduce),
    **dict.fromkeys(("GRU", "LSTM", "RNN"), recurrent),
    **dict.fromkeys(("ArgMax", "ArgMin"), arg),
    **dict.fromkeys(("LogSoftmax", "Softmax"), softmax),
    **dict.fromkeys(("MatMul", "MatMulInteger"), mat_mul),
    "Concat": concat,
    "Gather": gather,
    "Gemm": gemm,
    "Slice": slice_,
    "TopK": top_k,
}

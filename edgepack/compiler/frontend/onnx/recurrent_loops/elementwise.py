"""What operators that go element by element make of the values of a trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import Formula, constant
from edgepack.compiler.frontend.onnx.recurrent_loops.trip import (
    Choice,
    Found,
    Operator,
    Rows,
    Schedule,
    Trip,
    Value,
    is_array,
)
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["ELEMENTWISE", "binary", "clipped"]


def binary(operator: str, trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    one, other = operands
    if isinstance(one, Schedule) or isinstance(other, Schedule):
        return _scheduled(operator, operands)
    if isinstance(one, Choice) or isinstance(other, Choice):
        return _masked(operator, trip, operands)
    shapes = [one.shape for one in operands if isinstance(one, Rows)]
    if not shapes:
        return None
    ours, theirs = (_as_rows(trip, value, shapes) for value in operands)
    if ours is None or theirs is None:
        return None
    cuts = sorted({*_ends(ours), *_ends(theirs)})
    parts, start = [], 0
    for stop in cuts:
        (left,), (right,) = ours.slice(start, stop), theirs.slice(start, stop)
        found = _combined(operator, left, right)
        if found is None:
            return None
        parts.append(found)
        start = stop
    return [trip.rows(ours.shape, *parts)]


def _masked(operator: str, trip: Trip, operands: Sequence[Value]) -> Found:
    """Rows times a choice; 1 - a choice."""
    import numpy as np

    one, other = operands
    if operator == "Sub" and is_array(one) and np.size(one) == 1 and isinstance(other, Choice):
        opposite = replace(other, is_opposite=not other.is_opposite)
        return [opposite] if float(np.asarray(one).reshape(-1)[0]) == 1.0 else None
    rows, choice = operands if isinstance(other, Choice) else operands[::-1]
    if is_array(rows):
        rows = _as_rows(trip, rows, [np.broadcast_shapes(rows.shape, choice.shape)])
    if operator != "Mul" or not isinstance(rows, Rows) or not isinstance(choice, Choice):
        return None
    mask = trip.spread(choice, rows.shape)
    return None if mask is None else [trip.rows(rows.shape, *_times(mask, rows))]


def _times(mask: Formula, rows: Rows) -> list[Formula]:
    """The parts of rows times a formula of all columns."""
    ends = _ends(rows)
    return [
        part.times(mask.columns(end - part.size, end)) for part, end in zip(rows.parts, ends, strict=True)
    ]


def _combined(operator: str, one: Formula, other: Formula) -> Formula | None:
    import numpy as np

    if operator == "Add":
        return one.plus(other)
    if operator == "Sub":
        return one.plus(other.scaled(-1.0))
    if operator == "Mul":
        return one.times(other)
    if not other.is_constant or not other.bias.all():
        return None
    return one.scaled(1.0 / np.asarray(other.bias))


def _ends(rows: Rows) -> list[int]:
    """The column behind each part."""
    found, place = [], 0
    for part in rows.parts:
        place += part.size
        found.append(place)
    return found


def _as_rows(trip: Trip, value: Value, shapes: Sequence[tuple[int, ...]]) -> Rows | None:
    """An operand in the shape of the result, which is that of the rows among the operands, with further
    dimensions of 1 where another one has them."""
    import numpy as np

    rank = max(map(len, shapes))
    if not isinstance(value, Rows) and not is_array(value):
        return None
    rank = max(rank, value.ndim if not isinstance(value, Rows) else 0)
    wide = [(1,) * (rank - len(shape)) + tuple(shape) for shape in shapes]
    if any(shape != wide[0] for shape in wide):
        return None
    if isinstance(value, Rows):
        return Rows(wide[0], value.parts)
    if value.dtype != np.float32 or np.broadcast_shapes(value.shape, wide[0]) != wide[0]:
        return None
    rows = np.broadcast_to(value, wide[0]).reshape(trip.batch, -1)
    if not (rows == rows[0]).all():
        return None
    return trip.rows(wide[0], constant(rows[0]))


def _scheduled(operator: str, operands: Sequence[Value]) -> Found:
    import numpy as np

    functions: dict[str, Callable[..., Any]] = {
        "Add": np.add,
        "Sub": np.subtract,
        "Mul": np.multiply,
        "Less": np.less,
        "LessOrEqual": np.less_equal,
        "Greater": np.greater,
        "GreaterOrEqual": np.greater_equal,
        "Equal": np.equal,
        "And": np.logical_and,
        "Or": np.logical_or,
        "Min": np.minimum,
        "Max": np.maximum,
    }
    if operator not in functions or len(operands) != 2:
        return None
    found = _numbers(operands)
    if found is None:
        return None
    numbers, shape = found
    return [Schedule(functions[operator](*numbers), shape)]


def _numbers(operands: Sequence[Value]) -> tuple[list[NDArray[Any]], tuple[int, ...]] | None:
    """Operands of one element each, as numbers of all trips or of one, and the shape of the result."""
    numbers: list[NDArray[Any]] = []
    shape: tuple[int, ...] = ()
    for value in operands:
        if isinstance(value, Schedule):
            numbers.append(value.numbers)
        elif is_array(value) and value.size == 1:
            numbers.append(value.reshape(1))
        else:
            return None
        shape = max(shape, tuple(value.shape), key=len)
    return numbers, shape


def _where(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    import numpy as np

    if isinstance(operands[0], Choice):
        shapes = [one.shape for one in operands[1:] if isinstance(one, Rows)]
        pair = [_as_rows(trip, value, shapes) if shapes else None for value in operands[1:]]
        mask = trip.spread(operands[0], shapes[0]) if shapes else None
        if mask is None or pair[0] is None or pair[1] is None or len(pair[0].shape) != len(shapes[0]):
            return None
        opposite = constant(np.ones(mask.size)).plus(mask.scaled(-1.0))
        sides = [
            Rows(rows.shape, tuple(_times(one, rows)))
            for one, rows in zip((mask, opposite), pair, strict=True)
            if rows is not None
        ]
        return binary("Add", trip, node, sides)
    found = _numbers(operands)
    if found is None:
        return None
    condition, one, other = found[0]
    return [Schedule(np.where(condition, one, other), found[1])]


def _logical_not(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    import numpy as np

    (one,) = operands
    if isinstance(one, Choice):
        return [replace(one, is_opposite=not one.is_opposite)]
    return [Schedule(np.logical_not(one.numbers), one.shape)] if isinstance(one, Schedule) else None


def _cast(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    import onnx

    (one,), to = operands, attributes(node)["to"]
    if isinstance(one, Schedule):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(to)
        return [Schedule(one.numbers.astype(dtype), one.shape)]
    if isinstance(one, Choice):
        return [one] if to in (onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL) else None
    return [one] if isinstance(one, Rows) and to == onnx.TensorProto.FLOAT else None


def _negated(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    (one,) = operands
    if isinstance(one, Schedule):
        return [Schedule(-one.numbers, one.shape)]
    return each(trip, one, lambda part: part.scaled(-1.0))


def _sum(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    total = operands[0]
    for other in operands[1:]:
        found = binary("Add", trip, node, [total, other])
        if found is None:
            return None
        (total,) = found
    return [total]


def each(trip: Trip, value: Value, function: Callable[[Formula], Formula]) -> Found:
    if not isinstance(value, Rows):
        return None
    return [trip.rows(value.shape, *map(function, value.parts))]


def _function(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    defaults = {"LeakyRelu": (0.01,), "Elu": (1.0,), "ThresholdedRelu": (1.0,)}.get(node.op_type, ())
    numbers = [float(attributes(node).get("alpha", one)) for one in defaults]
    return each(trip, operands[0], lambda part: part.function(node.op_type, *numbers))


def _hard_sigmoid(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    values = attributes(node)
    alpha, beta = float(values.get("alpha", 0.2)), float(values.get("beta", 0.5))
    return each(trip, operands[0], lambda part: clipped(part.scaled(alpha).plus(_filled(part, beta))))


def _filled(like: Formula, value: float) -> Formula:
    import numpy as np

    return constant(np.full(like.size, value))


def clipped(part: Formula) -> Formula:
    """Bounded by 0 and 1: a hard sigmoid of alpha 1 and beta 0, whatever they were."""
    return part.function("HardSigmoid", 1.0, 0.0)


def _clip(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    import numpy as np

    values = attributes(node)
    bounds = [*operands[1:], None, None][:2]
    if any(name and bound is None for name, bound in zip(node.input[1:], bounds, strict=False)):
        return None
    least, most = (
        values.get(name) if bound is None else float(np.asarray(bound).reshape(-1)[0])
        for name, bound in zip(("min", "max"), bounds, strict=True)
    )
    return each(trip, operands[0], clipped) if (least, most) == (0.0, 1.0) else None


def _bound(operator: str, trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    """Max with 0 is Relu; Min with 1 of that bounds by 0 and 1, as does Max with 0 of Min with 1."""
    import numpy as np

    if any(isinstance(one, Schedule) for one in operands):
        return _scheduled(operator, operands)
    rows = [one for one in operands if isinstance(one, Rows)]
    bounds = [np.asarray(one) for one in operands if is_array(one)]
    if len(rows) != 1 or len(bounds) != 1 or bounds[0].size != 1:
        return None
    bound = float(bounds[0].reshape(-1)[0])
    inner = ("Relu", 1.0, "Min1") if operator == "Min" else ("Min1", 0.0, "Relu")
    if bound != inner[1]:
        return None

    def bounded(part: Formula) -> Formula:
        known = part.as_function
        if known is not None and known.name == inner[0]:
            return clipped(known.argument)
        return part.function(inner[2])

    return each(trip, rows[0], bounded)


#: By operator.
ELEMENTWISE: dict[str, Operator] = {
    **{name: partial(binary, name) for name in ("Add", "Sub", "Mul", "Div")},
    **{
        name: partial(lambda name, trip, node, operands: _scheduled(name, operands), name)
        for name in ("Less", "LessOrEqual", "Greater", "GreaterOrEqual", "Equal", "And", "Or")
    },
    **{name: partial(_bound, name) for name in ("Min", "Max")},
    **dict.fromkeys(
        ("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", "LeakyRelu", "Elu", "ThresholdedRelu"), _function
    ),
    "Cast": _cast,
    "Clip": _clip,
    "HardSigmoid": _hard_sigmoid,
    "Neg": _negated,
    "Not": _logical_not,
    "Sum": _sum,
    "Where": _where,
}

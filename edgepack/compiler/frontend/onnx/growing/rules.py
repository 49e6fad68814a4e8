"""What operators make of padding: element by element, along other axes, in another order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import TypeAlias

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, least, plus, times
from edgepack.compiler.frontend.onnx.growing.node import Node
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value

__all__ = ["ELEMENTWISE", "RULES", "Rule", "broadcast"]

#: Writes a node anew; its results.
Rule: TypeAlias = Callable[[Node], list[Value]]

#: Element by element, with broadcasting.
ELEMENTWISE = frozenset(
    (
        *("Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitCast", "BitShift"),
        *("BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Cast", "CastLike", "Ceil", "Celu", "Clip"),
        *("Cos", "Cosh", "Div", "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual"),
        *("HardSigmoid", "HardSwish", "Identity", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual"),
        *("Log", "Max", "Mean", "Min", "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow"),
        *("Reciprocal", "Relu", "Round", "Selu", "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus"),
        *("Softsign", "Sqrt", "Sub", "Sum", "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor"),
    )
)

#: Of one input, and 0 where that is 0.
KEEPS_ZERO = frozenset(
    (
        *("Abs", "Asin", "Asinh", "Atan", "Cast", "Erf", "Identity", "LeakyRelu", "Neg", "Relu", "Sign"),
        *("Sin", "Sinh", "Softsign", "Sqrt", "Tan", "Tanh", "Elu", "Selu", "Gelu", "HardSwish", "Mish"),
    )
)


def broadcast(n: Node, dims: Sequence[Sequence[Dim]]) -> list[Dim]:
    """The sizes of what tensors of these sizes are combined to."""
    rank = max(map(len, dims))
    wide: list[list[Dim]] = [[*[1] * (rank - len(one)), *one] for one in dims]
    return [n.same(column) for column in zip(*wide, strict=True)]


def elementwise(n: Node) -> list[Value]:
    import onnx

    given = list(n.given)
    numbers = [number for number, value in enumerate(given) if value.name]
    dims = broadcast(n, [n.dims(number) for number in numbers])
    if n.op in ("Div", "Mod"):
        dtype = onnx.helper.tensor_dtype_to_np_dtype(given[1].element)
        if dtype.kind in "iu":
            for axis in given[1].padded:
                given[1] = n.scope.guarded(given[1], axis, 1)
    keeps = n.op in KEEPS_ZERO and len(numbers) == 1
    return n.written(dims, given, given[0].zero if keeps else frozenset())


def transpose(n: Node) -> list[Value]:
    dims = n.dims(0)
    perm = [int(axis) for axis in n.about.get("perm", range(len(dims))[::-1])]
    zero = {place for place, axis in enumerate(perm) if axis in n[0].zero}
    return n.written([dims[axis] for axis in perm], zero=zero)


# Shapes ---------------------------------------------------------------------------------------------------


def reshape(n: Node) -> list[Value]:
    before, wanted = n.dims(0), n.sizes(1)
    if not n.about.get("allowzero", 0):
        wanted = [before[i] if size == 0 else size for i, size in enumerate(wanted)]
    return reshaped(n, _completed(before, wanted))


def _completed(before: Sequence[Dim], wanted: Sequence[Dim]) -> list[Dim]:
    """Sizes with the one that is -1."""
    if -1 not in wanted:
        return list(wanted)
    one, own = (_volume(dims) for dims in (before, [size for size in wanted if size != -1]))
    open_before, open_own = list(one[1]), list(own[1])
    for dim in open_own:
        if dim not in open_before:
            raise UnknownError("the number of elements decides its shape")
        open_before.remove(dim)
    if len(open_before) > 1 or not own[0] or one[0] % own[0]:
        raise UnknownError("the number of elements decides its shape")
    left: Dim = one[0] // own[0]
    if open_before:
        left = times(open_before[0], one[0] // own[0])
    return [left if size == -1 else size for size in wanted]


def _volume(dims: Sequence[Dim]) -> tuple[int, list[Extent]]:
    """The product of the known sizes, and the others."""
    return prod(dim for dim in dims if isinstance(dim, int)), [d for d in dims if isinstance(d, Extent)]


def reshaped(n: Node, after: Sequence[Dim]) -> list[Value]:
    """A Reshape, Flatten, Squeeze or Unsqueeze: what is padded must stay behind its elements."""
    before = n.dims(0)
    places = _places(before, after)
    for axis, place in places.items():
        wide = after[place]
        if isinstance(wide, Extent) and wide != before[axis]:
            factor = wide.terms[0][1] // before[axis].terms[0][1]  # type: ignore[union-attr]
            n.scope.shared.sizes.setdefault(wide, n.scope.size(before[axis]) * factor)
    shape = [n.scope.size(dim) for dim in after]
    if prod(n.scope.size(dim) for dim in before) != prod(shape):
        raise UnknownError("the room of its result is another one")
    made = n.scope.op("Reshape", n[0], n.scope.numbers(*shape))
    return [n.described(made, after, {places[axis] for axis in n[0].zero if axis in places})]


def _places(before: Sequence[Dim], after: Sequence[Dim]) -> dict[int, int]:
    """Which axis of the result each padded axis becomes.

    Elements stay in front where all that is before the axis has the same number of elements in both, and the
    axis is the same size, or takes in known sizes that stand right behind it.
    """
    found: dict[int, int] = {}
    at = 0
    for axis, dim in enumerate(before):
        if not isinstance(dim, Extent):
            continue
        done = _volume(before[:axis])
        while at < len(after) and not (isinstance(after[at], Extent) and _same(_volume(after[:at]), done)):
            at += 1
        if at == len(after):
            raise UnknownError("it joins a size that changes with each trip with what stands before it")
        factor, end = 1, axis + 1
        while after[at] != times(dim, factor) and end < len(before) and isinstance(before[end], int):
            factor *= int(before[end])  # type: ignore[arg-type]
            end += 1
        if after[at] != times(dim, factor):
            raise UnknownError("it splits a size that changes with each trip, or joins it with another one")
        found[axis] = at
        at += 1
    if sum(isinstance(dim, Extent) for dim in after) != len(found):
        raise UnknownError("a size that changes with each trip decides its shape")
    return found


def _same(one: tuple[int, list[Extent]], other: tuple[int, list[Extent]]) -> bool:
    return one[0] == other[0] and sorted(one[1], key=str) == sorted(other[1], key=str)


def flatten(n: Node) -> list[Value]:
    dims, axis = n.dims(0), int(n.about.get("axis", 1))
    axis += len(dims) if axis < 0 else 0
    return reshaped(n, [_joined(dims[:axis]), _joined(dims[axis:])])


def _joined(dims: Sequence[Dim]) -> Dim:
    known, others = _volume(dims)
    if len(others) > 1:
        raise UnknownError("it joins sizes that change with each trip")
    return times(others[0], known) if others else known


def squeeze(n: Node) -> list[Value]:
    dims = n.dims(0)
    axes = n.axes([axis for axis, dim in enumerate(dims) if dim == 1])
    if any(dims[axis] != 1 for axis in axes):
        raise UnknownError("it takes away an axis whose size changes with each trip")
    if not ("axes" in n.about or n[1].name) and any(isinstance(dim, Extent) for dim in dims):
        raise UnknownError("which axes it takes away depends on a size that changes with each trip")
    return reshaped(n, [dim for axis, dim in enumerate(dims) if axis not in axes])


def unsqueeze(n: Node) -> list[Value]:
    given = n.about["axes"] if "axes" in n.about else n.whole(1)
    dims, rank = list(n.dims(0)), len(n.dims(0)) + len(given or ())
    for axis in sorted(int(axis) % rank for axis in given or ()):
        dims.insert(axis, 1)
    return reshaped(n, dims)


def expand(n: Node) -> list[Value]:
    dims = broadcast(n, [n.dims(0), n.sizes(1)])
    shape = n.scope.numbers(*(n.scope.size(dim) for dim in dims))
    more = len(dims) - len(n.dims(0))
    zero = {axis + more for axis in n[0].zero}
    return [n.described(n.scope.op("Expand", n[0], shape), dims, zero)]


def tile(n: Node) -> list[Value]:
    before, repeats = n.dims(0), n.sizes(1)
    if len(before) != len(repeats):
        raise UnknownError("it repeats along other axes than there are")
    dims: list[Dim] = []
    for dim, number in zip(before, repeats, strict=True):
        if dim != 1 and number != 1 and not (isinstance(dim, int) and isinstance(number, int)):
            raise UnknownError("it repeats elements behind their padding")
        dims.append(number if dim == 1 else dim if number == 1 else int(dim) * int(number))  # type: ignore[arg-type]
    counts = [n.scope.size(number) for number in repeats]
    zero = {axis for axis in n[0].zero if isinstance(before[axis], Extent)}
    return [n.described(n.scope.op("Tile", n[0], n.scope.numbers(*counts)), dims, zero)]


def filled(n: Node) -> list[Value]:
    """ConstantOfShape."""
    from onnx import numpy_helper

    dims = n.sizes(0)
    shape = n.scope.numbers(*(n.scope.size(dim) for dim in dims))
    value = {"value": n.about["value"]} if "value" in n.about else {}
    made = n.scope.op("ConstantOfShape", shape, **value)
    zero = not value or not numpy_helper.to_array(value["value"]).reshape(-1)[0]
    return [n.described(made, dims, set(range(len(dims))) if zero else set())]


def range_(n: Node) -> list[Value]:
    start, end, step = (n.sizes(number)[0] for number in range(3))
    length = plus(end, times(start, -1))
    if step != 1 or least(length) < 0:
        raise UnknownError("it counts by another step than 1, or down")
    element = n[0].element
    places = n.scope.places(length, 0)
    first = n.scope.amount([start], element, [])
    counted = places if element == places.element else n.scope.op("Cast", places, to=element)
    return [n.described(n.scope.op("Add", counted, first), [length])]


# Along an axis --------------------------------------------------------------------------------------------


def by_rows(*axes: Callable[[Node], Sequence[int]]) -> Rule:
    """What computes along axes, which must have no padding."""

    def rule(n: Node) -> list[Value]:
        dims = n.dims(0)
        along = {axis for one in axes for axis in one(n)}
        if any(isinstance(dims[axis], Extent) for axis in along):
            raise UnknownError("it computes along an axis whose size changes with each trip")
        n.plain(*range(1, len(n.given)))
        return n.written(dims)

    return rule


def _behind(n: Node) -> range:
    return range(n.axis(-1), len(n.dims(0)))


def normalised(n: Node) -> list[Value]:
    """LayerNormalization, which has a mean and a deviation as results too."""
    if any(n.node.output[1:]):
        raise UnknownError("its mean and deviation are read")
    return by_rows(_behind)(n)


def by_sample(n: Node) -> list[Value]:
    """What treats each sample of a batch alone."""
    dims = n.dims(0)
    if any(isinstance(dim, Extent) for dim in dims[1:]) or any(n.node.output[1:]):
        raise UnknownError("its windows or channels would be of a size that changes with each trip")
    n.plain(*range(1, len(n.given)))
    (made,) = n.copied()
    return [n.described(made, [dims[0], *(made.dims or ())[1:]])]


def split(n: Node) -> list[Value]:
    dims, axis = list(n.dims(0)), n.axis()
    if isinstance(dims[axis], Extent):
        raise UnknownError("it splits an axis whose size changes with each trip")
    found = []
    for value in n.copied():
        own = [(value.dims or ())[i] if i == axis else dim for i, dim in enumerate(dims)]
        found.append(n.described(value, own, n[0].zero))
    return found


def cumulative(n: Node) -> list[Value]:
    dims, value = n.dims(0), n[0]
    along = (n.whole(1) or [0])[0] % len(dims)
    if n.about.get("reverse", 0):
        value = n.scope.guarded(value, along, 0 if n.op == "CumSum" else 1)
    return n.written(dims, [value, *n.given[1:]])


def triangle(n: Node) -> list[Value]:
    """Trilu: which elements stay depends on their places alone."""
    import onnx

    dims, upper = n.dims(0), n.about.get("upper", 1)
    number = n[1] if n[1].name else n.scope.scalar(0, onnx.TensorProto.INT64)
    number = n.scope.op("Reshape", number, n.scope.numbers())
    rows, columns = n.scope.places(dims[-2], 1), n.scope.places(dims[-1], 0)
    apart = n.scope.op("Sub", columns, rows)
    inside = n.scope.op("GreaterOrEqual" if upper else "LessOrEqual", apart, number)
    made = n.scope.op("Where", inside, n[0], n.scope.scalar(0, n[0].element))
    return [n.described(made, dims, n[0].zero)]


def one_hot(n: Node) -> list[Value]:
    indices = n[0]
    for axis in indices.padded:
        indices = n.scope.guarded(indices, axis)
    (made,) = n.copied([indices, *n.given[1:]])
    shape = made.dims or ()
    axis = int(n.about.get("axis", -1)) % len(shape)
    dims = list(n.dims(0))
    dims.insert(axis, shape[axis])
    return [n.described(made, dims)]


RULES: dict[str, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    "BatchNormalization": by_sample,
    "ConstantOfShape": filled,
    "Conv": by_sample,
    "CumProd": cumulative,
    "CumSum": cumulative,
    "Expand": expand,
    "Flatten": flatten,
    "LayerNormalization": normalised,
    "LpNormalization": by_rows(lambda n: [n.axis(-1)]),
    "Hardmax": by_rows(_behind),
    "OneHot": one_hot,
    "RMSNormalization": normalised,
    "Range": range_,
    "Reshape": reshape,
    "Split": split,
    "Squeeze": squeeze,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": triangle,
    "Unsqueeze": unsqueeze,
}

"""Writes a loop that was followed anew: as one, or as several behind each other, of which each has room for
the sizes of its own trips."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, Symbol, most, plus, times
from edgepack.compiler.frontend.onnx.growing.scope import Scope
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.support import node_name

if TYPE_CHECKING:
    import onnx

__all__ = ["GrownLoop", "Part", "Trips", "ranges", "written"]

#: Multiply-adds of a trip from which on it is worth to compute fewer where less has grown.
WORTH = 1_000_000

#: Elements of constants that the bodies of all loops that one becomes share.
LARGE = 256

#: Most nodes of all bodies of the loops that one becomes.
MOST_NODES = 1024


@dataclass(frozen=True)
class Trips:
    """How many trips a loop makes.

    Attributes:
        most: that it can make.
        number: how many it makes, if that is known when it begins.
        one: whether it makes at least one.
        goes_on: whether each trip says that there may be another one.
    """

    most: int
    number: Dim | None
    one: bool
    goes_on: bool


@dataclass(frozen=True)
class Part:
    """Trips from one number to before another one, and a trip of them, followed."""

    first: int
    last: int
    inner: Scope


class GrownLoop:
    """A Loop, and how what it carries grows.

    Attributes:
        starts: what it carries, before the first trip.
        results: names of its results; "" for one that nobody reads.
        grown: by how much each axis of what it carries grows with each trip.
        counted: by how much each number of it does; None where that is not known.
        adopted: large constants of its body, by name.
    """

    def __init__(self, scope: Scope, node: onnx.NodeProto, index: int) -> None:
        self.scope, self.node, self.title = scope, node, node_name(node, index)
        self.body: onnx.GraphProto = attributes(node)["body"]
        given = [*node.input, "", ""][: max(2, len(node.input))]
        self.count, self.condition = given[:2]
        self.starts = [scope.value(name) for name in given[2:]]
        large = [tensor for tensor in self.body.initializer if prod(tensor.dims) > LARGE]
        self.adopted = {tensor.name: scope.adopted(tensor) for tensor in large}
        self.results = [*node.output, *[""] * (len(self.body.output) - 1 - len(node.output))]
        self.grown: list[list[int]] = [[0] * len(start.dims or ()) for start in self.starts]
        self.counted: list[list[int] | None] = [
            None if start.numbers is None else [0] * len(start.numbers) for start in self.starts
        ]

    def at(self, place: int, trip: Dim) -> tuple[tuple[Dim, ...] | None, tuple[Dim | None, ...] | None]:
        """Sizes and numbers of what is carried, before a trip of this number."""
        start, counted = self.starts[place], self.counted[place]
        dims, numbers = None, None
        if start.dims is not None:
            pairs = zip(start.dims, self.grown[place], strict=True)
            dims = tuple(plus(dim, times(trip, by)) for dim, by in pairs)
        if start.numbers is not None and counted is not None:
            numbers = tuple(
                None if number is None else plus(number, times(trip, by))
                for number, by in zip(start.numbers, counted, strict=True)
            )
        return dims, numbers

    def rooms(self, place: int, trips: int) -> list[int]:
        """The room of each size of what is carried, behind so many trips."""
        start = self.starts[place]
        pairs = zip(start.dims or (), self.grown[place], strict=True)
        return [max(1, most(plus(dim, by * trips))) if by else self.scope.size(dim) for dim, by in pairs]


def ranges(loop: GrownLoop, trips: int, work: Sequence[tuple[bool, int]]) -> list[tuple[int, int]]:
    """The trips of each loop that one is written as: several, where most of what a trip computes depends on
    how much has grown, and it is much.

    Args:
        work: multiply-adds of a trip, and whether they depend on what has grown.
    """
    padded = sum(number for depends, number in work if depends)
    stacked = len(loop.body.output) - 1 - len(loop.starts)
    if padded < WORTH or 2 * padded < sum(number for _, number in work) or stacked:
        return [(0, trips)]
    ends = [trips // 8, trips // 4, trips // 2, trips * 3 // 4]
    found = [0, *(end for end in ends if end >= 4)]
    while len(found) > 1 and len(found) * len(loop.body.node) > MOST_NODES:
        del found[1]
    return list(zip(found, [*found[1:], trips], strict=True))


def written(loop: GrownLoop, trips: Trips, parts: Sequence[Part]) -> list[Value]:
    """Writes a loop as one, or as one for each range of its trips; its results."""
    import onnx

    scope, carried = loop.scope, len(loop.starts)
    stacked = [parts[0].inner.value(value.name) for value in loop.body.output[1 + carried :]]
    if any(value.padded or value.dims is None for value in stacked):
        raise UnknownError("it stacks parts whose size changes with each trip")
    names = [name or scope.fresh("unread") for name in loop.results]
    open_ = trips.number is None
    counter = scope.fresh("trips") if open_ else ""
    symbol = Symbol(counter, int(trips.one), trips.most)
    number: Dim = Extent(((symbol, 1),), 0) if trips.number is None else trips.number
    starts = [scope.zeroed(start) for start in loop.starts]
    rooms = [[scope.size(dim) for dim in start.dims or ()] for start in starts]
    more = [scope.scalar(0, onnx.TensorProto.INT64)] if open_ else []
    ends = len(parts) > 1 and not trips.goes_on
    if ends:
        more.append(_truth(loop))
    for part in parts:
        given = []
        for place, value in enumerate(starts):
            wanted = loop.rooms(place, part.last)
            given.append(_widened(scope, value, rooms[place], wanted).name)
            rooms[place] = wanted
        last = part is parts[-1]
        outputs = names[:carried] if last else [scope.fresh("part") for _ in starts]
        extra = [scope.fresh("trips") for _ in more]
        if last and open_:
            extra[0] = counter
        head = [_count(loop, trips, part, last=last), more[-1].name if ends else _name(scope, loop.condition)]
        title = loop.title if last else f"{loop.title}/{part.first}"
        scope.nodes.append(
            onnx.helper.make_node(
                "Loop",
                [*head, *given, *(value.name for value in more)],
                [*outputs, *extra, *names[carried:]],
                title,
                body=_body(loop, part, counts=open_, ends=ends),
            )
        )
        if open_:
            grown = (name for name, by in zip(outputs, loop.grown, strict=True) if any(by))
            scope.shared.bounds |= dict.fromkeys([*grown, *names[carried:]], part.last - part.first)
        starts = [Value(name, v.element, v.dims) for name, v in zip(outputs, starts, strict=True)]
        more = [Value(name, v.element, v.dims) for name, v in zip(extra, more, strict=True)]
    scope.shared.changed = True
    scope.shared.totals |= dict.fromkeys(names, trips.most)
    if open_:
        scope.know(counter, Value(counter, onnx.TensorProto.INT64, ()))
    return _results(loop, names, stacked, number, trips)


def _results(
    loop: GrownLoop, names: Sequence[str], stacked: Sequence[Value], number: Dim, trips: Trips
) -> list[Value]:
    """What is known of the results."""
    found = []
    for place, name in enumerate(names[: len(loop.starts)]):
        after, numbers = loop.at(place, number)
        for dim, room in zip(after or (), loop.rooms(place, trips.most), strict=True):
            if isinstance(dim, Extent):
                loop.scope.shared.sizes.setdefault(dim, room)
        padded = frozenset(axis for axis, dim in enumerate(after or ()) if isinstance(dim, Extent))
        found.append(Value(name, loop.starts[place].element, after, numbers, padded))
    for name, value in zip(names[len(loop.starts) :], stacked, strict=True):
        zero = frozenset({0}) if trips.number is None else frozenset()
        found.append(Value(name, value.element, (number, *(value.dims or ())), zero=zero))
    return found[: len(loop.node.output)]


def _name(scope: Scope, name: str) -> str:
    return scope.value(name).name if name else ""


def _truth(loop: GrownLoop) -> Value:
    """Whether there is a first trip, as a number of rank 0."""
    import numpy as np

    scope = loop.scope
    if not loop.condition:
        return scope.const(np.asarray(True))
    return scope.op("Reshape", scope.value(loop.condition), scope.numbers())


def _count(loop: GrownLoop, trips: Trips, part: Part, *, last: bool) -> str:
    """The trips that are left for a part, and no more than it has room for but of the last one."""
    import numpy as np
    import onnx

    scope, room = loop.scope, part.last - part.first
    if last and not part.first:
        return _name(scope, loop.count)
    int64 = onnx.TensorProto.INT64
    count = scope.value(loop.count) if loop.count else None
    if count is None:
        return "" if last else scope.const(np.asarray(room, np.int64)).name
    known = count.numbers[0] if count.numbers else None
    if isinstance(known, int):
        left = max(0, known - part.first)
        return scope.const(np.asarray(left if last else min(left, room), np.int64)).name
    left_ = scope.op("Max", scope.op("Sub", count, scope.scalar(part.first, int64)), scope.scalar(0, int64))
    return left_.name if last else scope.op("Min", left_, scope.scalar(room, int64)).name


def _widened(scope: Scope, value: Value, now: Sequence[int], wanted: Sequence[int]) -> Value:
    """A tensor with more room."""
    value = Value(value.name, value.element, tuple(now))
    for axis, (before, room) in enumerate(zip(now, wanted, strict=True)):
        value = scope.fitted(value, axis, before, room)
    return value


def _body(loop: GrownLoop, part: Part, *, counts: bool, ends: bool) -> onnx.GraphProto:
    """The graph of a trip, written anew.

    Args:
        counts: whether the trips are counted in what is carried.
        ends: whether what a trip says of another one is carried too, last.
    """
    import onnx

    inner, int64, boolean = part.inner, onnx.TensorProto.INT64, onnx.TensorProto.BOOL
    step, going, *carried = loop.body.input
    ranks = [len(value.type.tensor_type.shape.dim) for value in (step, going)]
    types = zip((step.name, going.name), (int64, boolean), ranks, strict=True)
    inputs = [onnx.helper.make_tensor_value_info(name, element, [1] * rank) for name, element, rank in types]
    results = [inner.value(loop.body.output[0].name)]
    for value, result in zip(carried, loop.body.output[1:], strict=False):
        before, after = inner.value(value.name), inner.zeroed(inner.value(result.name))
        inputs.append(inner.described(value.name, before))
        for axis, dim in enumerate(before.dims or ()):
            now = inner.size((after.dims or ())[axis])
            after = inner.fitted(after, axis, now, inner.size(dim))
        results.append(after)
    if counts:
        number = Value(inner.fresh("before"), int64, ())
        inputs.append(inner.described(number.name, number))
        results.append(inner.op("Add", number, inner.scalar(1, int64)))
    if ends:
        unread = Value(inner.fresh("before"), boolean, ())
        inputs.append(inner.described(unread.name, unread))
        results.append(inner.op("Reshape", results[0], inner.numbers()))
    results += [inner.value(value.name) for value in loop.body.output[1 + len(carried) :]]
    outputs = []
    for result in results:
        named = inner.op("Identity", result)
        outputs.append(inner.described(named.name, result))
    own = [tensor for tensor in loop.body.initializer if tensor.name not in loop.adopted]
    constants = [*own, *inner.initializers]
    return onnx.helper.make_graph(inner.nodes, loop.body.name or "body", inputs, outputs, constants)

"""Loops that carry tensors which grow with each trip: each has room for its largest size from the start, and
the number of the trip says how much of it there is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, Symbol, minus, most, plus, times
from edgepack.compiler.frontend.onnx.growing.follow import follow
from edgepack.compiler.frontend.onnx.growing.scope import Scope, UnknownError, Value
from edgepack.compiler.frontend.onnx.origins import origin
from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.support import RefusedNodesError, node_name
from edgepack.errors import ConfigError

if TYPE_CHECKING:
    import onnx

__all__ = ["loop"]

#: Elements that all that a loop carries and that grows may have room for, where nobody says how many trips
#: there are.
MOST_ELEMENTS = 1 << 24


@dataclass(frozen=True)
class Trips:
    """How many trips a loop makes.

    Attributes:
        most: that it can make.
        number: how many it makes, if that is known when it begins.
        one: whether it makes at least one.
    """

    most: int
    number: Dim | None
    one: bool


class _Loop:
    """A Loop that is followed.

    Attributes:
        grown: by how much each axis of what it carries grows with each trip.
        counted: by how much each number of it does; None where that is not known.
    """

    def __init__(self, scope: Scope, node: onnx.NodeProto, index: int) -> None:
        self.scope, self.node, self.index = scope, node, index
        self.body: onnx.GraphProto = attributes(node)["body"]
        given = [*node.input, "", ""][: max(2, len(node.input))]
        self.count, self.condition = given[:2]
        self.starts = [scope.value(name) for name in given[2:]]
        self.results = [*node.output, *[""] * (len(self.body.output) - 1 - len(node.output))]
        self.grown: list[list[int]] = [[0] * len(start.dims or ()) for start in self.starts]
        self.counted: list[list[int] | None] = [
            None if start.numbers is None else [0] * len(start.numbers) for start in self.starts
        ]

    def followed(self) -> list[Value]:
        """Its results; where something grows, or its body reads padding, it is written anew."""
        trips = self._trips()
        _, inner = self._trip(min(trips.most, 2))
        self._measure([inner.value(value.name) for value in self.body.output[1:]])
        reads = any(self.scope.value(name).padded for name in names_read(self.node) if name)
        if not reads and not any(any(grown) for grown in self.grown):
            return self._unchanged(inner, trips)
        trips = self._bounded(trips)
        for _ in range(len(self.starts) + 1):
            symbol, inner = self._trip(trips.most)
            if self._checked(symbol, [inner.value(value.name) for value in self.body.output[1:]]):
                return self._written(inner, trips)
        raise UnknownError("how what it carries changes is not known")

    # Following ---------------------------------------------------------------------------------------------

    def _trips(self) -> Trips:
        limit = self.scope.shared.trips
        number: Dim | None = None
        if self.count:
            numbers = self.scope.value(self.count).numbers
            number = numbers[0] if numbers is not None and len(numbers) == 1 else None
        begins = not self.condition or self._is_true(self.condition)
        goes_on = self._goes_on()
        largest = limit if number is None else max(0, most(number))
        one = begins and (not self.count or (number is not None and -most(times(number, -1)) > 0))
        if goes_on is False:
            largest, number = min(1, largest), 1 if one else None
        known = begins and goes_on is not None and largest <= limit
        return Trips(min(limit, largest), number if known else None, one)

    def _is_true(self, name: str) -> bool:
        array = self.scope.array(self.scope.value(name).name)
        return array is not None and bool(array.reshape(-1)[0])

    def _goes_on(self) -> bool | None:
        """What a trip says of another one, if that is always the same."""
        name = origin(self.body, self.body.output[0].name)
        if name == self.body.input[1].name:
            return True
        inner = Scope(self.scope.shared, self.scope, self.body.initializer)
        array = inner.array(inner.value(name).name)
        return None if array is None else bool(array.reshape(-1)[0])

    def _trip(self, trips: int) -> tuple[Symbol, Scope]:
        """Follows a trip of so many."""
        import onnx

        inner = Scope(self.scope.shared, self.scope, self.body.initializer)
        step, going, *carried = self.body.input
        rank = len(step.type.tensor_type.shape.dim)
        number = Value(step.name, onnx.TensorProto.INT64, (1,) * rank)
        name = inner.op("Reshape", number, inner.numbers()).name if rank else step.name
        symbol = Symbol(name, 0, max(0, trips - 1))
        i = plus(Extent(((symbol, 1),), 0))
        inner.know(step.name, replace(number, numbers=(i,)))
        ranks = len(going.type.tensor_type.shape.dim)
        inner.know(going.name, Value(going.name, onnx.TensorProto.BOOL, (1,) * ranks))
        for place, (value, start) in enumerate(zip(carried, self.starts, strict=True)):
            dims, numbers = self._at(place, i)
            for dim, begin, by in zip(dims or (), start.dims or (), self.grown[place], strict=True):
                if by:
                    room = most(plus(begin, by * trips))
                    self.scope.shared.sizes.setdefault(dim, max(1, room))  # type: ignore[arg-type]
            zero = frozenset(axis for axis, dim in enumerate(dims or ()) if isinstance(dim, Extent))
            inner.know(value.name, Value(value.name, start.element, dims, numbers, zero))
        follow(inner, self.body.node)
        return symbol, inner

    def _at(self, place: int, trip: Dim) -> tuple[tuple[Dim, ...] | None, tuple[Dim | None, ...] | None]:
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

    def _measure(self, results: Sequence[Value]) -> None:
        """Sees by how much what is carried grows in the first trip."""
        for place, (start, result) in enumerate(zip(self.starts, results, strict=False)):
            if start.dims is not None and result.dims is not None:
                if len(start.dims) != len(result.dims):
                    raise UnknownError(f"what it carries as {self._name(place)!r} changes its rank")
                grown = [minus(b, a) for a, b in zip(start.dims, result.dims, strict=True)]
                if any(not isinstance(by, int) or by < 0 for by in grown):
                    raise UnknownError(f"what it carries as {self._name(place)!r} does not grow evenly")
                self.grown[place] = [by for by in grown if isinstance(by, int)]
            self.counted[place] = _apart(start.numbers, result.numbers)

    def _checked(self, symbol: Symbol, results: Sequence[Value]) -> bool:
        """Whether what is carried changes in every trip as in the first one; if numbers do not, these are
        unknown from then on."""
        behind = plus(Extent(((symbol, 1),), 0), 1)
        held = True
        for place, result in enumerate(results[: len(self.starts)]):
            dims, numbers = self._at(place, behind)
            if dims != result.dims:
                raise UnknownError(f"what it carries as {self._name(place)!r} does not grow evenly")
            if numbers is not None and numbers != result.numbers:
                self.counted[place], held = None, False
        return held

    def _name(self, place: int) -> str:
        return str(self.results[place] or self.body.input[2 + place].name)

    # Room --------------------------------------------------------------------------------------------------

    def _bounded(self, trips: Trips) -> Trips:
        """The trips with what the user says of the room of the results."""
        shared = self.scope.shared
        found = trips.most
        for place, name in enumerate(self.results):
            if name not in shared.rooms:
                continue
            grown = (
                [
                    (dim, by)
                    for dim, by in zip(self.starts[place].dims or (), self.grown[place], strict=True)
                    if by
                ]
                if place < len(self.starts)
                else [(0, 1)]
            )
            if grown:
                dim, by = grown[0]
                found = min(found, max(0, shared.rooms[name] - most(dim)) // by)
                shared.used.add(name)
        if found < trips.most and trips.number is not None:
            name = next(name for name in self.results if name in shared.rooms)
            raise ConfigError(
                f"--max: the number of trips of the Loop of {name!r} is known when the model is packed.",
                hint="Leave it out.",
            )
        if found < trips.most:
            return Trips(found, None, trips.one and found > 0)
        elements = sum(self._elements(place, found) for place in range(len(self.starts)))
        if elements > MOST_ELEMENTS:
            self._refuse_rooms()
        return trips

    def _elements(self, place: int, trips: int) -> int:
        if not any(self.grown[place]):
            return 0
        found = 1
        for dim, by in zip(self.starts[place].dims or (), self.grown[place], strict=True):
            found *= max(1, most(dim) + by * trips)
        return found

    def _refuse_rooms(self) -> None:
        place = next(place for place, grown in enumerate(self.grown) if any(grown))
        named = next((p for p, grown in enumerate(self.grown) if any(grown) and self.results[p]), None)
        hint = "Say how many trips a loop may make: --max-trips 100."
        if named is not None:
            pairs = zip(self.starts[named].dims or (), self.grown[named], strict=True)
            room = next(most(dim) + 100 * by for dim, by in pairs if by)
            option = shlex.quote(f"{self.results[named]}={room}")
            hint = f"Give it room for its largest size: --max {option}. Or {hint[0].lower()}{hint[1:]}"
        raise RefusedNodesError(
            f"The Loop node {node_name(self.node, self.index)} cannot be compiled: {self._name(place)!r} "
            "grows with each trip, and how many trips there are is known at run time only.",
            hint=hint,
            tensors=[name for name in self.node.output if name][:1],
        )

    # Writing -----------------------------------------------------------------------------------------------

    def _unchanged(self, inner: Scope, trips: Trips) -> list[Value]:
        """Its results, where it stays as it is."""
        self.scope.kept(self.node)
        carried = len(self.starts)
        found = []
        for place, name in enumerate(self.results):
            if place < carried:
                start = self.starts[place]
                found.append(Value(name, start.element, start.dims))
                continue
            part = inner.value(self.body.output[1 + place].name)
            known = part.dims is not None and isinstance(trips.number, int)
            dims = (trips.number, *(part.dims or ())) if known else None
            found.append(Value(name, part.element, dims))  # type: ignore[arg-type]
        return found[: len(self.node.output)]

    def _written(self, inner: Scope, trips: Trips) -> list[Value]:
        import onnx

        scope, shared, carried = self.scope, self.scope.shared, len(self.starts)
        parts = [inner.value(value.name) for value in self.body.output[1 + carried :]]
        if any(part.padded or part.dims is None for part in parts):
            raise UnknownError("it stacks parts whose size changes with each trip")
        names = [name or scope.fresh("unread") for name in self.results]
        open_ = trips.number is None
        counter = scope.fresh("trips") if open_ else ""
        number: Dim = trips.number if trips.number is not None else _counted(counter, trips)
        body = self._body(inner, open_)
        starts = [self._start(place, trips.most) for place in range(carried)]
        given = [scope.value(name).name if name else "" for name in (self.count, self.condition)]
        if open_:
            starts.append(scope.scalar(0, onnx.TensorProto.INT64).name)
        outputs = [*names[:carried], *([counter] if open_ else []), *names[carried:]]
        title, shared.changed = node_name(self.node, self.index), True
        scope.nodes.append(onnx.helper.make_node("Loop", [*given, *starts], outputs, title, body=body))
        found = []
        for place, name in enumerate(names):
            if open_ and (place >= carried or any(self.grown[place])):
                shared.bounds[name] = trips.most
            if place >= carried:
                part = parts[place - carried]
                dims = (number, *(part.dims or ()))
                zero = frozenset({0}) if open_ else frozenset()
                found.append(Value(name, part.element, dims, zero=zero))
                continue
            after, numbers = self._at(place, number)
            for dim, begin, by in zip(
                after or (), self.starts[place].dims or (), self.grown[place], strict=True
            ):
                if isinstance(dim, Extent):
                    shared.sizes.setdefault(dim, max(1, most(plus(begin, by * trips.most))))
            padded = frozenset(axis for axis, dim in enumerate(after or ()) if isinstance(dim, Extent))
            found.append(Value(name, self.starts[place].element, after, numbers, padded))
        if open_:
            scope.know(counter, Value(counter, onnx.TensorProto.INT64, ()))
        return found[: len(self.node.output)]

    def _start(self, place: int, trips: int) -> str:
        """What is carried before the first trip, with room for all."""
        value = self.scope.zeroed(self.starts[place])
        for axis, by in enumerate(self.grown[place]):
            if by:
                assert value.dims is not None
                dim = value.dims[axis]
                room = max(1, most(plus(dim, by * trips)))
                value = self.scope.fitted(value, axis, self.scope.size(dim), room)
        return value.name

    def _body(self, inner: Scope, counts: bool) -> onnx.GraphProto:
        """The graph of a trip, written anew.

        Args:
            counts: whether the trips are counted in what is carried last.
        """
        import numpy as np
        import onnx

        step, going, *carried = self.body.input
        inputs = [inner.described(step.name, inner.value(step.name))]
        inputs.append(inner.described(going.name, inner.value(going.name)))
        results = [inner.value(self.body.output[0].name)]
        for value, result in zip(carried, self.body.output[1:], strict=False):
            before, after = inner.value(value.name), inner.zeroed(inner.value(result.name))
            inputs.append(inner.described(value.name, before))
            for axis, dim in enumerate(before.dims or ()):
                now = inner.size((after.dims or ())[axis])
                after = inner.fitted(after, axis, now, inner.size(dim))
            results.append(after)
        if counts:
            before = Value(inner.fresh("before"), onnx.TensorProto.INT64, ())
            inputs.append(inner.described(before.name, before))
            results.append(inner.op("Add", before, inner.const(np.asarray(1, np.int64))))
        results += [inner.value(value.name) for value in self.body.output[1 + len(carried) :]]
        outputs = []
        for result in results:
            own = inner.op("Identity", result)
            outputs.append(inner.described(own.name, result))
        constants = [*self.body.initializer, *inner.initializers]
        return onnx.helper.make_graph(inner.nodes, self.body.name or "body", inputs, outputs, constants)


def _counted(counter: str, trips: Trips) -> Dim:
    """The number of trips that are counted at run time."""
    return Extent(((Symbol(counter, int(trips.one), trips.most), 1),), 0)


def _apart(start: tuple[Dim | None, ...] | None, result: tuple[Dim | None, ...] | None) -> list[int] | None:
    """By how much numbers differ; None where that is not known."""
    if start is None or result is None or len(start) != len(result):
        return None
    found = [None if a is None or b is None else minus(b, a) for a, b in zip(start, result, strict=True)]
    known = [by for by in found if isinstance(by, int)]
    return known if len(known) == len(found) else None


def loop(scope: Scope, node: onnx.NodeProto, index: int) -> list[Value]:
    """Follows a Loop."""
    return _Loop(scope, node, index).followed()

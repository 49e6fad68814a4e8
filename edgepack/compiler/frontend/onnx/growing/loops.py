"""Loops that carry tensors which grow with each trip: each has room for its largest size from the start, and
the number of the trip says how much of it there is."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, Symbol, minus, most, plus, times
from edgepack.compiler.frontend.onnx.growing.follow import follow
from edgepack.compiler.frontend.onnx.growing.parts import GrownLoop, Part, Trips, ranges, written
from edgepack.compiler.frontend.onnx.growing.scope import Scope
from edgepack.compiler.frontend.onnx.growing.short import written_out
from edgepack.compiler.frontend.onnx.growing.values import UnknownError, Value
from edgepack.compiler.frontend.onnx.origins import origin
from edgepack.compiler.frontend.onnx.regions import names_read
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from edgepack.errors import ConfigError

if TYPE_CHECKING:
    import onnx

__all__ = ["loop"]

#: Elements that all that a loop carries and that grows may have room for: where the model says how many trips
#: there are at most, and where only a limit does.
MOST_ELEMENTS, MOST_UNBOUNDED = 1 << 24, 1 << 19


class _Loop(GrownLoop):
    """A Loop that is followed."""

    def followed(self) -> list[Value]:
        """Its results; where something grows, or its body reads padding, it is written anew."""
        trips = self._trips()
        before = self.scope.shared.rewritten
        _, inner = self._trip(0, min(trips.most, 2))
        self._measure([inner.value(value.name) for value in self.body.output[1:]])
        reads = any(self.scope.value(name).padded for name in names_read(self.node) if name)
        anew = reads or self.scope.shared.rewritten > before
        if not anew and not any(any(grown) for grown in self.grown):
            return self._unchanged(inner, trips)
        trips = self._bounded(trips)
        for _ in range(len(self.starts) + 1):
            work = len(self.scope.shared.work)
            whole = self._part(0, trips.most)
            if whole is not None:
                apart = ranges(self, trips.most, self.scope.shared.work[work:])
                parts = [whole] if len(apart) == 1 else [self._part(*one) for one in apart]
                if all(parts):
                    return written(self, trips, [part for part in parts if part is not None])
        raise UnknownError("how what it carries changes is not known")

    def _part(self, first: int, last: int) -> Part | None:
        """A range of trips; None where numbers do not change as they were believed to."""
        symbol, inner = self._trip(first, last)
        held = self._checked(symbol, [inner.value(value.name) for value in self.body.output[1:]])
        return Part(first, last, inner) if held else None

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
        return Trips(min(limit, largest), number if known else None, one, goes_on is not None)

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

    def _trip(self, first: int, last: int) -> tuple[Symbol, Scope]:
        """Follows a trip, of those from one number to before another one; its number."""
        import onnx

        inner = Scope(self.scope.shared, self.scope, self.body.initializer)
        for name, value in self.adopted.items():
            inner.know(name, value)
        step, going, *carried = self.body.input
        rank = len(step.type.tensor_type.shape.dim)
        number = Value(step.name, onnx.TensorProto.INT64, (1,) * rank)
        if first:
            number = inner.op("Add", number, inner.scalar(first, number.element))
        name = inner.op("Reshape", number, inner.numbers()).name if rank else number.name
        symbol = Symbol(name, first, max(first, last - 1))
        i = Extent(((symbol, 1),), 0)
        inner.know(step.name, replace(number, numbers=(i,)))
        ranks = len(going.type.tensor_type.shape.dim)
        inner.know(going.name, Value(going.name, onnx.TensorProto.BOOL, (1,) * ranks))
        for place, (value, start) in enumerate(zip(carried, self.starts, strict=True)):
            dims, numbers = self.at(place, i)
            for dim, room in zip(dims or (), self.rooms(place, last), strict=True):
                if isinstance(dim, Extent):
                    self.scope.shared.sizes.setdefault(dim, room)
            zero = frozenset(axis for axis, dim in enumerate(dims or ()) if isinstance(dim, Extent))
            inner.know(value.name, Value(value.name, start.element, dims, numbers, zero))
        follow(inner, self.body.node)
        return symbol, inner

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
            dims, numbers = self.at(place, behind)
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
            return Trips(found, None, trips.one and found > 0, trips.goes_on)
        elements = sum(self._elements(place, found) for place in range(len(self.starts)))
        if elements > (MOST_ELEMENTS if trips.most < shared.trips else MOST_UNBOUNDED):
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
            f"The Loop node {self.title} cannot be compiled: {self._name(place)!r} "
            "grows with each trip, and how many trips there are is known at run time only.",
            hint=hint,
            tensors=[name for name in self.node.output if name][:1],
        )

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


def _apart(start: tuple[Dim | None, ...] | None, result: tuple[Dim | None, ...] | None) -> list[int] | None:
    """By how much numbers differ; None where that is not known."""
    if start is None or result is None or len(start) != len(result):
        return None
    found = [None if a is None or b is None else minus(b, a) for a, b in zip(start, result, strict=True)]
    known = [by for by in found if isinstance(by, int)]
    return known if len(known) == len(found) else None


def loop(scope: Scope, node: onnx.NodeProto, index: int) -> list[Value]:
    """Follows a Loop."""
    try:
        return _Loop(scope, node, index).followed()
    except (RefusedNodesError, UnknownError):
        found = written_out(scope, node)
        if found is None:
            raise
        return found

"""Short loops whose trips cannot be followed as one: all are written out, each with its own sizes, in Ifs
inside each other, so that a trip that is not made costs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.growing.extents import Dim, Extent, Symbol, plus, times
from edgepack.compiler.frontend.onnx.growing.follow import follow
from edgepack.compiler.frontend.onnx.growing.scope import Scope
from edgepack.compiler.frontend.onnx.growing.values import Value
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.shapes import inner_graphs

if TYPE_CHECKING:
    import onnx

__all__ = ["written_out"]

#: Most nodes that all trips are written out as, and most trips: messages of protocol buffers are nested in
#: each other a hundred times at most, an If three times.
MOST_NODES, MOST_TRIPS = 256, 24


def written_out(scope: Scope, node: onnx.NodeProto) -> list[Value] | None:
    """Writes a loop as its trips; its results. None where it has too many, or how many at most is not known,
    or the sizes in one, or it has graphs inside."""
    body: onnx.GraphProto = attributes(node)["body"]
    given = [*node.input, "", ""][: max(2, len(node.input))]
    numbers = scope.value(given[0]).numbers if given[0] else None
    most = numbers[0] if numbers is not None and len(numbers) == 1 else None
    starts = [scope.value(name) for name in given[2:]]
    if not isinstance(most, int) or not 0 < most <= min(MOST_TRIPS, scope.shared.trips):
        return None
    if most * len(body.node) > MOST_NODES or any(start.dims is None or start.padded for start in starts):
        return None
    if any(True for inner in body.node for _ in inner_graphs(inner)):
        return None
    short = _Short(scope, node, body, most)
    return short.written(given[1], starts) if short.sizes(starts) else None


@dataclass
class _Short:
    """A loop of few trips.

    Attributes:
        most: trips that there can be.
    """

    scope: Scope
    node: onnx.NodeProto
    body: onnx.GraphProto
    most: int

    def __post_init__(self) -> None:
        self.constants = {tensor.name: self.scope.adopted(tensor) for tensor in self.body.initializer}
        self.carried = len(self.body.input) - 2
        #: Sizes of what is carried, before the first trip and behind each; and of what is stacked.
        self.behind: list[list[tuple[int, ...]]] = []
        self.parts: list[tuple[int, ...]] = []
        self.elements: list[int] = []

    def _trip(self, around: Scope, number: int, state: Sequence[Value]) -> tuple[Scope, list[Value]]:
        """Follows a trip in a graph inside another one; what it gives."""
        import numpy as np
        import onnx

        inner = Scope(self.scope.shared, around, [])
        inner.prefix = f"{inner.fresh('trip')}/"
        for name, value in self.constants.items():
            inner.know(name, value)
        step, going, *carried = self.body.input
        shapes = [[1] * len(value.type.tensor_type.shape.dim) for value in (step, going)]
        inner.know(step.name, inner.const(np.full(shapes[0], number, np.int64)))
        inner.know(going.name, replace(inner.const(np.full(shapes[1], True)), element=onnx.TensorProto.BOOL))
        for value, now in zip(carried, state, strict=True):
            inner.know(value.name, now)
        follow(inner, self.body.node)
        return inner, [inner.value(value.name) for value in self.body.output]

    def sizes(self, starts: Sequence[Value]) -> bool:
        """Follows all trips for the sizes of what they carry; whether all are known."""
        state: list[Value] = list(starts)
        scope = self.scope
        for number in range(self.most + 1):
            if any(value.dims is None or value.padded for value in state):
                return False
            self.behind.append([tuple(scope.shape(value)) for value in state])
            if number < self.most:
                scope, (_, *results) = self._trip(scope, number, state)
                state, stacked = results[: self.carried], results[self.carried :]
                if any(value.dims is None or value.padded for value in stacked):
                    return False
                parts = [tuple(scope.shape(value)) for value in stacked]
                if number and parts != self.parts:
                    return False
                self.parts, self.elements = parts, [value.element for value in stacked]
        ranks = [{len(one[place]) for one in self.behind} for place in range(self.carried)]
        return all(len(found) == 1 for found in ranks)

    def rooms(self, place: int) -> list[int]:
        """The largest sizes of what is carried."""
        return [max(1, *sizes) for sizes in zip(*(one[place] for one in self.behind), strict=True)]

    # Writing ----------------------------------------------------------------------------------------------

    def written(self, condition: str, starts: Sequence[Value]) -> list[Value]:
        """Writes all trips; the loop's results."""
        import numpy as np

        first = self.scope.value(condition) if condition else self.scope.const(np.asarray(True))
        lengths = self._lengths()
        stacked: list[list[Value]] = [[] for _ in self.parts]
        made = self._level(self.scope, 0, first, list(starts), stacked)
        count, *values = made
        numbers = values[self.carried + len(self.parts) :]
        symbol = Symbol(count.name, 0, self.most)
        self.scope.know(count.name, count)
        symbols = {}
        for sequence, number in zip(lengths, numbers, strict=True):
            self.scope.know(number.name, number)
            symbols[sequence] = Symbol(number.name, min(sequence), max(sequence))
        found = []
        for place, value in enumerate(values[: self.carried]):
            sequences = zip(*(one[place] for one in self.behind), strict=True)
            dims = [self._dim(tuple(sequence), symbol, symbols) for sequence in sequences]
            for dim, room in zip(dims, self.rooms(place), strict=True):
                if isinstance(dim, Extent):
                    self.scope.shared.sizes.setdefault(dim, room)
            padded = frozenset(axis for axis, dim in enumerate(dims) if isinstance(dim, Extent))
            found.append(Value(value.name, value.element, tuple(dims), zero=padded))
        for value, part in zip(values[self.carried :], self.parts, strict=False):
            whole = Extent(((symbol, 1),), 0)
            found.append(Value(value.name, value.element, (whole, *part), zero=frozenset({0})))
        self.scope.shared.changed = True
        return found[: len(self.node.output)]

    def _lengths(self) -> list[tuple[int, ...]]:
        """Sizes behind each number of trips that are no multiple of it, each once."""
        found: dict[tuple[int, ...], None] = {}
        for place in range(self.carried):
            for sequence in zip(*(one[place] for one in self.behind), strict=True):
                if len(set(sequence)) > 1 and _step(sequence) is None:
                    found[sequence] = None
        return list(found)

    @staticmethod
    def _dim(sequence: tuple[int, ...], count: Symbol, symbols: dict[tuple[int, ...], Symbol]) -> Dim:
        """The size that is one of these by the number of trips."""
        step = _step(sequence)
        if step is not None:
            return plus(sequence[0], times(Extent(((count, 1),), 0), step))
        return Extent(((symbols[sequence], 1),), 0)

    def _level(
        self, scope: Scope, number: int, going: Value, state: list[Value], stacked: list[list[Value]]
    ) -> list[Value]:
        """Writes a trip and those behind it, if there is one: the number of trips, what the loop gives, and
        the sizes of :meth:`_lengths`, with room for the largest."""
        import onnx

        if number == self.most:
            return self._end(scope, number, state, stacked)
        inner, (on, *results) = self._trip(scope, number, state)
        parts = [[*own, one] for own, one in zip(stacked, results[self.carried :], strict=True)]
        then = self._level(inner, number + 1, on, results[: self.carried], parts)
        other = Scope(scope.shared, scope, [])
        graphs = {}
        for key, graph, values in (
            ("then_branch", inner, then),
            ("else_branch", other, self._end(other, number, state, stacked)),
        ):
            named = [replace(value, name=graph.op("Identity", value).name) for value in values]
            outputs = [graph.described(value.name, value) for value in named]
            graphs[key] = onnx.helper.make_graph(graph.nodes, key, [], outputs, graph.initializers)
        names = [scope.fresh("chosen") for _ in then]
        scope.nodes.append(onnx.helper.make_node("If", [going.name], names, name=names[0], **graphs))
        return [replace(value, name=name, numbers=None) for value, name in zip(then, names, strict=True)]

    def _end(self, scope: Scope, number: int, state: list[Value], stacked: list[list[Value]]) -> list[Value]:
        """What the loop gives behind so many trips."""
        import numpy as np
        import onnx

        found = [scope.const(np.asarray(number, np.int64))]
        for place, value in enumerate(state):
            now = Value(value.name, value.element, self.behind[number][place])
            for axis, room in enumerate(self.rooms(place)):
                now = scope.fitted(now, axis, self.behind[number][place][axis], room)
            found.append(now)
        for own, shape, element in zip(stacked, self.parts, self.elements, strict=True):
            dtype = onnx.helper.tensor_dtype_to_np_dtype(element)
            rows = [scope.op("Reshape", part, scope.numbers(1, *shape)) for part in own]
            if number < self.most:
                rows.append(scope.const(np.zeros((self.most - number, *shape), dtype)))
            found.append(scope.op("Concat", *rows, axis=0))
        return [*found, *(scope.const(np.asarray(one[number], np.int64)) for one in self._lengths())]


def _step(sequence: Sequence[int]) -> int | None:
    """By how much each number is larger than the one before, if that is always as much."""
    steps = {b - a for a, b in pairwise(sequence)}
    return steps.pop() if len(steps) == 1 else None

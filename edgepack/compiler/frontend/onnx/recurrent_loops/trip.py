"""A trip of a loop, read: what each value of the body is, in terms of :mod:`.formulas`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import (
    Atom,
    Formula,
    TooLongError,
    atom,
    constant,
    masked,
)
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, evaluated
from edgepack.compiler.frontend.onnx.shapes import inner_graphs

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "Choice",
    "Found",
    "Operator",
    "Outer",
    "Rows",
    "Schedule",
    "Sequences",
    "Shaped",
    "Trip",
    "Value",
    "Written",
    "integers",
    "is_array",
]


@dataclass(frozen=True)
class Rows:
    """float32 values that differ from trip to trip.

    Attributes:
        shape: whose elements, as they lie, are [batch, columns].
        parts: formulas of the columns, one behind the other.
    """

    shape: tuple[int, ...]
    parts: tuple[Formula, ...]

    @property
    def columns(self) -> int:
        return sum(part.size for part in self.parts)

    def slice(self, start: int, stop: int) -> tuple[Formula, ...]:
        """Formulas of some columns."""
        found, place = [], 0
        for part in self.parts:
            ours = max(start - place, 0), min(stop - place, part.size)
            if ours[0] < ours[1]:
                found.append(part.columns(*ours))
            place += part.size
        return tuple(found)


@dataclass(frozen=True)
class Schedule:
    """A number that is known for each trip.

    Attributes:
        numbers: [trips].
        shape: of the value, which has one element.
    """

    numbers: NDArray[Any]
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Outer:
    """A tensor of the graph around, of float32 or of truths."""

    name: str
    shape: tuple[int, ...]
    is_bool: bool = False


@dataclass(frozen=True)
class Choice:
    """A truth for each row of the batch, or 1 and 0, which differs from trip to trip.

    Attributes:
        atom: of an element of a sequence of truths.
        is_opposite: whether it is the opposite of that.
    """

    shape: tuple[int, ...]
    atom: Atom
    is_opposite: bool = False


@dataclass(frozen=True)
class Shaped:
    """A value of which the shape alone is known; ``place``: of what the loop carries, if it is that."""

    shape: tuple[int, ...]
    place: int = -1


@dataclass(frozen=True)
class Written:
    """What the loop carries, with a row of it replaced in each trip, row ``where.numbers[trip]``."""

    place: int
    shape: tuple[int, ...]
    where: Schedule
    row: Rows


#: None: not known. An array: a constant.
Value = Any

#: Results of an operator; None where it is not known what it computes.
Found = Sequence[Value] | None

#: From a trip, a node and its operands ("" is left out: None) to its results.
Operator = Callable[["Trip", "onnx.NodeProto", Sequence[Value]], Found]


class Sequences:
    """The sequences whose elements the trips read, by number.

    Attributes:
        sources: name, shape, axis, first element, and step from one trip to the next; None of the results of
            a layer.
    """

    def __init__(self) -> None:
        self.sources: list[tuple[str, tuple[int, ...], int, int, int] | None] = []
        self.atoms: list[Atom] = []
        self._known: dict[tuple[Any, ...], int] = {}

    def element(self, source: Outer, axis: int, first: int, step: int, columns: int) -> Atom:
        """That of a trip."""
        key = (source.name, axis, first, step, columns)
        if key not in self._known:
            self._known[key] = len(self.atoms)
            self.sources.append((source.name, source.shape, axis, first, step))
            self.atoms.append(Atom("input", len(self.atoms), columns))
        return self.atoms[self._known[key]]

    def result(self, columns: int) -> Atom:
        """The hidden state behind a trip, of a layer that was found."""
        self.sources.append(None)
        self.atoms.append(Atom("input", len(self.atoms), columns))
        return self.atoms[-1]


class Trip:
    """A trip of a loop.

    Attributes:
        values: of the body, by name.
        results: by the key of a formula, the same of elements of sequences.
    """

    def __init__(
        self,
        editor: Editor,
        body: onnx.GraphProto,
        given: Mapping[str, Value],
        *,
        batch: int,
        trips: int,
        sequences: Sequences,
        results: Mapping[str, Formula],
    ) -> None:
        from onnx import numpy_helper

        self.editor, self.body, self.batch, self.trips = editor, body, batch, trips
        self.sequences, self.results = sequences, results
        self.values: dict[str, Value] = {t.name: numpy_helper.to_array(t) for t in body.initializer}
        self.values.update(given)
        self._outer: dict[str, Value] = {}

    def read(self, operators: Mapping[str, Operator]) -> None:
        """Reads all nodes, in order."""
        for node in self.body.node:
            found = self._results(node, operators)
            for index, name in enumerate(node.output):
                if name:
                    value = found[index] if found is not None and index < len(found) else None
                    self.values[name] = self._known(value)

    def _results(self, node: onnx.NodeProto, operators: Mapping[str, Operator]) -> Found:
        if node.domain not in ("", "ai.onnx") or any(True for _ in inner_graphs(node)):
            return None
        operands = [self.value(name) for name in node.input]
        if all(not name or is_array(one) for name, one in zip(node.input, operands, strict=True)):
            return self._constants(node, operands)
        operator = operators.get(node.op_type)
        if operator is None:
            return None
        try:
            return operator(self, node, operands)
        except TooLongError:
            return None

    def _constants(self, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
        """Results of constants alone."""
        if node.op_type.startswith(("Random", "Bernoulli", "Multinomial")):
            return None
        known = {name: one for name, one in zip(node.input, operands, strict=True) if name}
        try:
            return [
                evaluated(node, name, known, self.editor.model.opset_import) if name else None
                for name in node.output
            ]
        except Exception:  # what the evaluator lacks has errors of many classes
            return None

    def _known(self, value: Value) -> Value:
        """The value; an element of a sequence, where that is the same."""
        if not isinstance(value, Rows) or len(value.parts) != 1:
            return value
        found = self.results.get(value.parts[0].key) if self.results else None
        return value if found is None else Rows(value.shape, (found,))

    def value(self, name: str) -> Value:
        """That of the body, or of the graph around it."""
        if not name or name in self.values:
            return self.values.get(name)
        return self.outer(name)

    def outer(self, name: str) -> Value:
        """That of a name of the graph around."""
        import numpy as np

        if name not in self._outer:
            found: Value = self.editor.constant(name)
            if found is None:
                shape = self.editor.shape(name)
                dtype = None if shape is None else self.editor.dtype(name)
                if shape is not None and dtype in (np.dtype(np.float32), np.dtype(np.bool_)):
                    found = Outer(name, tuple(shape), dtype == np.dtype(np.bool_))
            self._outer[name] = found
        return self._outer[name]

    def rows(self, shape: Sequence[int], *parts: Formula) -> Rows | None:
        """A value of a shape, which has [batch, columns of the parts] elements; None of others."""
        fits = prod(shape) == self.batch * sum(part.size for part in parts)
        return Rows(tuple(shape), parts) if fits else None

    def element(
        self, source: Value, where: Schedule, axis: int, shape: Sequence[int]
    ) -> Rows | Choice | None:
        """An element of a sequence in each trip, one behind the other, in either direction.

        Args:
            shape: of the element.
        """
        import numpy as np

        if not isinstance(source, Outer):
            return None
        extent, count = source.shape[axis], prod(shape)
        places = np.where(where.numbers < 0, where.numbers + extent, where.numbers)
        steps = set(np.diff(places).tolist())
        if len(steps) > 1 or not steps <= {1, -1} or places.min() < 0 or places.max() >= extent:
            return None
        if count % self.batch or not count:
            return None
        columns = count // self.batch
        step = next(iter(steps), 1)
        if source.is_bool and columns != 1:
            return None
        one = self.sequences.element(source, axis, int(places[0]), int(step), columns)
        return Choice(tuple(shape), one) if source.is_bool else self.rows(shape, atom(one))

    def spread(self, choice: Choice, shape: Sequence[int]) -> Formula | None:
        """What a choice is for each column of a value of a shape; None where rows do not lie as in that."""
        import numpy as np

        try:
            rows = np.broadcast_to(np.arange(self.batch).reshape(choice.shape), shape)
        except ValueError:
            return None
        rows = rows.reshape(self.batch, -1)
        if not (rows == np.arange(self.batch)[:, None]).all():
            return None
        found = masked(choice.atom, rows.shape[1])
        return constant(np.ones(found.size)).plus(found.scaled(-1.0)) if choice.is_opposite else found


def is_array(value: Value) -> bool:
    """Whether a value is a constant."""
    import numpy as np

    return isinstance(value, np.ndarray | np.generic)


def integers(value: Value) -> list[int] | None:
    """Those of a constant; None of any other value."""
    return [int(one) for one in value.reshape(-1)] if is_array(value) else None

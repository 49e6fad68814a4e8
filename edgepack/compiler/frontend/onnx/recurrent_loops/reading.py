"""A loop, read: the layers that it is made of, and what else it computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.recurrent_loops.cells import Cell, State, find_cell
from edgepack.compiler.frontend.onnx.recurrent_loops.elementwise import ELEMENTWISE
from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import Atom, Formula, atom
from edgepack.compiler.frontend.onnx.recurrent_loops.loops import Carried, Loop, origin
from edgepack.compiler.frontend.onnx.recurrent_loops.one_step import ONE_STEP
from edgepack.compiler.frontend.onnx.recurrent_loops.parts import PARTS
from edgepack.compiler.frontend.onnx.recurrent_loops.products import PRODUCTS
from edgepack.compiler.frontend.onnx.recurrent_loops.trip import (
    Outer,
    Rows,
    Schedule,
    Sequences,
    Shaped,
    Trip,
    Value,
    Written,
)
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Layer", "Piece", "Reading", "float_shape"]

OPERATORS = {**ELEMENTWISE, **PARTS, **PRODUCTS, **ONE_STEP}


@dataclass(frozen=True)
class Piece:
    """Columns of a float32 state, which are one state of their own.

    Attributes:
        place: of the state among what the loop carries.
    """

    place: int
    start: int
    atom: Atom


@dataclass(frozen=True)
class Layer:
    """A layer, and the sequence of its results."""

    cell: Cell
    pieces: tuple[Piece, ...]
    result: Atom


def float_shape(editor: Editor, name: str) -> tuple[int, ...] | None:
    import onnx

    return editor.shape(name) if editor.element(name) == onnx.TensorProto.FLOAT else None


class Reading:
    """A loop, read with a size of the batch."""

    def __init__(self, editor: Editor, loop: Loop, batch: int) -> None:
        self.editor, self.loop, self.batch = editor, loop, batch
        self.sequences = Sequences()
        self.layers: list[Layer] = []
        self.fixed: dict[str, Value] = {}
        self.counters: dict[int, NDArray[Any]] = {}
        self.unchanged: set[int] = set()
        self.pieces: dict[int, list[Piece]] = {}
        self.written: set[int] = set()
        self.trip = Trip(editor, loop.body, {}, **self._about({}))
        self._given()

    # What is known before the trips are read ---------------------------------------------------------------

    def _given(self) -> None:
        import numpy as np

        loop = self.loop
        steps = np.arange(loop.trips)
        outer = self.trip
        if loop.number:
            rank = len(loop.body.input[0].type.tensor_type.shape.dim)
            self.fixed[loop.number] = Schedule(steps, (1,) * rank)
        for inside, sequence, axis, backwards in loop.elements:
            source = outer.outer(sequence)
            shape = source.shape if isinstance(source, Outer) else ()
            where = Schedule(steps[::-1] if backwards else steps, ())
            rest = [*shape[:axis], *shape[axis + 1 :]]
            self.fixed[inside] = outer.element(source, where, axis, rest)
        for place, one in enumerate(loop.carried):
            self._carry(outer, place, one)

    def _carry(self, outer: Trip, place: int, one: Carried) -> None:
        """What is known of something that the loop carries, before the trips are read."""
        import numpy as np

        start = outer.outer(one.start)
        behind = origin(self.loop.body, one.behind)
        if behind == one.before:
            self.fixed[one.before] = start
            self.unchanged.add(place)
            return
        step = self._step(one, behind)
        if step is not None and isinstance(start, np.ndarray) and start.size == 1:
            numbers = start.reshape(-1)[0] + step * np.arange(self.loop.trips + 1, dtype=start.dtype)
            self.fixed[one.before] = Schedule(numbers[:-1], start.shape)
            self.counters[place] = numbers[-1:].reshape(start.shape)
            return
        shape = float_shape(self.editor, one.start)
        if shape is None:
            return
        node = next((n for n in self.loop.body.node if behind in n.output), None)
        if node is not None and node.op_type == "ScatterND" and node.input[0] == one.before:
            self.fixed[one.before] = Shaped(tuple(shape), place)
            self.written.add(place)
        elif prod(shape) and prod(shape) % self.batch == 0:
            columns = prod(shape) // self.batch
            self.pieces[place] = [Piece(place, 0, Atom("state", place, columns))]

    def _step(self, one: Carried, behind: str) -> Any:
        """By how much a counter grows with each trip; None of what is not a counter."""
        body = self.loop.body
        node = next((n for n in body.node if behind in n.output), None)
        if node is None or node.op_type not in ("Add", "Sub") or len(node.input) != 2:
            return None
        names = list(map(str, node.input))
        if one.before in names[1:] and node.op_type == "Add":
            names.reverse()
        if names[0] != one.before or names[1] == one.before:
            return None
        from onnx import numpy_helper

        inside = next((tensor for tensor in body.initializer if tensor.name == names[1]), None)
        by = self.editor.constant(names[1]) if inside is None else numpy_helper.to_array(inside)
        if by is None or by.size != 1 or by.dtype.kind not in "iu":
            return None
        return by.reshape(-1)[0] if node.op_type == "Add" else -by.reshape(-1)[0]

    def _about(self, results: Mapping[str, Atom]) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "trips": self.loop.trips,
            "sequences": self.sequences,
            "results": results,
        }

    # The trips ---------------------------------------------------------------------------------------------

    def found(self) -> bool:
        """Whether all states of the loop are those of layers, which are then known."""
        if not self.pieces:
            return False
        self._read({})
        if self._divided():
            self._read({})
        results: dict[str, Atom] = {}
        while (found := self._next_layer()) is not None:
            self.layers.append(found)
            assert found.cell.hidden.result is not None
            results[found.cell.hidden.result.key] = found.result
            self._read(results)
        return bool(self.layers)

    def _read(self, results: Mapping[str, Atom]) -> None:
        """Reads the trip anew."""
        states = {
            self.loop.carried[place].before: Rows(
                tuple(self.editor.shape(self.loop.carried[place].start) or ()),
                tuple(atom(piece.atom) for piece in pieces),
            )
            for place, pieces in self.pieces.items()
        }
        self.trip = Trip(self.editor, self.loop.body, {**self.fixed, **states}, **self._about(results))
        self.trip.read(OPERATORS)

    def _behind(self, place: int) -> Rows | None:
        """What a state is behind a trip."""
        found = self.trip.value(self.loop.carried[place].behind)
        return found if isinstance(found, Rows) else None

    def _divided(self) -> bool:
        """Makes states that a trip joins of several values states of their own; whether there are any."""
        number, changed = len(self.loop.carried), False
        for place in list(self.pieces):
            rows = self._behind(place)
            if rows is None or len(rows.parts) == 1:
                continue
            start, pieces = 0, []
            for part in rows.parts:
                pieces.append(Piece(place, start, Atom("state", number, part.size)))
                number, start = number + 1, start + part.size
            self.pieces[place], changed = pieces, True
        return changed

    def _piece_result(self, piece: Piece) -> Formula | None:
        """What columns of a state are behind a trip."""
        rows = self._behind(piece.place)
        if rows is None or rows.columns < piece.start + piece.atom.size:
            return None
        parts = rows.slice(piece.start, piece.start + piece.atom.size)
        return parts[0] if len(parts) == 1 else None

    def _next_layer(self) -> Layer | None:
        """A layer of states of which none is another layer's."""
        taken = {piece.atom.key for layer in self.layers for piece in layer.pieces}
        free = [p for pieces in self.pieces.values() for p in pieces if p.atom.key not in taken]
        states = {piece.atom.key: State(piece.atom, self._piece_result(piece)) for piece in free}
        cell = find_cell(list(states.values()))
        if cell is None:
            return None
        used = [cell.hidden, *([cell.memory] if cell.memory is not None else [])]
        pieces = tuple(next(p for p in free if p.atom.key == state.atom.key) for state in used)
        return Layer(cell, pieces, self.sequences.result(cell.hidden.atom.size))

    # Behind the last trip ---------------------------------------------------------------------------------

    def end(self, place: int) -> Any:
        """What is known of a value that the loop carries, behind the last trip: its name, an array, what is
        written row by row, or for each piece its layer and which of its states it is, or its formula."""
        one = self.loop.carried[place]
        if place in self.unchanged:
            return one.start
        if place in self.counters:
            return self.counters[place]
        if place in self.written:
            return self._rows_written(place)
        pieces = [self._piece_end(piece) for piece in self.pieces.get(place, ())]
        return pieces if pieces and all(one is not None for one in pieces) else None

    def _rows_written(self, place: int) -> Written | None:
        """Where all rows of a value are replaced, one after the other, from either end."""
        import numpy as np

        found = self.trip.value(self.loop.carried[place].behind)
        if not isinstance(found, Written) or found.place != place or found.shape[0] != self.loop.trips:
            return None
        places = np.where(found.where.numbers < 0, found.where.numbers + found.shape[0], found.where.numbers)
        order = places.tolist()
        if order not in (list(range(self.loop.trips)), list(range(self.loop.trips))[::-1]):
            return None
        known = all(part.is_known for part in found.row.parts)
        return replace(found, where=Schedule(places, ())) if known else None

    def _piece_end(self, piece: Piece) -> tuple[Layer, int] | Formula | None:
        for layer in self.layers:
            for index, own in enumerate(layer.pieces):
                if own.atom.key == piece.atom.key:
                    return layer, index
        result = self._piece_result(piece)
        if result is None:
            return None
        for layer in self.layers:
            memory = layer.cell.memory
            if memory is not None and memory.result is not None and memory.result.key == result.key:
                return layer, 1
        return result if result.is_known else None

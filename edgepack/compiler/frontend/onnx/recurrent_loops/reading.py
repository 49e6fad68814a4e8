"""A loop, read: the layers that it is made of, and what else it computes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.origins import origin
from edgepack.compiler.frontend.onnx.recurrent_loops.cells import Cell, State, find_cell
from edgepack.compiler.frontend.onnx.recurrent_loops.elementwise import ELEMENTWISE
from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import Atom, Formula, atom, constant, masked
from edgepack.compiler.frontend.onnx.recurrent_loops.loops import Carried, Loop
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

__all__ = ["Layer", "MaskKey", "Piece", "Reading", "float_shape"]

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


#: The key of a mask's atom, and whether a state becomes another one where the mask is 1, not where it is 0.
MaskKey = tuple[str, bool]


@dataclass(frozen=True)
class Layer:
    """A layer, and the sequence of its results.

    Attributes:
        pieces: its states.
        mask: of the trips behind which the states are others than before; "" as key for all.
        copies: states that are its result too, where the mask is set, each with its own sequence.
    """

    cell: Cell
    pieces: tuple[Piece, ...]
    result: Atom
    mask: MaskKey = ("", True)
    copies: tuple[tuple[Piece, Atom], ...] = ()


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
        self.masks: dict[str, Atom] = {}
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

    def _about(self, results: Mapping[str, Formula]) -> dict[str, Any]:
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
        results: dict[str, Formula] = {}
        while (found := self._next_layer()) is not None:
            self.layers.append(found)
            self._add_results(found, results)
            self._read(results)
        return bool(self.layers)

    def _add_results(self, layer: Layer, results: dict[str, Formula]) -> None:
        """Notes which formulas are the results of a layer."""
        import numpy as np

        new, (key, where) = layer.cell.hidden.result, layer.mask
        assert new is not None
        if not key:
            results[new.key] = atom(layer.result)
            return
        mask = masked(self.masks[key], new.size)
        opposite = constant(np.ones(new.size)).plus(mask.scaled(-1.0))
        chosen, other = (mask, opposite) if where else (opposite, mask)
        results[chosen.times(new).key] = chosen.times(atom(layer.result))
        for piece, result in ((layer.pieces[0], layer.result), *layer.copies):
            before = other.times(atom(piece.atom))
            for behind in (new, atom(layer.result)):
                results[chosen.times(behind).plus(before).key] = atom(result)

    def _read(self, results: Mapping[str, Formula]) -> None:
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
        """What a state is behind a trip, where it has the shape that it had before."""
        found = self.trip.value(self.loop.carried[place].behind)
        shape = tuple(self.editor.shape(self.loop.carried[place].start) or ())
        return found if isinstance(found, Rows) and found.shape == shape else None

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
        results = {piece.atom.key: self._unmasked(piece) for piece in free}
        for mask in dict.fromkeys(found[0] for found in results.values() if found is not None):
            alike = {p.atom.key: (p, f[1]) for p in free if (f := results[p.atom.key]) and f[0] == mask}
            cell = find_cell([State(piece.atom, new) for piece, new in alike.values()])
            if cell is None:
                continue
            used = [cell.hidden, *([cell.memory] if cell.memory is not None else [])]
            pieces = tuple(alike[state.atom.key][0] for state in used)
            result = self.sequences.result(cell.hidden.atom.size)
            copies = self._copies(cell, [one for one in alike.values() if one[0] not in pieces])
            return Layer(cell, pieces, result, mask, copies if mask[0] else ())
        return None

    def _copies(self, cell: Cell, others: Sequence[tuple[Piece, Formula]]) -> tuple[tuple[Piece, Atom], ...]:
        """Other states that are the hidden one behind a trip."""
        assert cell.hidden.result is not None
        alike = [piece for piece, new in others if new.key == cell.hidden.result.key]
        return tuple((piece, self.sequences.result(piece.atom.size)) for piece in alike)

    def _unmasked(self, piece: Piece) -> tuple[MaskKey, Formula] | None:
        """What a state becomes where a mask is set, or is not, where it stays as it is otherwise."""
        result = self._piece_result(piece)
        if result is None or len(result.masks) > 1:
            return None
        before = atom(piece.atom).key
        for key, one in result.masks.items():
            self.masks[key] = one
            for where in (True, False):
                if result.where(key, not where).key == before:
                    return (key, where), result.where(key, where)
            return None
        return ("", True), result

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
            for own, copied in layer.copies:
                if own.atom.key == piece.atom.key:
                    return atom(copied)
        result = self._piece_result(piece)
        if result is None:
            return None
        for layer in self.layers:
            memory = layer.cell.memory
            if (
                not layer.mask[0]
                and memory is not None
                and memory.result is not None
                and memory.result.key == result.key
            ):
                return layer, 1
        return result if result.is_known else None

"""One step of a recurrent layer for a block of hidden units: the product of the state, and the cell.

A block has all gates of its units, so that nothing but the new state leaves it. Its weights lie in the order
in which they are read, see :class:`Weights`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from edgepack.compiler.graph.recurrent import Activation, Recurrence
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import Index, index
from edgepack.compiler.kernels.cpu.emit.register_tile import Accumulators, Matrix, Steps
from edgepack.compiler.kernels.cpu.micro.multiply_add import multiply_add
from edgepack.compiler.kernels.cpu.recurrent.cells import Cell, Phase, phases_of

__all__ = ["Block", "Place", "Step", "StepEmitter", "Weights"]

Expr = Any

#: A row of a step, the first unit of a vector in its block, and its lanes.
Vector = tuple[Index, Index, int]


@dataclass(frozen=True)
class Place:
    """Rows of hidden units: row ``r`` begins at ``at + r * step`` of ``buffer``, all in elements."""

    buffer: Any
    at: Index
    step: int


@dataclass(frozen=True)
class Block:
    """Neighbouring hidden units: the first one, and the vectors that they are computed as (first unit of the
    block, lanes)."""

    first: Index
    chunks: tuple[tuple[int, int], ...]

    @property
    def width(self) -> int:
        """How many units."""
        return sum(lanes for _, lanes in self.chunks)


@dataclass(frozen=True)
class Step:
    """Where a step reads and writes, for some rows (sequences of the batch) of one direction.

    Attributes:
        direction: 0 or 1, and ``functions`` its activations.
        time: the step's place in the sequence, and ``first`` the first row's in the batch.
        rows: how many.
        places: "inputs", "hidden", "new_hidden", "result", and by cell "cell", "new_cell", "update", "reset".
            "goes_on", where it is not the lengths that say so: an int32 for each row, 0 where the sequence
            has ended before this step.
    """

    direction: Index
    functions: tuple[Activation, ...]
    time: Index
    first: Index
    rows: int
    places: Mapping[str, Place]


@dataclass(frozen=True)
class Weights:
    """The weights of the state.

    Packed, a block's lie together: for each unit of the state before those of each gate for each unit of the
    block. Else they are [directions, size, gates * size], as the layer has them.
    """

    buffer: Any
    form: Recurrence
    packed: bool

    def of(self, e: Emitter, phase: Phase, direction: Index, block: Block) -> tuple[Any, int, list[int]]:
        """The block's: a view of them, the step from one unit of the state to the next, and where each of the
        phase's gates lies in it."""
        size, gates = self.form.size, self.form.gates
        if not self.packed:
            at = direction * (size * gates * size) + block.first
            view = e.rebased(self.buffer, at, size * gates * size - size + block.width)
            return view, gates * size, [g * size for g in phase.gates]
        count = len(phase.gates)
        phases = phases_of(self.form)
        before = sum(len(p.gates) for p in phases[: phases.index(phase)]) * self.form.directions
        at = (direction * size + block.first) * (size * count) + before * size * size
        step = count * block.width
        return e.rebased(self.buffer, at, size * step), step, [g * block.width for g in range(count)]


class StepEmitter:
    """Emits steps. ``bias``, ``peepholes`` and ``lengths`` are operands, or None."""

    def __init__(self, e: Emitter, form: Recurrence, weights: Weights, operands: Mapping[str, Any]) -> None:
        self.e, self.form, self.weights = e, form, weights
        self.bias, self.peepholes = operands.get("bias"), operands.get("peepholes")
        self.lengths = operands.get("lengths")

    def emit(self, phase: Phase, step: Step, block: Block) -> None:
        """The phase's product for some rows and the block, and what follows it."""
        if "goes_on" not in step.places:
            self._compute(phase, step, block)
            return
        e, some = self.e, tirx.NE(self._goes_on(step, 0), index(0))
        for row in range(1, step.rows):
            some = tirx.any(some, tirx.NE(self._goes_on(step, row), index(0)))
        kept = functools.partial(self._each, step, block, functools.partial(self._keep, step, block))
        e.branch(some, lambda: self._compute(phase, step, block), kept if self._kept(step) else None)

    def _compute(self, phase: Phase, step: Step, block: Block) -> None:
        e, width, count = self.e, block.width, len(phase.gates)
        chunks = [(g * width + c, lanes) for g in range(count) for c, lanes in block.chunks]
        sums = Accumulators(e, step.rows, chunks)
        self._begin(sums, phase, step, block)
        self._product(sums, phase, step, block)
        saved = e.local(step.rows * count * width)
        sums.save(saved, 0)
        self._each(step, block, lambda vector: self._row(phase, step, block, saved, vector))

    def _each(self, step: Step, block: Block, body: Callable[[Vector], None]) -> None:
        """``body(vector)`` of all rows of a step and all vectors of a block."""
        e = self.e
        uniform = len({lanes for _, lanes in block.chunks}) == 1
        if not uniform or step.rows * len(block.chunks) <= 2:
            for row in range(step.rows):
                for column, lanes in block.chunks:
                    body((row, column, lanes))
            return
        lanes = block.chunks[0][1]

        def row_loop(row: Expr) -> None:
            e.loop(0, len(block.chunks), lambda i: body((row, e.let(i * lanes), lanes)))

        e.loop(0, step.rows, row_loop)

    # The product --------------------------------------------------------------------------------------------

    def _begin(self, sums: Accumulators, phase: Phase, step: Step, block: Block) -> None:
        """What the products are added to: those of the inputs, or the state's own bias."""
        e, size = self.e, self.form.size
        inputs = step.places["inputs"]
        for number, gate in enumerate(phase.gates):
            for column, lanes in block.chunks:
                own = self.form.linear_before_reset and gate == 2
                for row in range(step.rows):
                    value = e.f32(0, lanes)
                    if not own:
                        at = inputs.at + row * inputs.step + block.first + (gate * size + column)
                        value = e.vload(inputs.buffer, at, lanes)
                    elif self.bias is not None:
                        at = step.direction * size + block.first + column
                        value = e.vload(self.bias, at, lanes)
                    sums.set(row, number * block.width + column, value, lanes)

    def _product(self, sums: Accumulators, phase: Phase, step: Step, block: Block) -> None:
        e, size = self.e, self.form.size
        view, stride, gates = self.weights.of(e, phase, step.direction, block)
        source = step.places[phase.source]
        columns = tuple(gate + column for gate in gates for column, _ in block.chunks)

        def unit(row: int, k: Index) -> Expr:
            return e.load(source.buffer, source.at + row * source.step + k)

        multiply_add(e).add_product(e, sums, unit, Matrix(view, 0, stride, columns), Steps(size, 2, True))

    # The cell -----------------------------------------------------------------------------------------------

    def _row(self, phase: Phase, step: Step, block: Block, saved: Any, vector: Vector) -> None:
        """A vector of a row; where the sequence has ended, the state stays and the result is 0."""

        def compute() -> None:
            self._cell(phase, step, (block, saved, vector))

        if step.rows == 1:  # one sequence by itself has no step behind its end
            compute()
        elif "goes_on" in step.places:
            ended = tirx.EQ(self._goes_on(step, vector[0]), index(0))
            self.e.branch(ended, lambda: self._keep(step, block, vector), compute)
        elif self.lengths is not None:
            length = self.e.load(self.lengths, step.first + vector[0])
            self.e.branch(index(step.time) < length, compute, lambda: self._keep(step, block, vector))
        else:
            compute()

    def _goes_on(self, step: Step, row: Index) -> Expr:
        place = step.places["goes_on"]
        return self.e.load(place.buffer, place.at + row)

    def _kept(self, step: Step) -> bool:
        """Whether anything is written for a sequence that has ended."""
        return any(name in step.places for name in ("new_hidden", "new_cell", "result"))

    def _keep(self, step: Step, block: Block, vector: Vector) -> None:
        e, places, lanes = self.e, step.places, vector[2]
        at = functools.partial(self._at, block, vector)
        for old, new in (("hidden", "new_hidden"), ("cell", "new_cell")):
            if new in places:
                value = e.vload(places[old].buffer, at(places[old]), lanes)
                e.vstore(places[new].buffer, at(places[new]), value, lanes)
        if "result" in places:
            e.vstore(places["result"].buffer, at(places["result"]), e.f32(0, lanes), lanes)

    def _at(self, block: Block, vector: Vector, place: Place) -> Index:
        """Where a vector of a block lies in a place."""
        row, column, _ = vector
        return self.e.let(place.at + row * place.step + block.first + column)

    def _cell(self, phase: Phase, step: Step, sums: tuple[Block, Any, Vector]) -> None:
        """``sums`` are the block, the sums of its gates, and which vector of them."""
        e, size, places = self.e, self.form.size, step.places
        block, saved, vector = sums
        row, column, lanes = vector
        at = functools.partial(self._at, block, vector)

        def load(name: str) -> Expr:
            return e.let(e.vload(places[name].buffer, at(places[name]), lanes))

        def store(name: str, value: Expr) -> None:
            if name in places:
                e.vstore(places[name].buffer, at(places[name]), value, lanes)

        def gate(number: int) -> Expr:
            place = row * (len(phase.gates) * block.width) + phase.gates.index(number) * block.width + column
            return e.let(e.vload(saved, place, lanes))

        def peephole(number: int) -> Expr:
            place = step.direction * (3 * size) + number * size + block.first + column
            return e.vload(self.peepholes, place, lanes)

        cell = Cell(e, self.form, step.functions, lanes, gate, peephole)
        if self.form.cell == "lstm":
            hidden, new = cell.lstm(load("cell"))
            store("new_cell", new)
        elif self.form.cell == "rnn":
            hidden = cell.rnn()
        elif phase.gates == (0, 1):
            update, reset = cell.gru_gates()
            store("update", update)
            store("reset", reset * load("hidden"))
            return
        elif phase.gates == (2,):
            hidden = cell.gru(load("update"), gate(2), load("hidden"))
        else:
            update, reset = cell.gru_gates()
            inputs = places["inputs"]
            ours = e.vload(inputs.buffer, at(inputs) + 2 * size, lanes)
            hidden = cell.gru(update, ours + reset * gate(2), load("hidden"))
        store("new_hidden", hidden)
        store("result", hidden)

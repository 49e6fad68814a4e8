"""A recurrent layer whose task is all steps of some sequences in one direction; states are in scratch.

Where sequences have lengths, a task ends with the longest of its own, and only writes zeros behind it.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.graph.fused_group import FusedGroup
from edgepack.compiler.graph.recurrent import Activation, Recurrence
from edgepack.compiler.kernels.contract import Implementation
from edgepack.compiler.kernels.cpu.emit.indices import Index, div, index, mod
from edgepack.compiler.kernels.cpu.emit.register_tile import power_of_two_chunks
from edgepack.compiler.kernels.cpu.recurrent.layer import RecurrentKernel
from edgepack.compiler.kernels.cpu.recurrent.step import Block, Place, Step, StepEmitter
from edgepack.plan.target import CpuTarget

__all__ = ["SequenceKernel"]


class SequenceKernel(RecurrentKernel):
    """Emits one kernel, whose tasks are tiles of the batch in each direction."""

    #: Operands of the layer that the kernel reads beside the weights.
    reads: tuple[str, ...] = ("inputs", "bias", "hidden", "cell", "peepholes", "lengths")

    def __init__(self, fused: FusedGroup, form: Recurrence, target: CpuTarget, *, packed: bool) -> None:
        super().__init__(fused, form, target, packed=packed)
        self._declare()

    def _declare(self) -> None:
        e, form = self.e, self.form
        self.given = self.declared(e, *self.reads)
        elements = form.directions * form.gates * form.size**2
        weights = e.packed(0, elements) if self.packed else e.param(1, elements)
        self.step_emitter = StepEmitter(e, form, self.weights_in(weights), self.given)
        names = ("result", "new_hidden", "new_cell")
        self.results = {
            name: e.output(number, prod(shape))
            for number, (name, shape) in enumerate(zip(names, form.result_shapes, strict=False))
        }
        rows = self.tiles[0][0] * form.size
        # Two hidden states: a step reads all of the one and writes the other.
        self.states = {"hidden": e.scratch(2 * rows)}
        others = {"lstm": ("cell",), "gru": ("update", "reset") if len(self.phases) > 1 else ()}
        self.states |= {name: e.scratch(rows) for name in others.get(form.cell, ())}

    def parameters(self) -> dict[str, Any]:
        return {"form": "sequence", **super().parameters()}

    def build(self) -> Implementation:
        self.e.tasks(self._task)
        return self.implementation((self.e.stage(self.form.directions * self.pieces),))

    def _task(self, task: Expr) -> None:
        e = self.e
        direction, piece = e.let(div(task, self.pieces)), e.let(mod(task, self.pieces))
        done, row = 0, 0
        for rows, count in self.tiles:

            def body(rows: int = rows, done: int = done, row: int = row) -> None:
                first = e.let((piece - done) * rows + row)
                self.by_direction(e, direction, lambda f: self._all_steps(direction, first, rows, f))

            if len(self.tiles) == 1:
                body()
            else:
                e.branch(tirx.all(piece >= index(done), piece < index(done + count)), body)
            done, row = done + count, row + rows * count

    def _all_steps(self, direction: Expr, first: Expr, rows: int, functions: tuple[Activation, ...]) -> None:
        e, form = self.e, self.form
        at, step = e.let(self.state(direction, first)), form.size
        steps = self._longest(first, rows)
        for name in ("hidden", "cell"):
            if name in self.states:
                given = Place(self.given[name], at, step) if name in self.given else None
                self._copy(given, Place(self.states[name], 0, form.size), rows, first)

        def one(number: Expr) -> None:
            time = self.time(direction, number, steps)
            self._one_step(Step(direction, functions, time, first, rows, {}), number)

        self._loop(direction, steps, one)
        e.loop(steps, form.steps, lambda time: self._clear(direction, first, rows, time))
        ends = {"hidden": e.let(mod(steps, 2) * (rows * form.size)), "cell": 0}
        for name, end in ends.items():
            if f"new_{name}" in self.results:
                result = Place(self.results[f"new_{name}"], at, step)
                self._copy(Place(self.states[name], end, form.size), result, rows, first)

    def _longest(self, first: Expr, rows: int) -> Index:
        """How many steps the longest of some sequences has."""
        if "lengths" not in self.given:
            return self.form.steps
        e, longest = self.e, index(0)
        for row in range(rows):
            longest = e.let(tirx.max(longest, e.load(self.given["lengths"], first + row)))
        return e.let(tirx.min(longest, index(self.form.steps)))

    def _loop(self, direction: Expr, steps: Index, one: Callable[[Expr], None]) -> None:
        """The steps of the sequence that are done."""
        self.e.loop(0, steps, one)

    def _clear(self, direction: Expr, first: Expr, rows: int, time: Expr) -> None:
        """The results of a step that no sequence has any more are 0."""
        self._copy(None, self._result(direction, first, time), rows, first)

    def _result(self, direction: Expr, first: Expr, time: Index) -> Place:
        """Where the hidden states of a step go."""
        size = self.form.size
        steps, sequences = self.strides(self.form.directions * size)
        at = self.e.let(time * steps + first * sequences + direction * size)
        return Place(self.results["result"], at, sequences)

    def _inputs(self, step: Step, number: Expr) -> Place:
        """Where the products of a step's inputs are."""
        form = self.form
        steps, sequences = self.strides(form.directions * form.gates * form.size)
        at = step.time * steps + step.first * sequences + step.direction * (form.gates * form.size)
        return Place(self.given["inputs"], self.e.let(at), sequences)

    def time(self, direction: Expr, number: Expr, steps: Index) -> Index:
        """The place in the sequence of the step that is done as the ``number``-th of ``steps``."""
        last = index(steps) - index(1)
        if self.form.reverse == (0,):
            return number
        if self.form.reverse == (1,):
            return self.e.let(last - number)
        return self.e.let(number + direction * (last - number * 2))

    def _one_step(self, step: Step, number: Expr) -> None:
        e, form = self.e, self.form
        size, rows = form.size, step.rows
        odd = e.let(mod(number, 2) * (rows * size))
        places = {name: Place(buffer, 0, size) for name, buffer in self.states.items()}
        places["inputs"] = self._inputs(step, number)
        places["result"] = self._result(step.direction, step.first, step.time)
        places["hidden"] = Place(self.states["hidden"], odd, size)
        places["new_hidden"] = Place(self.states["hidden"], e.let(index(rows * size) - odd), size)
        if "cell" in places:
            places["new_cell"] = places["cell"]
        step = Step(step.direction, step.functions, step.time, step.first, rows, places)
        # Weights that the cache does not hold: every other step begins with those that it still has.
        turns = self.weight_bytes > self.target.l2_bytes // 2
        for phase in self.phases:
            for block, count in self.blocks[phase]:

                def some(i: Expr, block: Block = block, last: int = count - 1) -> None:
                    turned = i + mod(number, 2) * (index(last) - i * 2) if turns else i
                    first = e.let(turned * block.width + block.first)
                    self.step_emitter.emit(phase, step, Block(first, block.chunks))  # noqa: B023

                e.loop(0, count, some)

    def _copy(self, source: Place | None, target: Place, rows: int, first: Index) -> None:
        """Rows of hidden units; zeros where there is no source, and for an empty sequence, as ONNX Runtime
        does. ``first`` is the first row's place in the batch."""
        e = self.e

        def vector(row: Index, at: Index, lanes: int, source: Place | None) -> None:
            value = e.f32(0, lanes)
            if source is not None:
                value = e.vload(source.buffer, source.at + row * source.step + at, lanes)
            e.vstore(target.buffer, target.at + row * target.step + at, value, lanes)

        def units(row: Index, source: Place | None) -> None:
            full = self.form.size // self.lanes
            e.loop(0, full, lambda i: vector(row, e.let(i * self.lanes), self.lanes, source))
            for at, lanes in power_of_two_chunks(self.form.size % self.lanes, self.lanes):
                vector(row, full * self.lanes + at, lanes, source)

        def one_row(row: Expr) -> None:
            if source is None or "lengths" not in self.given:
                units(row, source)
                return
            length = e.load(self.given["lengths"], first + row)
            e.branch(length > index(0), lambda: units(row, source), lambda: units(row, None))

        e.loop(0, rows, one_row)

"""A recurrent layer of which each step of the sequence is a step of the plan; tasks are blocks of units.

States alternate between two buffers in the arena, since all tasks of a step read what was before it. Where
sequences have lengths, a step before all others writes which of them go on at which step; behind the end of
the longest one a step only keeps the states.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Expr

from edgepack.compiler.graph.recurrent import Activation
from edgepack.compiler.kernels.contract import Implementation, Operand, Stage
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.emit.indices import div, index, mod
from edgepack.compiler.kernels.cpu.recurrent.cells import Phase
from edgepack.compiler.kernels.cpu.recurrent.layer import RecurrentKernel
from edgepack.compiler.kernels.cpu.recurrent.step import Block, Place, Step, StepEmitter
from edgepack.plan.dtypes import DTYPE_BYTES

__all__ = ["StepsKernel"]

#: By name of a state that follows the last one: which result it is then.
RESULTS = {"hidden": 1, "cell": 2}


class StepsKernel(RecurrentKernel):
    """Emits a kernel for each phase of a step; the stages of the sequence run them on other places."""

    shares_batch = False

    def parameters(self) -> dict[str, Any]:
        return {"form": "steps", **super().parameters()}

    @property
    def states(self) -> tuple[str, ...]:
        """What the next step needs of this one."""
        return ("hidden", "cell") if self.form.cell == "lstm" else ("hidden",)

    def build(self) -> Implementation:
        elements = self.form.batch * self.form.directions * self.form.size
        temps = [self.element_bytes * elements] * (2 * len(self.states) + len(self._between))
        if self._lengths:
            temps.append(DTYPE_BYTES["int32"] * self.form.steps * self.form.batch)
        stages = []
        if self._lengths or not {*self.states} <= {*self.form.operands}:
            stages.append(self._initial())
        kernels = [[self._phase(phase, way) for phase in self.phases] for way in range(self._ways())]
        for number in range(self.form.steps):
            for stage, names in kernels[number % len(kernels)]:
                stages.append(self._placed(stage, names, number))
        return self.implementation(tuple(stages), tuple(temps))

    @property
    def _lengths(self) -> bool:
        """Whether sequences have lengths."""
        return "lengths" in self.form.operands

    @property
    def _between(self) -> tuple[str, ...]:
        """What the first phase of a step leaves for the second one."""
        return ("update", "reset") if len(self.phases) > 1 else ()

    def _ways(self) -> int:
        """2 where a thread's weights are more than its cache holds: every other step goes through them from
        the last to the first, so that it begins with those that the step before has left there."""
        weights = self.form.directions * self.weight_bytes
        return 2 if weights > self.target.threads * self.target.l2_bytes // 2 and self.form.steps > 1 else 1

    # Stages -------------------------------------------------------------------------------------------------

    def _initial(self) -> Stage:
        """Writes what the first step reads where that is not what is given: zeros for states that are not,
        and for those of empty sequences, as ONNX Runtime does; and which sequences go on at each step."""
        e, form = Emitter(1, self.target, self.dtype), self.form
        each = form.directions * form.size * form.batch
        written = [name for name in self.states if self._lengths or name not in form.operands]
        given = self.declared(e, *written, "lengths")
        buffers = {name: e.temp(self._temp(name, 1), each) for name in written}
        goes_on = e.temp(self._number_of_ends, form.steps * form.batch, "int32") if self._lengths else None
        e.task_range()

        def unit(name: str, row: Expr, at: Expr) -> None:
            zero = e.f32(0, 1)
            value = zero
            if name in given:
                length = e.load(given["lengths"], row)
                value = tirx.Select(length > index(0), e.vload(given[name], at, 1), zero)
            e.vstore(buffers[name], at, value, 1)

        def units(direction: Expr, row: Expr) -> None:
            first = e.let(self.state(direction, row))
            for name in written:
                e.loop(0, form.size, lambda i, name=name: unit(name, row, e.let(first + i)))  # type: ignore[misc]

        e.loop(0, form.directions, lambda d: e.loop(0, form.batch, lambda row: units(d, row)))

        def step(time: Expr, row: Expr) -> None:
            before = tirx.Select(time < e.load(given["lengths"], row), index(1), index(0))
            e.vstore(goes_on, e.let(time * form.batch + row), before, 1)

        if goes_on is not None:
            e.loop(0, form.steps, lambda time: e.loop(0, form.batch, lambda row: step(time, row)))
        return e.stage(1)

    @property
    def _number_of_ends(self) -> int:
        """Number of the buffer that has which sequences go on at each step."""
        return 2 * len(self.states) + len(self._between)

    def _temp(self, state: str, odd: int) -> int:
        """Number of the buffer of a state behind an even or an odd step."""
        return 2 * self.states.index(state) + odd

    def _placed(self, stage: Stage, names: tuple[str, ...], number: int) -> Stage:
        """The phase's stage in one step of the sequence."""
        return replace(stage, operands=tuple(self._operand(name, number) for name in names))

    def _operand(self, name: str, number: int) -> Operand:
        """What a pointer of the kernel is in a step."""
        form = self.form
        kind, _, direction = name.partition("-")
        if kind in {"inputs", "result"}:
            time = form.steps - 1 - number if form.reverse[int(direction)] else number
            width = form.directions * form.size * (form.gates if kind == "inputs" else 1)
            offset = self.element_bytes * time * self.strides(width)[0]
            return Operand("param" if kind == "inputs" else "output", 0, offset)
        if kind == "goes_on":
            time = form.steps - 1 - number if form.reverse[int(direction)] else number
            return Operand("temp", self._number_of_ends, DTYPE_BYTES["int32"] * time * form.batch)
        if kind in {"update", "reset"}:
            return Operand("temp", 2 * len(self.states) + (kind == "reset"))
        state = kind.removeprefix("new_")
        if state not in self.states:
            if name == "weights":
                return Operand("packed", 0) if self.packed else Operand("param", 1)
            return Operand("param", form.operands.index(name))
        if kind != state and number == form.steps - 1:
            return Operand("output", RESULTS[state])
        if kind != state:
            return Operand("temp", self._temp(state, number % 2))
        if number == 0 and state in form.operands and not self._lengths:
            return Operand("param", form.operands.index(state))
        return Operand("temp", self._temp(state, (number + 1) % 2))

    # Kernels ------------------------------------------------------------------------------------------------

    def _phase(self, phase: Phase, way: int) -> tuple[Stage, tuple[str, ...]]:
        """A phase's kernel as a stage, and the names of its operands, in order; with ``way`` 1 it does its
        tasks from the last to the first."""
        e, form = Emitter(self.lanes, self.target, self.dtype), self.form
        names: list[str] = []

        def declare(name: str, elements: int, dtype: str = "") -> Any:
            names.append(name)
            return e.operand("param", len(names), elements, dtype)

        gates = form.directions * form.gates * form.size
        state = form.batch * form.directions * form.size
        weights = declare("weights", gates * form.size)
        extra: dict[str, Any] = {
            name: declare(name, prod(self.fused.function.params[form.operands.index(name)].shape))
            for name in ("bias", "peepholes")
            if name in form.operands
        }
        sides = range(form.directions)
        inputs = [declare(f"inputs-{d}", self._span(gates)) for d in sides]
        buffers = {"inputs": inputs}
        final = phase is self.phases[-1]
        if self._lengths:
            buffers["goes_on"] = [declare(f"goes_on-{d}", form.batch, "int32") for d in sides]
        for name in (*self.states, *self._between):
            buffers[name] = [declare(name, state)]
        if final:
            buffers |= {f"new_{name}": [declare(f"new_{name}", state)] for name in self.states}
            buffers["result"] = [declare(f"result-{d}", self._span(gates // form.gates)) for d in sides]
        emitter = StepEmitter(e, form, self.weights_in(weights), extra)
        tasks = sum(count for _, count in self.blocks[phase])
        body = _PhaseBody(self, e, emitter, phase, buffers)
        lo, hi = e.task_range()

        def one(i: Expr) -> None:
            task = e.let(lo + hi - 1 - i) if way else i
            body.emit(e.let(div(task, tasks)), e.let(mod(task, tasks)))

        e.loop(lo, hi, one)
        return e.stage(form.directions * tasks), tuple(names)

    def _span(self, width: int) -> int:
        """Elements from a step's first to its last one, in a tensor of rows of so many elements."""
        return (self.form.batch - 1) * self.strides(width)[1] + width


class _PhaseBody:
    """Emits a task of a phase's kernel: a block of units of one direction, all sequences of the batch."""

    def __init__(
        self,
        kernel: StepsKernel,
        e: Emitter,
        emitter: StepEmitter,
        phase: Phase,
        buffers: Mapping[str, list[Any]],
    ) -> None:
        self.kernel, self.e, self.emitter = kernel, e, emitter
        self.phase, self.buffers = phase, buffers

    def emit(self, direction: Expr, task: Expr) -> None:
        """The blocks in the order of the tasks; those of one width share code."""
        kernel, done = self.kernel, 0
        runs = []
        for block, count in kernel.blocks[self.phase]:
            runs.append((done, done + count, (block, done)))
            done += count

        def some(run: tuple[Block, int]) -> None:
            block, before = run
            first = self.e.let((task - before) * block.width + block.first)
            placed = Block(first, block.chunks)
            kernel.by_direction(self.e, direction, self._rows(direction, placed))

        self.e.switch(runs, task, some)

    def _rows(self, direction: Expr, block: Block) -> Callable[[tuple[Activation, ...]], None]:
        def body(functions: tuple[Activation, ...]) -> None:
            done = 0
            for rows, count in self.kernel.tiles:

                def tile(i: Expr, rows: int = rows, done: int = done) -> None:
                    first = self.e.let(i * rows + done)
                    step = Step(direction, functions, 0, first, rows, self._places(direction, first))
                    self.emitter.emit(self.phase, step, block)

                self.e.loop(0, count, tile)
                done += rows * count

        return body

    def _places(self, direction: Expr, first: Expr) -> dict[str, Place]:
        e, kernel, form = self.e, self.kernel, self.kernel.form
        at = e.let(kernel.state(direction, first))
        places = {}
        for name, buffers in self.buffers.items():
            if name == "goes_on":
                places[name] = Place(self._side(buffers, direction), first, 1)
            elif name in {"inputs", "result"}:
                each = form.size * (form.gates if name == "inputs" else 1)
                sequences = kernel.strides(form.directions * each)[1]
                buffer = self._side(buffers, direction)
                places[name] = Place(buffer, e.let(first * sequences + direction * each), sequences)
            else:
                places[name] = Place(buffers[0], at, form.size)
        return places

    def _side(self, buffers: list[Any], direction: Expr) -> Any:
        """The direction's own pointer: the directions are at different steps."""
        if len(buffers) == 1:
            return buffers[0]
        condition = tirx.EQ(index(direction), index(0))
        return self.e.either(condition, (buffers[0], 0), (buffers[1], 0), int(buffers[0].shape[0]))

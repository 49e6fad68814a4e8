"""What a cell makes of its gates: the equations of ONNX's RNN, GRU and LSTM, on vectors of hidden units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgepack.compiler.graph.recurrent import Activation, Recurrence
from edgepack.compiler.kernels.cpu.emit.emitter import Emitter
from edgepack.compiler.kernels.cpu.recurrent.activations import activate, clipped

__all__ = ["PHASES", "Cell", "Phase", "phases_of"]

Expr = Any


@dataclass(frozen=True)
class Phase:
    """A product of a step, and what is done with its columns.

    Attributes:
        gates: whose weights it multiplies by, by their numbers in ``GATES`` (``graph/recurrent.py``).
        source: what it multiplies: "hidden", the state before, or "reset", that times a GRU's reset gate.
    """

    gates: tuple[int, ...]
    source: str = "hidden"


#: A GRU whose reset gate stands before the product needs two, one after the other.
PHASES = {
    "rnn": (Phase((0,)),),
    "gru": (Phase((0, 1)), Phase((2,), "reset")),
    "gru, linear before reset": (Phase((0, 1, 2)),),
    "lstm": (Phase((0, 1, 2, 3)),),
}


def phases_of(form: Recurrence) -> tuple[Phase, ...]:
    """The products of a step, in order."""
    return PHASES["gru, linear before reset" if form.linear_before_reset else form.cell]


@dataclass(frozen=True)
class Cell:
    """Emits a cell's equations for a vector of hidden units.

    Attributes:
        form: the layer.
        functions: f, g and h of the direction.
        lanes: of the vector.
        gate: the sum of a gate: product of the state, products of the inputs, biases.
        peephole: weights of the LSTM's i, o, f (0, 1, 2) for these units.
    """

    e: Emitter
    form: Recurrence
    functions: tuple[Activation, ...]
    lanes: int
    gate: Callable[[int], Expr]
    peephole: Callable[[int], Expr]

    def _function(self, number: int, x: Expr) -> Expr:
        bounded = clipped(self.e, x, self.form.clip, self.lanes)
        return activate(self.e, self.functions[number], bounded, self.lanes)

    def _peeped(self, number: int, cell: Expr) -> Expr:
        gate = self.gate(number)
        return gate + self.peephole(number) * cell if "peepholes" in self.form.operands else gate

    def rnn(self) -> Expr:
        """H = f(gate)."""
        return self._function(0, self.gate(0))

    def lstm(self, cell: Expr) -> tuple[Expr, Expr]:
        """The new hidden state and the new cell state."""
        e = self.e
        i = self._function(0, self._peeped(0, cell))
        f = e.f32(1, self.lanes) - i if self.form.input_forget else self._function(0, self._peeped(2, cell))
        new = e.let(f * cell + i * self._function(1, self.gate(3)))
        o = self._function(0, self._peeped(1, new))
        return e.let(o * activate(e, self.functions[2], new, self.lanes)), new

    def gru_gates(self) -> tuple[Expr, Expr]:
        """Update and reset gate."""
        return self._function(0, self.gate(0)), self._function(0, self.gate(1))

    def gru(self, update: Expr, gate: Expr, hidden: Expr) -> Expr:
        """The new hidden state, of the update gate, the sum of the hidden gate and the state before."""
        new = self._function(1, gate)
        return self.e.let((self.e.f32(1, self.lanes) - update) * new + update * hidden)

"""The operands of recurrent layers over sequences, by their places (``lstm_shared.h``), and sequences."""

from __future__ import annotations

from collections.abc import Sequence as Numbers
from dataclasses import dataclass

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import UnsupportedFormError, option

__all__ = [
    "BIASES",
    "INPUT_WEIGHTS",
    "NORMS",
    "PEEPHOLES",
    "PROJECTION",
    "PROJECTION_BIAS",
    "RECURRENT_WEIGHTS",
    "STATES",
    "Sequence",
    "check_steps",
    "parts",
    "sequence_of",
]

#: Of an LSTM's gates i, f, c, o.
INPUT_WEIGHTS, RECURRENT_WEIGHTS, BIASES = (1, 2, 3, 4), (5, 6, 7, 8), (12, 13, 14, 15)
NORMS = (20, 21, 22, 23)
PEEPHOLES = {"i": 9, "f": 10, "o": 11}
PROJECTION, PROJECTION_BIAS = 16, 17
#: Hidden state and cell.
STATES = (18, 19)

#: Most steps that are unrolled.
_MOST_STEPS = 128


@dataclass(frozen=True)
class Sequence:
    """A sequence, (steps, batch, inputs).

    Attributes:
        value: its name.
        time_first: whether the operator has it so, and not (batch, steps, inputs).
    """

    value: str
    steps: int
    batch: int
    inputs: int
    time_first: bool

    def restored(self, emitter: Emitter, rows: str) -> str:
        """(steps, batch, outputs) as the operator has it."""
        return rows if self.time_first else emitter.transpose(rows, [1, 0, 2])


def sequence_of(emitter: Emitter, operator: Operator) -> Sequence:
    """The sequence that an operator goes over.

    Raises:
        UnsupportedFormError: it is none, or states are missing.
    """
    x, time_first = emitter.value(operator.inputs[0]), bool(option(operator, "timeMajor"))
    if len(emitter.shape(x)) != 3:
        raise UnsupportedFormError(f"a sequence of {len(emitter.shape(x))} dimensions")
    if len(operator.outputs) < 2:
        raise UnsupportedFormError("states that are no variables")
    if not time_first:
        x = emitter.transpose(x, [1, 0, 2])
    steps, batch, inputs = emitter.shape(x)
    return Sequence(x, steps, batch, inputs, time_first)


def check_steps(sequence: Sequence) -> None:
    """Raises UnsupportedFormError if a sequence is too long to be unrolled."""
    if sequence.steps > _MOST_STEPS:
        raise UnsupportedFormError(
            f"{sequence.steps} steps, and it is unrolled, up to {_MOST_STEPS}: run it in shorter pieces, its "
            "state is kept"
        )


def parts(emitter: Emitter, x: str, sizes: Numbers[int], axis: int) -> list[str]:
    """Slices along a dimension."""
    import numpy as np

    if len(sizes) == 1:
        return [x]
    whole = emitter.shape(x)
    shapes = [([*whole[:axis], size, *whole[axis + 1 :]], None) for size in sizes]
    return emitter.ops("Split", [x, emitter.const(np.asarray(sizes, np.int64))], shapes, axis=axis)

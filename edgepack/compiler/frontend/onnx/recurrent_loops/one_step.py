"""ONNX's recurrent operators over a sequence of one element, as PyTorch exports its cells, in formulas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.recurrent_loops.elementwise import clipped
from edgepack.compiler.frontend.onnx.recurrent_loops.formulas import Formula, constant
from edgepack.compiler.frontend.onnx.recurrent_loops.products import product
from edgepack.compiler.frontend.onnx.recurrent_loops.trip import Found, Operator, Rows, Trip, Value, is_array
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["ONE_STEP"]

#: Functions of each operator where it names none.
DEFAULTS = {"LSTM": ("sigmoid", "tanh", "tanh"), "GRU": ("sigmoid", "tanh"), "RNN": ("tanh",)}

#: ONNX's functions that are read here: those without numbers, and one with its usual ones.
PLAIN = {name.lower(): name for name in ("Relu", "Sigmoid", "Softplus", "Softsign", "Tanh")}

#: Attributes with which an operator is not read, where they are not 0.
UNREAD = ("activation_alpha", "activation_beta", "clip", "input_forget", "layout")


def _operator(trip: Trip, node: onnx.NodeProto, operands: Sequence[Value]) -> Found:
    """The operator's results."""
    values = attributes(node)
    x, w, r, b, lengths, hidden, memory = [*operands, *[None] * 7][:7]
    present = [bool(name) for name in (*node.input, *[""] * 8)]
    names = [str(_text(n)).lower() for n in values.get("activations", ())] or DEFAULTS[node.op_type]
    if any(values.get(name) for name in UNREAD) or present[7] or not is_array(w) or not is_array(r):
        return None
    if (present[3] and not is_array(b)) or (present[4] and not (is_array(lengths) and (lengths >= 1).all())):
        return None
    size = r.shape[-1]
    own = _state(trip, hidden, size)
    if own is None or not isinstance(x, Rows) or tuple(x.shape[:2]) != (1, trip.batch) or len(w) != 1:
        return None
    if len(names) != len(DEFAULTS[node.op_type]) or any(n not in (*PLAIN, "hardsigmoid") for n in names):
        return None
    both = b.reshape(2, -1) if present[3] else _zeros(2, w.shape[1])
    ours, theirs = product(trip, x, w[0].T), own.product(r[0].T)
    if ours is None:
        return None
    ours, theirs = ours.plus(constant(both[0])), theirs.plus(constant(both[1]))
    if node.op_type == "LSTM":
        before = _state(trip, memory, size)
        return None if before is None else _lstm(trip, ours.plus(theirs), before, names)
    if node.op_type == "RNN":
        return _states(trip, _function(ours.plus(theirs), names[0]))
    apart = bool(values.get("linear_before_reset", 0))
    matrix, bias = r[0][2 * size :].T, both[1][2 * size :]
    return _gru(trip, (ours, theirs), own, None if apart else (matrix, bias), names)


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def _zeros(*shape: int) -> NDArray[Any]:
    import numpy as np

    return np.zeros(shape)


def _state(trip: Trip, value: Value, size: int) -> Formula | None:
    """A state before the step, [1, batch, size]."""
    fits = isinstance(value, Rows) and value.shape == (1, trip.batch, size) and len(value.parts) == 1
    return value.parts[0] if fits else None


def _function(formula: Formula, name: str) -> Formula:
    if name != "hardsigmoid":
        return formula.function(PLAIN[name])
    return clipped(formula.scaled(0.2).plus(constant(_zeros(formula.size) + 0.5)))


def _gate(formula: Formula, number: int, size: int) -> Formula:
    return formula.columns(number * size, (number + 1) * size)


def _lstm(trip: Trip, total: Formula, memory: Formula, names: Sequence[str]) -> Found:
    size = memory.size
    i, o, f = (_function(_gate(total, number, size), names[0]) for number in range(3))
    new = f.times(memory).plus(i.times(_function(_gate(total, 3, size), names[1])))
    found = _states(trip, o.times(_function(new, names[2])))
    return [*found, trip.rows((1, trip.batch, size), new)]


def _gru(
    trip: Trip,
    sums: tuple[Formula, Formula],
    state: Formula,
    after: tuple[NDArray[Any], NDArray[Any]] | None,
    names: Sequence[str],
) -> Found:
    """A GRU's.

    Args:
        sums: the products of the inputs and of the state, with biases, for all gates.
        after: matrix and bias of the state's product for the hidden gate, if the reset gate comes before it.
    """
    size, (ours, theirs) = state.size, sums
    update, reset = (_function(_gate(ours.plus(theirs), number, size), names[0]) for number in range(2))
    if after is None:
        inner = reset.times(_gate(theirs, 2, size))
    else:
        inner = reset.times(state).product(after[0]).plus(constant(after[1]))
    new = _function(_gate(ours, 2, size).plus(inner), names[1])
    return _states(trip, new.plus(update.times(state.plus(new.scaled(-1.0)))))


def _states(trip: Trip, result: Formula) -> list[Value]:
    """The results of all steps, of which there is one, and the last."""
    shape = (1, trip.batch, result.size)
    return [trip.rows((1, *shape), result), trip.rows(shape, result)]


#: By operator.
ONE_STEP: dict[str, Operator] = dict.fromkeys(DEFAULTS, _operator)

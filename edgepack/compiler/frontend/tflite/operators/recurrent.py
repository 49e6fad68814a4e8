"""Recurrent layers: LSTMs and RNNs over a sequence.

An LSTM is ONNX's where that computes the same, and unrolled in time otherwise. Its states are variables,
which are inputs and outputs (``variables.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated, dequantised
from edgepack.compiler.frontend.tflite.operators.integer_lstm import integer_lstm
from edgepack.compiler.frontend.tflite.operators.lstm_operands import (
    BIASES,
    INPUT_WEIGHTS,
    NORMS,
    PEEPHOLES,
    PROJECTION,
    PROJECTION_BIAS,
    RECURRENT_WEIGHTS,
    STATES,
    Sequence,
    check_steps,
    parts,
    sequence_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONVERTERS"]

#: The schema's number of the hyperbolic tangent among fused activation functions.
_TANH = 4


def _weights(emitter: Emitter, operator: Operator, place: int) -> NDArray[Any] | None:
    """Constant weights as floats; None if they are left out.

    Raises:
        UnsupportedFormError: they are computed.
    """
    import numpy as np

    tensor = emitter.tensor(operator, place)
    if tensor is None:
        return None
    known = emitter.known(emitter.value(operator.inputs[place]))
    if known is None:
        raise UnsupportedFormError("weights that are computed")
    if known.dtype.kind in "iu" and tensor.quantisation is not None:
        return dequantised(known, tensor)
    return np.asarray(known, np.float32)


@dataclass(frozen=True)
class _Floats:
    """The weights of an LSTM of floats, of the gates i, f, c, o; without those of i where it is 1 - f.

    Attributes:
        inputs: (inputs, gates * cells).
        recurrent: (outputs, gates * cells).
        bias: (gates * cells,).
        peepholes: (cells,) of i, f and o, or nothing.
        projection: (cells, outputs), and a bias.
        clips: bounds of a cell and of what is projected; 0 for none.
    """

    inputs: NDArray[Any]
    recurrent: NDArray[Any]
    bias: NDArray[Any]
    peepholes: dict[str, NDArray[Any]]
    projection: NDArray[Any] | None
    projection_bias: NDArray[Any] | None
    clips: tuple[float, float]
    activation: int

    @property
    def coupled(self) -> bool:
        """Whether the input gate is 1 less the forget gate."""
        return bool(self.inputs.shape[1] == 3 * self.cells)

    @property
    def cells(self) -> int:
        """How many cells there are."""
        return len(self.recurrent if self.projection is None else self.projection)


def _floats(emitter: Emitter, operator: Operator) -> _Floats:
    import numpy as np

    def gates(places: tuple[int, ...]) -> NDArray[Any]:
        found = [_weights(emitter, operator, place) for place in places]
        return np.concatenate([one for one in found if one is not None], 0)

    if any(emitter.tensor(operator, place) is not None for place in NORMS):
        raise UnsupportedFormError("normalised layers")
    found = {gate: _weights(emitter, operator, place) for gate, place in PEEPHOLES.items()}
    projection = _weights(emitter, operator, PROJECTION)
    tensors = (emitter.tensor(operator, place) for place in INPUT_WEIGHTS)
    emitter.hybrid += any(one is not None and one.dtype != "float32" for one in tensors)
    return _Floats(
        gates(INPUT_WEIGHTS).T,
        gates(RECURRENT_WEIGHTS).T,
        gates(BIASES),
        {gate: one for gate, one in found.items() if one is not None},
        None if projection is None else projection.T,
        _weights(emitter, operator, PROJECTION_BIAS),
        (float(operator.options.get("cellClip") or 0.0), float(operator.options.get("projClip") or 0.0)),
        option(operator, "fusedActivationFunction"),
    )


def _lstm(emitter: Emitter, operator: Operator) -> None:
    data = emitter.tensors[operator.inputs[0]]
    sequence = sequence_of(emitter, operator)
    if is_quantised(data):
        integer_lstm(emitter, operator, sequence)
        return
    if data.dtype != "float32":
        raise UnsupportedFormError(f"a sequence of {data.dtype}")
    weights = _floats(emitter, operator)
    if not weights.activation:  # LiteRT's kernel leaves there what another gate left
        raise UnsupportedFormError("cells without an activation function")
    plain = not any(weights.clips) and not weights.coupled and weights.projection is None
    if plain and weights.activation == _TANH:
        _as_onnx(emitter, operator, sequence, weights)
    else:
        _unrolled(emitter, operator, sequence, weights)


def _as_onnx(emitter: Emitter, operator: Operator, sequence: Sequence, weights: _Floats) -> None:
    """ONNX's operator, whose gates are i, o, f, c."""
    import numpy as np

    count = weights.cells

    def ordered(array: NDArray[Any]) -> NDArray[Any]:
        i, f, c, o = (array[k * count : (k + 1) * count] for k in range(4))
        return np.concatenate([i, o, f, c], 0)[None]

    bias = np.concatenate([ordered(weights.bias), np.zeros((1, 4 * count), np.float32)], 1)
    hidden, cell = (emitter.value(operator.inputs[place]) for place in STATES)
    batch = emitter.shape(hidden)[0]
    wide = [emitter.reshape(state, [1, *emitter.shape(state)]) for state in (hidden, cell)]
    peepholes = ""
    if weights.peepholes:
        peepholes = emitter.const(np.concatenate([weights.peepholes[g] for g in ("i", "o", "f")])[None])
    operands = [
        sequence.value,
        *(emitter.const(ordered(one.T)) for one in (weights.inputs, weights.recurrent)),
    ]
    operands += [emitter.const(bias), "", *wide, peepholes]
    while not operands[-1]:
        operands.pop()
    whole, last = [sequence.steps, 1, batch, count], [1, batch, count]
    made = emitter.ops("LSTM", operands, [(whole, None), (last, None), (last, None)], hidden_size=count)
    rows = emitter.reshape(made[0], [sequence.steps, batch, count])
    for place, state in enumerate(made[1:], 1):
        emitter.result(operator.outputs[place], emitter.reshape(state, [batch, count]))
    emitter.result(operator.outputs[0], sequence.restored(emitter, rows))


def _unrolled(emitter: Emitter, operator: Operator, sequence: Sequence, weights: _Floats) -> None:
    """Step after step; the products with the inputs are one before them."""
    check_steps(sequence)
    products = emitter.op(
        "MatMul",
        emitter.reshape(sequence.value, [sequence.steps * sequence.batch, sequence.inputs]),
        emitter.const(weights.inputs),
        shape=[sequence.steps * sequence.batch, weights.inputs.shape[1]],
    )
    sums = emitter.op("Add", products, emitter.const(weights.bias))
    steps = parts(emitter, sums, [sequence.batch] * sequence.steps, 0)
    hidden, cell = (emitter.value(operator.inputs[place]) for place in STATES)
    recurrent, rows = emitter.const(weights.recurrent), []
    for step in steps:
        product = emitter.op("MatMul", hidden, recurrent, shape=emitter.shape(step))
        hidden, cell = _step(emitter, emitter.op("Add", product, step), cell, weights)
        rows.append(emitter.reshape(hidden, [1, *emitter.shape(hidden)]))
    whole = [sequence.steps, *emitter.shape(hidden)]
    made = emitter.op("Concat", *rows, shape=whole, axis=0) if len(rows) > 1 else rows[0]
    for place, state in enumerate((hidden, cell), 1):
        emitter.result(operator.outputs[place], emitter.op("Identity", state))
    emitter.result(operator.outputs[0], sequence.restored(emitter, made))


def _step(emitter: Emitter, sums: str, cell: str, weights: _Floats) -> tuple[str, str]:
    """The next hidden state and cell."""
    count = weights.cells
    gates = parts(emitter, sums, [count] * (3 if weights.coupled else 4), 1)
    forget, update, output = gates[-3:]

    def opened(gate: str, name: str, state: str) -> str:
        if name in weights.peepholes:
            gate = emitter.op("Add", gate, emitter.op("Mul", state, emitter.const(weights.peepholes[name])))
        return emitter.op("Sigmoid", gate)

    forget = opened(forget, "f", cell)
    if weights.coupled:
        take = emitter.op("Sub", emitter.scalar(1.0, forget), forget, shape=emitter.shape(forget))
    else:
        take = opened(gates[0], "i", cell)
    update = activated(emitter, update, weights.activation)
    cell = emitter.op("Add", emitter.op("Mul", forget, cell), emitter.op("Mul", take, update))
    cell = _clipped(emitter, cell, weights.clips[0])
    made = emitter.op("Mul", opened(output, "o", cell), activated(emitter, cell, weights.activation))
    if weights.projection is None:
        return made, cell
    shape = [emitter.shape(made)[0], weights.projection.shape[1]]
    made = emitter.op("MatMul", made, emitter.const(weights.projection), shape=shape)
    if weights.projection_bias is not None:
        made = emitter.op("Add", made, emitter.const(weights.projection_bias))
    return _clipped(emitter, made, weights.clips[1]), cell


def _clipped(emitter: Emitter, x: str, bound: float) -> str:
    if not bound:
        return x
    return emitter.op("Clip", x, emitter.scalar(-bound, x), emitter.scalar(bound, x), shape=emitter.shape(x))


def _rnn(emitter: Emitter, operator: Operator) -> None:
    """h = f(W x + R h + b): ONNX's operator of a hyperbolic tangent, others unrolled."""
    data: Tensor = emitter.tensors[operator.inputs[0]]
    activation = option(operator, "fusedActivationFunction")
    if data.dtype != "float32":
        raise UnsupportedFormError(f"a sequence of {data.dtype}")
    import numpy as np

    sequence = sequence_of(emitter, operator)
    w, r, b = (_weights(emitter, operator, place) for place in (1, 2, 3))
    if w is None or r is None or b is None:
        raise UnsupportedFormError("weights that are left out")
    emitter.hybrid += emitter.tensors[operator.inputs[1]].dtype != "float32"
    hidden = emitter.value(operator.inputs[4])
    if activation != _TANH:
        rows, hidden = _unrolled_rnn(emitter, sequence, (w, r, b), hidden, activation)
    else:
        count, batch = r.shape[0], sequence.batch
        bias = np.concatenate([b, np.zeros_like(b)])[None]
        operands = [sequence.value, *(emitter.const(one) for one in (w[None], r[None], bias)), ""]
        operands.append(emitter.reshape(hidden, [1, batch, count]))
        results = [([sequence.steps, 1, batch, count], None), ([1, batch, count], None)]
        made = emitter.ops("RNN", operands, results, hidden_size=count)
        rows = emitter.reshape(made[0], [sequence.steps, batch, count])
        hidden = emitter.reshape(made[1], [batch, count])
    emitter.result(operator.outputs[1], hidden)
    emitter.result(operator.outputs[0], sequence.restored(emitter, rows))


def _unrolled_rnn(
    emitter: Emitter,
    sequence: Sequence,
    weights: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    hidden: str,
    activation: int,
) -> tuple[str, str]:
    """The hidden states of all steps, and a copy of the last."""
    check_steps(sequence)
    w, r, b = weights
    flat = emitter.reshape(sequence.value, [sequence.steps * sequence.batch, sequence.inputs])
    products = emitter.op("MatMul", flat, emitter.const(w.T), shape=[*emitter.shape(flat)[:1], len(w)])
    sums = emitter.op("Add", products, emitter.const(b))
    recurrent, rows = emitter.const(r.T), []
    for step in parts(emitter, sums, [sequence.batch] * sequence.steps, 0):
        product = emitter.op("MatMul", hidden, recurrent, shape=emitter.shape(step))
        hidden = activated(emitter, emitter.op("Add", product, step), activation)
        rows.append(emitter.reshape(hidden, [1, *emitter.shape(hidden)]))
    whole = [sequence.steps, *emitter.shape(hidden)]
    made = emitter.op("Concat", *rows, shape=whole, axis=0) if len(rows) > 1 else rows[0]
    return made, emitter.op("Identity", hidden)


CONVERTERS: dict[str, Converter] = {
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}

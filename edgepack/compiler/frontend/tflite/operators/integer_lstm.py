"""LSTMs of int8 whose gates and cells are int16 (``LstmStepInteger8x8_16`` of
``tensorflow/lite/kernels/lstm_eval.cc``), unrolled in time."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, ROUNDING_SHIFT
from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    bounded,
    multiplied,
    quantize_multiplier,
    quantize_multipliers,
)
from edgepack.compiler.frontend.tflite.gemmlowp16 import logistic, tanh
from edgepack.compiler.frontend.tflite.model import Operator, Quantisation, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import UnsupportedFormError
from edgepack.compiler.frontend.tflite.operators.lstm_operands import (
    BIASES,
    INPUT_WEIGHTS,
    NORMS,
    PEEPHOLES,
    PROJECTION,
    RECURRENT_WEIGHTS,
    STATES,
    Sequence,
    check_steps,
    parts,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["integer_lstm"]

#: Bits before the point of gates, before their functions.
_GATE_BITS = 3


@dataclass(frozen=True)
class _Layer:
    """What all steps share.

    Attributes:
        recurrent: int32, (outputs, gates * cells), and the multipliers of its products.
        hidden: multiplier of what is put out.
        cell_shift: by which products of gates become cells.
        cell_bits: before the point of a cell.
        clip: bound of a cell, 0 for none.
        state: what the integers of the hidden state mean.
        tables: of the logistic function, and of tangents of gates and cells.
    """

    recurrent: str
    multipliers: tuple[NDArray[Any], NDArray[Any]]
    largest: int
    hidden: tuple[int, int]
    hidden_zero: int
    cell_shift: int
    cell_bits: int
    clip: int
    state: Tensor
    tables: tuple[str, str, str]


def integer_lstm(emitter: Emitter, operator: Operator, sequence: Sequence) -> None:
    """An LSTM of int8; the products of its inputs with their weights are one before all steps.

    Raises:
        UnsupportedFormError: it has peepholes, a projection or normalised layers, or is too long.
    """
    places = (*PEEPHOLES.values(), PROJECTION, *NORMS)
    cell = emitter.tensor(operator, STATES[1])
    if any(emitter.tensor(operator, place) is not None for place in places) or cell is None:
        raise UnsupportedFormError("peepholes, a projection or normalised layers of int8")
    if cell.dtype != "int16" or len(operator.intermediates) < 5:
        raise UnsupportedFormError(f"cells of {cell.dtype}")
    check_steps(sequence)
    layer, steps = _layer(emitter, operator, cell), _inputs(emitter, operator, sequence)
    hidden, state = (emitter.value(operator.inputs[place]) for place in STATES)
    rows = []
    for step in steps:
        hidden, state = _step(emitter, step, hidden, state, layer)
        rows.append(emitter.reshape(hidden, [1, *emitter.shape(hidden)]))
    whole = [sequence.steps, *emitter.shape(hidden)]
    made = emitter.op("Concat", *rows, shape=whole, axis=0) if len(rows) > 1 else rows[0]
    emitter.result(operator.outputs[1], emitter.op("Identity", hidden))
    emitter.result(operator.outputs[2], emitter.op("Identity", state))
    emitter.result(operator.outputs[0], sequence.restored(emitter, made))


def _quantisation(tensor: Tensor | None) -> Quantisation:
    if tensor is None or tensor.quantisation is None or not tensor.quantisation.single:
        raise UnsupportedFormError("a tensor that is not quantised as a whole")
    return tensor.quantisation


def _gates(emitter: Emitter, operator: Operator, places: tuple[int, ...]) -> list[Tensor]:
    """The weights that there are: of three gates, or of four."""
    found = [emitter.tensor(operator, place) for place in places]
    given = [one for one in found if one is not None]
    if len(given) < 3 or any(one.dtype not in {"int8", "int32"} or one.data is None for one in given):
        raise UnsupportedFormError("weights of a type other than int8, or that are computed")
    return given


def _multipliers(tensors: list[Tensor], source: Quantisation) -> tuple[NDArray[Any], NDArray[Any]]:
    """Of the products of weights with integers, for each cell of each gate; scales are of float32."""
    import numpy as np

    one = np.float32(2.0**-12)
    scales = [
        float(np.float32(np.float32(_quantisation(tensor).scale[0]) * np.float32(source.scale[0])) / one)
        for tensor in tensors
    ]
    found = quantize_multipliers(scales)
    return found[0].repeat(tensors[0].shape[0]), found[1].repeat(tensors[0].shape[0])


def _matrix(tensors: list[Tensor]) -> NDArray[Any]:
    """The weights of all gates, int32, (inputs, gates * cells)."""
    import numpy as np

    return np.concatenate([np.asarray(tensor.data, np.int32) for tensor in tensors], 0).T


def _largest(matrix: NDArray[Any], source: Quantisation, added: int = 0) -> int:
    """A magnitude that no sum of products exceeds."""
    import numpy as np

    return (
        int(np.abs(matrix).sum(0).max()) * max(127 - int(source.zero[0]), 128 + int(source.zero[0])) + added
    )


def _inputs(emitter: Emitter, operator: Operator, sequence: Sequence) -> list[str]:
    """The products with the inputs and the bias, as int32 within int16, for each step."""
    import numpy as np

    tensors, biases = (_gates(emitter, operator, places) for places in (INPUT_WEIGHTS, BIASES))
    source, matrix = _quantisation(emitter.tensors[operator.inputs[0]]), _matrix(tensors)
    bias = np.concatenate([np.asarray(one.data, np.int32) for one in biases])
    x = emitter.cast(sequence.value, np.int32)
    if source.zero[0]:
        x = emitter.op("Sub", x, emitter.scalar(int(source.zero[0]), x))
    rows = sequence.steps * sequence.batch
    flat = emitter.reshape(x, [rows, sequence.inputs])
    products = emitter.op("MatMul", flat, emitter.const(matrix), shape=[rows, matrix.shape[1]])
    sums = emitter.op("Add", products, emitter.const(bias))
    largest = _largest(matrix, source, int(np.abs(bias.astype(np.int64)).max(initial=0)))
    scaled = multiplied(emitter, sums, *_multipliers(tensors, source), largest)
    return parts(emitter, _int16(emitter, scaled), [sequence.batch] * sequence.steps, 0)


def _layer(emitter: Emitter, operator: Operator, cell: Tensor) -> _Layer:
    import numpy as np

    state = emitter.tensor(operator, STATES[0])
    source = _quantisation(state)
    assert state is not None
    tensors = _gates(emitter, operator, RECURRENT_WEIGHTS)
    matrix = _matrix(tensors)
    hidden = _quantisation(emitter.tensors[operator.intermediates[4]])
    power = np.float32(2.0**-15)
    cell_scale = float(_quantisation(cell).scale[0])
    exponent = round(math.log2(cell_scale))
    if 2.0**exponent != cell_scale or not -15 <= exponent <= -9:
        raise UnsupportedFormError(f"cells of the scale {cell_scale}")
    clip = float(operator.options.get("cellClip") or 0.0)
    bound = min(int(np.float32(clip) / np.float32(cell_scale)), 32767)
    curves = (logistic(_GATE_BITS), tanh(_GATE_BITS), tanh(15 + exponent))
    return _Layer(
        emitter.const(matrix),
        _multipliers(tensors, source),
        _largest(matrix, source),
        quantize_multiplier(float(np.float32(float(power) / float(hidden.scale[0]) * float(power)))),
        int(hidden.zero[0]),
        30 + exponent,
        15 + exponent,
        bound,
        state,
        tuple(emitter.const(curve) for curve in curves),  # type: ignore[arg-type]
    )


def _step(emitter: Emitter, step: str, hidden: str, cell: str, layer: _Layer) -> tuple[str, str]:
    """The next hidden state, int8, and cell, int16."""
    import numpy as np

    x = emitter.cast(hidden, np.int32)
    zero = int(_quantisation(layer.state).zero[0])
    if zero:
        x = emitter.op("Sub", x, emitter.scalar(zero, x))
    products = emitter.op("MatMul", x, layer.recurrent, shape=emitter.shape(step))
    scaled = multiplied(emitter, products, *layer.multipliers, layer.largest)
    sums = _int16(emitter, emitter.op("Add", scaled, step))
    count = emitter.shape(cell)[1]
    gates = parts(emitter, sums, [count] * (emitter.shape(sums)[1] // count), 1)
    curve, tangent, cell_tangent = layer.tables
    forget, update = _looked_up(emitter, gates[-3], curve), _looked_up(emitter, gates[-2], tangent)
    opened = _looked_up(emitter, gates[-1], curve)
    if len(gates) == 4:
        take = _looked_up(emitter, gates[0], curve)
    else:
        take = emitter.op("Sub", emitter.scalar(32767, forget), forget, shape=emitter.shape(forget))
    kept = _product(emitter, forget, emitter.cast(cell, np.int32), 15)
    sums = _int16(emitter, emitter.op("Add", kept, _product(emitter, take, update, layer.cell_shift)))
    if layer.clip > 0:
        bounds = emitter.scalar(-layer.clip, sums), emitter.scalar(layer.clip, sums)
        sums = emitter.op("Clip", sums, *bounds, shape=emitter.shape(sums))
    product = emitter.op("Mul", opened, _looked_up(emitter, sums, cell_tangent))
    made = multiplied(emitter, product, *layer.hidden, 1 << 30)
    if layer.hidden_zero:
        made = emitter.op("Add", made, emitter.scalar(layer.hidden_zero, made))
    return bounded(emitter, made, -128, 127, "int8"), emitter.cast(sums, np.int16)


def _product(emitter: Emitter, a: str, b: str, shift: int) -> str:
    """round(a * b / 2**shift)."""
    product = emitter.op("Mul", a, b)
    return emitter.op(ROUNDING_SHIFT, product, emitter.scalar(shift, product), domain=DOMAIN)


def _int16(emitter: Emitter, x: str) -> str:
    """Numbers of int32 within the bounds of int16."""
    return emitter.op("Clip", x, emitter.scalar(-32768, x), emitter.scalar(32767, x), shape=emitter.shape(x))


def _looked_up(emitter: Emitter, x: str, table: str) -> str:
    """Of a table for int16, as int32; positions below 0 are counted from its end."""
    import numpy as np

    found = emitter.op("Gather", table, x, shape=emitter.shape(x), dtype=np.int16, axis=0)
    return emitter.cast(found, np.int32)

"""Recurrent layers, and filters over steps."""

from __future__ import annotations

import numpy as np

from workbench.models.tflite.operators.values import ACTIVATIONS, Draw, Random, floats, numbers, quantised
from workbench.models.tflite.writer import LEFT_OUT, Writer

__all__ = ["DRAWN"]


def _lstm(random: Random) -> bytes:
    writer = Writer()
    steps, batch, inputs, cells = (int(n) for n in random.integers(1, 6, 4))
    time_first = bool(random.integers(2))
    sequence = [steps, batch] if time_first else [batch, steps]
    if random.integers(2):
        return _integer_lstm(writer, random, [*sequence, inputs], cells, time_first=time_first)
    coupled, projected = not random.integers(4), not random.integers(3)
    outputs = int(random.integers(1, 5)) if projected else cells

    def constant(shape: list[int]) -> int:
        return writer.tensor(shape, "float32", data=floats(random, shape))

    def gates(shape: list[int]) -> list[int]:
        made = [constant(shape) for _ in range(4)]
        return [LEFT_OUT, *made[1:]] if coupled else made

    x = writer.tensor([*sequence, inputs], "float32")
    operands = [x, *gates([cells, inputs]), *gates([cells, outputs])]
    peepholes = [constant([cells]) for _ in range(3)] if random.integers(2) else [LEFT_OUT] * 3
    if coupled:
        peepholes[0] = LEFT_OUT
    operands += [*peepholes, *gates([cells])]
    operands += [constant([outputs, cells]), constant([outputs])] if projected else [LEFT_OUT] * 2
    states = [writer.tensor([batch, n], "float32", variable=True) for n in (outputs, cells)]
    y = writer.tensor([*sequence, outputs], "float32")
    clip = float(random.choice([0.0, 0.5, 10.0]))
    writer.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [*operands, *states, *[LEFT_OUT] * 4],
        [y],
        1,
        "UnidirectionalSequenceLSTM",
        fusedActivationFunction=4,
        timeMajor=time_first,
        cellClip=clip,
        projClip=clip if projected else 0.0,
    )
    return writer.finished([x], [y])


def _integer_lstm(writer: Writer, random: Random, shape: list[int], cells: int, *, time_first: bool) -> bytes:
    coupled = not random.integers(4)
    batch = shape[1] if time_first else shape[0]
    scale, zero = float(2.0 ** random.uniform(-8, -5)), int(random.integers(-20, 20))

    def gates(shape: list[int], dtype: str) -> list[int]:
        made = []
        for _ in range(4):
            data = numbers(random, shape) if dtype == "int8" else random.integers(-3000, 3000, shape)
            by = float(2.0 ** random.uniform(-9, -6))
            made.append(writer.tensor(shape, dtype, by, 0, data=np.maximum(data, -127).astype(dtype)))
        return [LEFT_OUT, *made[1:]] if coupled else made

    x = quantised(writer, random, shape)
    operands = [x, *gates([cells, shape[2]], "int8"), *gates([cells, cells], "int8"), *[LEFT_OUT] * 3]
    bias = gates([cells], "int32")
    hidden = writer.tensor([batch, cells], "int8", scale, zero, variable=True)
    cell = writer.tensor([batch, cells], "int16", 2.0 ** -int(random.integers(11, 14)), 0, variable=True)
    y = writer.tensor([*shape[:2], cells], "int8", scale, zero)
    inner = [writer.tensor([0], "int16", 2.0**-12, 0) for _ in range(4)]
    inner.append(writer.tensor([0], "int8", scale, zero))
    writer.operator(
        "UNIDIRECTIONAL_SEQUENCE_LSTM",
        [*operands, *bias, LEFT_OUT, LEFT_OUT, hidden, cell, *[LEFT_OUT] * 4],
        [y],
        1,
        "UnidirectionalSequenceLSTM",
        fusedActivationFunction=4,
        timeMajor=time_first,
        cellClip=float(random.choice([0.0, 1.5])),
    )
    writer.graph.operators[-1].intermediates = inner
    return writer.finished([x], [y])


def _rnn(random: Random) -> bytes:
    writer = Writer()
    steps, batch, inputs, cells = (int(n) for n in random.integers(1, 6, 4))
    time_first = bool(random.integers(2))
    sequence = [steps, batch] if time_first else [batch, steps]
    x = writer.tensor([*sequence, inputs], "float32")
    shapes = ([cells, inputs], [cells, cells], [cells])
    weights = [writer.tensor(shape, "float32", data=floats(random, shape)) for shape in shapes]
    state = writer.tensor([batch, cells], "float32", variable=True)
    y = writer.tensor([*sequence, cells], "float32")
    writer.operator(
        "UNIDIRECTIONAL_SEQUENCE_RNN",
        [x, *weights, state],
        [y],
        1,
        "SequenceRNN",
        timeMajor=time_first,
        fusedActivationFunction=int(random.choice([0, 1, 3, 4])),
    )
    return writer.finished([x], [y])


def _svdf(random: Random) -> bytes:
    writer = Writer()
    batch, inputs, units, rank, steps = (int(n) for n in random.integers(1, 6, 5))
    steps, count = steps + 1, units * rank
    features, time = [count, inputs], [count, steps]
    state = [batch, count * steps]
    activation = 1
    if random.integers(2):
        x, y = quantised(writer, random, [batch, inputs]), quantised(writer, random, [batch, units])
        w = writer.tensor(features, "int8", 2.0**-7.3, 0, data=np.maximum(numbers(random, features), -127))
        t = writer.tensor(time, "int16", 2.0**-14.2, 0, data=random.integers(-3000, 3000, time, np.int16))
        b = writer.tensor([units], "int32", 1e-3, 0, data=random.integers(-3000, 3000, units, np.int32))
        kept = writer.tensor(state, "int16", 2.0**-9.1, 0, variable=True)
    else:
        x, y = writer.tensor([batch, inputs], "float32"), writer.tensor([batch, units], "float32")
        w, t, b = (
            writer.tensor(shape, "float32", data=floats(random, shape)) for shape in (features, time, [units])
        )
        kept, activation = writer.tensor(state, "float32", variable=True), int(random.choice(ACTIVATIONS))
    bias = b if random.integers(2) else LEFT_OUT
    writer.operator(
        "SVDF", [x, w, t, bias, kept], [y], 3, "SVDF", rank=rank, fusedActivationFunction=activation
    )
    return writer.finished([x], [y])


DRAWN: dict[str, Draw] = {
    "SVDF": _svdf,
    "UNIDIRECTIONAL_SEQUENCE_LSTM": _lstm,
    "UNIDIRECTIONAL_SEQUENCE_RNN": _rnn,
}

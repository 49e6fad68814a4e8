"""SVDF layers: a filter of the features of a step, and one over the steps before, which are kept."""

from __future__ import annotations

from typing import Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    bounded,
    centred,
    multiplied,
    quantize_multiplier,
    requantised,
)
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated, dequantised

__all__ = ["CONVERTERS"]

#: Places of the operands.
_FEATURES, _TIME, _BIAS, _STATE = 1, 2, 3, 4


def _svdf(emitter: Emitter, operator: Operator) -> None:
    data, features = (emitter.tensors[operator.inputs[place]] for place in (0, _FEATURES))
    rank = option(operator, "rank", 1)
    if len(data.shape) != 2 or len(operator.outputs) < 2 or rank < 1 or features.shape[0] % rank:
        raise UnsupportedFormError(
            f"{features.shape[0]} filters of rank {rank}, or a state that is no variable"
        )
    if is_quantised(data):
        _integers(emitter, operator, rank)
    else:
        _floats(emitter, operator, rank)


def _floats(emitter: Emitter, operator: Operator, rank: int) -> None:
    import numpy as np

    matrices = []
    for place in (_FEATURES, _TIME):
        name, tensor = emitter.value(operator.inputs[place]), emitter.tensors[operator.inputs[place]]
        known = emitter.known(name)
        if known is not None and known.dtype.kind in "iu":
            emitter.hybrid += place == _FEATURES
            name = emitter.const(dequantised(known, tensor))
        matrices.append(emitter.cast(name, np.float32))
    state, x = emitter.value(operator.inputs[_STATE]), emitter.value(operator.inputs[0])
    made = _product(emitter, x, matrices[0])
    kept, total = _filtered(emitter, operator, (state, made, matrices[1]), rank)
    if emitter.tensor(operator, _BIAS) is not None:
        total = emitter.op("Add", total, emitter.value(operator.inputs[_BIAS]))
    emitter.result(operator.outputs[1], kept)
    activation = option(operator, "fusedActivationFunction")
    emitter.result(operator.outputs[0], activated(emitter, total, activation))


def _product(emitter: Emitter, x: str, features: str) -> str:
    """Of rows with the filters of features."""
    filters = emitter.transpose(features, (1, 0))
    return emitter.op("MatMul", x, filters, shape=[emitter.shape(x)[0], emitter.shape(filters)[1]])


def _filtered(
    emitter: Emitter, operator: Operator, operands: tuple[str, str, str], rank: int
) -> tuple[str, str]:
    """The next state, (batch, filters * steps), and the sums over steps and ranks, (batch, units).

    Args:
        operands: the state, the newest step of each filter, and the filters over time.
    """
    import numpy as np

    state, newest, time = operands
    batch, count = emitter.shape(newest)
    steps = emitter.shape(time)[1]
    rows = emitter.reshape(state, [batch, count, steps])
    starts, stops, axes = (emitter.const(np.asarray([n], np.int64)) for n in (1, steps, 2))
    moved = emitter.op("Slice", rows, starts, stops, axes, shape=[batch, count, steps - 1])
    last = emitter.reshape(newest, [batch, count, 1])
    whole = emitter.op("Concat", moved, last, shape=[batch, count, steps], axis=2)
    wide = emitter.cast(time, np.int32) if emitter.dtype(time).kind == "i" else time
    numbers = emitter.cast(whole, emitter.dtype(wide))
    terms = emitter.op("Mul", numbers, wide)
    flat = emitter.reshape(terms, [batch, count // rank, rank * steps])
    over = emitter.const(np.asarray([2], np.int64))
    total = emitter.op("ReduceSum", flat, over, shape=[batch, count // rank], keepdims=0)
    return emitter.reshape(whole, emitter.shape(state)), total


def _integers(emitter: Emitter, operator: Operator, rank: int) -> None:
    """``EvalIntegerSVDF``: a state of int16."""
    import numpy as np

    places = (0, _FEATURES, _TIME, _STATE)
    data, features, time, state = (emitter.tensors[operator.inputs[place]] for place in places)
    result = emitter.tensors[operator.outputs[0]]
    if time.dtype != "int16" or state.dtype != "int16" or features.data is None:
        raise UnsupportedFormError(f"a state of {state.dtype} with filters of {time.dtype}")
    scale = [_scale(tensor) for tensor in (data, features, state, time, result)]
    x = centred(emitter, operator.inputs[0])
    weights = emitter.const(np.asarray(features.data, np.int32))
    factor = float(scale[0] * scale[1] / scale[2])
    most = int(np.abs(features.data.astype(np.int64)).sum(1).max(initial=0)) * 255
    scaled = multiplied(emitter, _product(emitter, x, weights), *quantize_multiplier(factor), most)
    newest = bounded(emitter, scaled, -32768, 32767, "int16")
    kept, total = _filtered(
        emitter,
        operator,
        (emitter.value(operator.inputs[_STATE]), newest, emitter.value(operator.inputs[_TIME])),
        rank,
    )
    if emitter.tensor(operator, _BIAS) is not None:
        total = emitter.op("Add", total, emitter.value(operator.inputs[_BIAS]))
    emitter.result(operator.outputs[1], kept)
    made = requantised(emitter, total, [float(scale[2] * scale[3] / scale[4])], result, 0)
    emitter.result(operator.outputs[0], made)


def _scale(tensor: Tensor) -> Any:
    """The scale, float32."""
    import numpy as np

    if tensor.quantisation is None or not tensor.quantisation.single:
        raise UnsupportedFormError(f"{tensor.name!r} that is not quantised as a whole")
    return np.float32(tensor.quantisation.scale[0])


CONVERTERS: dict[str, Converter] = {"SVDF": _svdf}

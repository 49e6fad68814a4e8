"""SVDF layers: a filter of the features of a step, and one over the steps before, which are kept."""

from __future__ import annotations

from typing import Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import (
    bounded,
    centred,
    integer_range,
    multiplied,
    quantize_multiplier,
    requantised,
    zero_of,
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
    elif data.dtype == "float32":
        _floats(emitter, operator, rank)
    else:
        raise UnsupportedFormError(f"an input of {data.dtype}")


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
    kept, total = _filtered(emitter, (state, made, matrices[1]), rank)
    if emitter.tensor(operator, _BIAS) is not None:
        total = emitter.op("Add", total, emitter.value(operator.inputs[_BIAS]))
    emitter.result(operator.outputs[1], kept)
    activation = option(operator, "fusedActivationFunction")
    emitter.result(operator.outputs[0], activated(emitter, total, activation))


def _product(emitter: Emitter, x: str, features: str) -> str:
    """Of rows with the filters of features."""
    filters = emitter.transpose(features, (1, 0))
    return emitter.op("MatMul", x, filters, shape=[emitter.shape(x)[0], emitter.shape(filters)[1]])


def _filtered(emitter: Emitter, operands: tuple[str, str, str], rank: int, zero: int = 0) -> tuple[str, str]:
    """The next state, (batch, filters * steps), and the sums over steps and ranks, (batch, units).

    Args:
        operands: the state, the newest step of each filter, and the filters over time.
        zero: the state's zero point.
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
    if zero:
        numbers = emitter.op("Sub", numbers, emitter.scalar(zero, numbers))
    terms = emitter.op("Mul", numbers, wide)
    flat = emitter.reshape(terms, [batch, count // rank, rank * steps])
    over = emitter.const(np.asarray([2], np.int64))
    total = emitter.op("ReduceSum", flat, over, shape=[batch, count // rank], keepdims=0)
    return emitter.reshape(whole, emitter.shape(state)), total


def _integers(emitter: Emitter, operator: Operator, rank: int) -> None:
    """``EvalIntegerSVDF``: a state of int16. TensorFlow Lite Micro's kernel has one of int8 too, with a zero
    point (``EvalIntegerSvdfReference``), which LiteRT would read as int16."""
    import numpy as np

    places = (0, _FEATURES, _TIME, _STATE)
    data, features, time, state = (emitter.tensors[operator.inputs[place]] for place in places)
    result, bias = emitter.tensors[operator.outputs[0]], emitter.tensor(operator, _BIAS)
    kinds = data.dtype, features.dtype, result.dtype, "int32" if bias is None else bias.dtype
    if kinds != ("int8", "int8", "int8", "int32") or features.data is None:
        raise UnsupportedFormError(f"an input of {data.dtype} with filters of {features.dtype}")
    if time.dtype != state.dtype or state.dtype not in {"int8", "int16"}:
        raise UnsupportedFormError(f"a state of {state.dtype} with filters of {time.dtype}")
    if state.dtype == "int8":
        emitter.foreign.add(operator.kind)
    scale = [_scale(tensor) for tensor in (data, features, state, time, result)]
    x = centred(emitter, operator.inputs[0])
    weights = emitter.const(np.asarray(features.data, np.int32))
    factor = float(scale[0] * scale[1] / scale[2])
    most = int(np.abs(features.data.astype(np.int64)).sum(1).max(initial=0)) * 255
    scaled = multiplied(emitter, _product(emitter, x, weights), *quantize_multiplier(factor), most)
    zero = zero_of(state) if state.dtype == "int8" else 0
    operands = (
        emitter.value(operator.inputs[_STATE]),
        _newest(emitter, scaled, state.dtype, zero),
        emitter.value(operator.inputs[_TIME]),
    )
    kept, total = _filtered(emitter, operands, rank, zero)
    if bias is not None:
        total = emitter.op("Add", total, emitter.value(operator.inputs[_BIAS]))
    emitter.result(operator.outputs[1], kept)
    made = requantised(emitter, total, [float(scale[2] * scale[3] / scale[4])], result, 0)
    emitter.result(operator.outputs[0], made)


def _newest(emitter: Emitter, scaled: str, dtype: str, zero: int) -> str:
    """The newest step of a state: within the type's range before the zero point is added, which then may
    carry out of it to the other end, as in the kernel."""
    low, high = integer_range(dtype)
    if not zero:
        return bounded(emitter, scaled, low, high, dtype)
    near = bounded(emitter, scaled, low, high, "int32")
    moved = emitter.op("Add", near, emitter.scalar(zero, near))
    by = high - low + 1
    past = emitter.op(
        "Greater" if zero > 0 else "Less", moved, emitter.scalar(high if zero > 0 else low, moved), dtype=bool
    )
    back = emitter.op("Add", moved, emitter.scalar(-by if zero > 0 else by, moved))
    return emitter.cast(emitter.op("Where", past, back, moved, dtype=emitter.dtype(moved)), dtype)


def _scale(tensor: Tensor) -> Any:
    """The scale, float32."""
    import numpy as np

    if tensor.quantisation is None or not tensor.quantisation.single:
        raise UnsupportedFormError(f"{tensor.name!r} that is not quantised as a whole")
    return np.float32(tensor.quantisation.scale[0])


CONVERTERS: dict[str, Converter] = {"SVDF": _svdf}

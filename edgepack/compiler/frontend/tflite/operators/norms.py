"""Norms over channels, and logarithms of softmax."""

from __future__ import annotations

import math

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated
from edgepack.compiler.frontend.tflite.operators.pooling import average, window_and_extents

__all__ = ["CONVERTERS"]

#: What a norm is at least.
_LEAST = 1e-6


def _floats(emitter: Emitter, operator: Operator) -> str:
    """The operand.

    Raises:
        UnsupportedFormError: it holds integers.
    """
    tensor = emitter.tensors[operator.inputs[0]]
    if is_quantised(tensor) or tensor.dtype != "float32":
        raise UnsupportedFormError(f"an operand of {tensor.dtype}")
    return emitter.value(operator.inputs[0])


def _l2_normalization(emitter: Emitter, operator: Operator) -> None:
    """Rows divided by their norm."""
    import numpy as np

    x = _floats(emitter, operator)
    last = emitter.const(np.asarray([len(emitter.shape(x)) - 1], np.int64))
    shape = [*emitter.shape(x)[:-1], 1]
    squares = emitter.op("ReduceSum", emitter.op("Mul", x, x), last, shape=shape, keepdims=1)
    norm = emitter.op("Max", emitter.op("Sqrt", squares), emitter.scalar(_LEAST, x))
    made = emitter.op("Div", x, norm)
    activation = option(operator, "fusedActivationFunction")
    emitter.result(operator.outputs[0], activated(emitter, made, activation))


def _log_softmax(emitter: Emitter, operator: Operator) -> None:
    emitter.result(operator.outputs[0], emitter.op("LogSoftmax", _floats(emitter, operator), axis=-1))


def _local_response(emitter: Emitter, operator: Operator) -> None:
    """x * (bias + alpha * sum)**-beta, with squares of ``radius`` channels before this one and of as many
    from it on, which is one less than on paper."""
    x = _floats(emitter, operator)
    radius, shape = max(option(operator, "radius"), 1), emitter.shape(x)
    alpha, beta, bias = (float(operator.options.get(name) or 0.0) for name in ("alpha", "beta", "bias"))
    flat = emitter.reshape(emitter.op("Mul", x, x), [math.prod(shape[:-1]), 1, shape[-1]])
    means = emitter.op(
        "AveragePool",
        flat,
        shape=emitter.shape(flat),
        kernel_shape=[2 * radius],
        pads=[radius, radius - 1],
        count_include_pad=1,
    )
    sums = emitter.op("Mul", emitter.reshape(means, shape), emitter.scalar(alpha * 2 * radius, x))
    base = emitter.op("Add", sums, emitter.scalar(bias, x))
    emitter.result(
        operator.outputs[0], emitter.op("Mul", x, emitter.op("Pow", base, emitter.scalar(-beta, x)))
    )


def _l2_pool(emitter: Emitter, operator: Operator) -> None:
    """Roots of means of squares."""
    x = _floats(emitter, operator)
    window, extents = window_and_extents(emitter, operator)
    made = emitter.op("Sqrt", average(emitter, emitter.op("Mul", x, x), window, extents))
    activation = option(operator, "fusedActivationFunction")
    emitter.result(operator.outputs[0], activated(emitter, made, activation))


CONVERTERS: dict[str, Converter] = {
    "L2_NORMALIZATION": _l2_normalization,
    "L2_POOL_2D": _l2_pool,
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "LOG_SOFTMAX": _log_softmax,
}

"""Pooling by windows, and means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, ROUNDING_DIVIDE
from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import activation_range, bounded
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
    same_quantisation,
)
from edgepack.compiler.frontend.tflite.operators.convolution import (
    Window,
    activated,
    extents_of,
    window_of,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONVERTERS", "average", "window_and_extents"]

#: What scales before and behind a window may differ by (``tensorflow/lite/kernels/pooling.cc``).
_OFF_BY = 1e-6

#: Of as many numbers of int16 float32 holds any sum.
_MOST_WORDS = 512


def window_and_extents(emitter: Emitter, operator: Operator) -> tuple[Window, list[int]]:
    """The window, and the result's rows and columns."""
    image = emitter.tensors[operator.inputs[0]]
    if len(image.shape) != 4:
        raise UnsupportedFormError(f"an image of {len(image.shape)} dimensions")
    size = option(operator, "filterHeight"), option(operator, "filterWidth")
    window = window_of(operator, image.shape, size)
    return window, extents_of(image.shape[1:3], window)


def _max_pool(emitter: Emitter, operator: Operator) -> None:
    tensor, result = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    import numpy as np

    window, extents = window_and_extents(emitter, operator)
    attributes = window.attributes()
    x = emitter.channels_first(emitter.value(operator.inputs[0]))
    if tensor.dtype == "int16":  # of which the standard has no pooling; floats hold them exactly
        x = emitter.cast(x, np.float32)
    shape = (*emitter.shape(x)[:2], *extents)
    made = emitter.channels_last(emitter.op("MaxPool", x, shape=shape, **attributes))
    activation = option(operator, "fusedActivationFunction")
    if not is_quantised(tensor):
        emitter.result(operator.outputs[0], activated(emitter, made, activation))
        return
    if not same_quantisation(tensor, result, _OFF_BY):
        raise UnsupportedFormError("another scale behind it than before")
    if activation:
        assert result.quantisation is not None
        low, high = activation_range(activation, result.dtype, result.quantisation)
        made = bounded(emitter, emitter.cast(made, np.int32), low, high, result.dtype)
    emitter.result(operator.outputs[0], made)


def _average_pool(emitter: Emitter, operator: Operator) -> None:
    """Padding counts for nothing."""
    import numpy as np

    tensor, result = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    window, extents = window_and_extents(emitter, operator)
    activation = option(operator, "fusedActivationFunction")
    x = emitter.value(operator.inputs[0])
    if not is_quantised(tensor):
        made = average(emitter, x, window, extents)
        emitter.result(operator.outputs[0], activated(emitter, made, activation))
        return
    if not same_quantisation(tensor, result, _OFF_BY) or result.quantisation is None:
        raise UnsupportedFormError("another scale behind it than before")
    counts = _counts(window, tensor.shape[1:3], extents)
    words = tensor.dtype == "int16"
    if words and window.size[0] * window.size[1] > _MOST_WORDS:
        raise UnsupportedFormError(f"averages of {window.size} numbers of int16")
    sums = emitter.cast(_sums(emitter, x, window, extents, np.float32 if words else np.int32), np.int32)
    low, high = activation_range(activation, result.dtype, result.quantisation)
    mean = emitter.op(ROUNDING_DIVIDE, sums, emitter.const(counts), shape=emitter.shape(sums), domain=DOMAIN)
    emitter.result(operator.outputs[0], bounded(emitter, mean, low, high, result.dtype))


def average(emitter: Emitter, x: str, window: Window, extents: list[int]) -> str:
    """Means of floats over windows."""
    first = emitter.channels_first(x)
    attributes = window.attributes()
    attributes.pop("dilations")
    shape = (*emitter.shape(first)[:2], *extents)
    pooled = emitter.op("AveragePool", first, shape=shape, count_include_pad=0, **attributes)
    return emitter.channels_last(pooled)


def _counts(window: Window, extents: Any, made: Any) -> NDArray[Any]:
    """How many pixels each window has, (1, rows, columns, 1) or of rank 0 where all have as many."""
    import numpy as np

    sides = []
    for axis in (0, 1):
        first = np.arange(made[axis]) * window.strides[axis] - window.padding[axis]
        last = np.minimum(first + window.size[axis], extents[axis])
        sides.append(last - np.maximum(first, 0))
    counts = (sides[0][:, None] * sides[1][None]).astype(np.int32).reshape(1, *made, 1)
    return np.asarray(counts.flat[0] if (counts == counts.flat[0]).all() else counts, np.int32)


def _sums(emitter: Emitter, x: str, window: Window, extents: Any, kind: Any) -> str:
    """Sums over windows, of a type that holds them exactly."""
    import numpy as np

    x = emitter.cast(x, kind)
    n, rows, columns, channels = emitter.shape(x)
    if window.size == (rows, columns) and list(extents) == [1, 1] and not any(window.padding):
        axes = emitter.const(np.asarray([1, 2], np.int64))
        return emitter.op("ReduceSum", x, axes, shape=(n, 1, 1, channels), keepdims=1)
    ones = emitter.const(np.ones((channels, 1, *window.size), kind))
    first = emitter.channels_first(x)
    shape = (n, channels, *extents)
    made = emitter.op("Conv", first, ones, shape=shape, group=channels, **window.attributes())
    return emitter.channels_last(made)


CONVERTERS: dict[str, Converter] = {
    "AVERAGE_POOL_2D": _average_pool,
    "MAX_POOL_2D": _max_pool,
}

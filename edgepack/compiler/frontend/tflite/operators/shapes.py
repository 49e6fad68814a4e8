"""Operators that move elements and change shapes, whatever the elements mean."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
    same_quantisation,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONVERTERS", "constant"]


def constant(emitter: Emitter, operator: Operator, place: int) -> NDArray[Any]:
    """The numbers of an operand that has to be a constant.

    Raises:
        UnsupportedFormError: it is computed.
    """
    name = emitter.value(operator.inputs[place])
    known = emitter.known(name)
    if known is None:
        raise UnsupportedFormError(f"operand {place} that is computed")
    return known


def _reshape(emitter: Emitter, operator: Operator) -> None:
    """As the result's shape, which converters write, says."""
    shape = emitter.tensors[operator.outputs[0]].shape
    _moved(emitter, operator, emitter.reshape(emitter.value(operator.inputs[0]), shape))


def _transpose(emitter: Emitter, operator: Operator) -> None:
    axes = [int(axis) for axis in constant(emitter, operator, 1)]
    _moved(emitter, operator, emitter.transpose(emitter.value(operator.inputs[0]), axes))


def _moved(emitter: Emitter, operator: Operator, made: str) -> None:
    """A result with elements of the first operand, which mean the same."""
    if not same_quantisation(emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]):
        raise UnsupportedFormError("another scale behind it than before")
    emitter.result(operator.outputs[0], made)


def _concatenation(emitter: Emitter, operator: Operator) -> None:
    tensors = [emitter.tensors[i] for i in operator.inputs]
    result = emitter.tensors[operator.outputs[0]]
    if any(not same_quantisation(tensor, result) for tensor in tensors):
        raise UnsupportedFormError("parts of other scales than its result's")
    axis = option(operator, "axis") % max(len(result.shape), 1)
    values = [emitter.value(i) for i in operator.inputs]
    shape = list(emitter.shape(values[0]))
    shape[axis] = sum(emitter.shape(value)[axis] for value in values)
    made = emitter.op("Concat", *values, shape=shape, axis=axis)
    activation = option(operator, "fusedActivationFunction")
    if activation and is_quantised(result):
        raise UnsupportedFormError("a fused activation function of integers")
    emitter.result(operator.outputs[0], activated(emitter, made, activation))


def _strided_slice(emitter: Emitter, operator: Operator) -> None:
    begin, end, strides = ([int(n) for n in constant(emitter, operator, i)] for i in (1, 2, 3))
    x = emitter.value(operator.inputs[0])
    masks = {
        name: option(operator, f"{name}Mask")
        for name in ("begin", "end", "ellipsis", "newAxis", "shrinkAxis")
    }
    if masks["ellipsis"] or masks["newAxis"] or option(operator, "offset"):
        raise UnsupportedFormError("an ellipsis, a new axis or an offset in a slice")
    starts, stops, shape = [], [], list(emitter.shape(x))
    for axis, bounds in enumerate(zip(begin, end, strides, strict=True)):
        first, last, step = _bounds(bounds, emitter.shape(x)[axis], masks, 1 << axis)
        starts.append(first)
        stops.append(last if last >= 0 else -emitter.shape(x)[axis] - 1)
        strides[axis] = step
        shape[axis] = len(range(first, last, step))
    made = _sliced(emitter, x, (starts, stops, strides), shape)
    dropped = [axis for axis in range(len(begin)) if masks["shrinkAxis"] & 1 << axis]
    _moved(
        emitter, operator, emitter.reshape(made, [n for axis, n in enumerate(shape) if axis not in dropped])
    )


def _bounds(
    given: tuple[int, int, int], extent: int, masks: Mapping[str, int], bit: int
) -> tuple[int, int, int]:
    """Where a slice begins and ends along an axis, and its steps."""
    first, last, step = given
    begin = (0 if step > 0 else extent - 1) if masks["begin"] & bit else _place(first, extent, step)
    if masks["shrinkAxis"] & bit:
        return begin, begin + 1, 1
    end = (extent if step > 0 else -1) if masks["end"] & bit else _place(last, extent, step)
    return begin, end, step


def _place(index: int, extent: int, step: int) -> int:
    """Where a slice begins or ends, between the ends of the axis."""
    index = index + extent if index < 0 else index
    return min(max(index, 0), extent) if step > 0 else min(max(index, -1), extent - 1)


def _sliced(
    emitter: Emitter, x: str, bounds: tuple[Sequence[int], Sequence[int], Sequence[int]], shape: Sequence[int]
) -> str:
    import numpy as np

    starts, stops, strides = (emitter.const(np.asarray(values, np.int64)) for values in bounds)
    axes = emitter.const(np.arange(len(bounds[0]), dtype=np.int64))
    return emitter.op("Slice", x, starts, stops, axes, strides, shape=shape)


def _slice(emitter: Emitter, operator: Operator) -> None:
    begin, size = ([int(n) for n in constant(emitter, operator, i)] for i in (1, 2))
    x = emitter.value(operator.inputs[0])
    shape = [
        extent - first if count < 0 else count
        for first, count, extent in zip(begin, size, emitter.shape(x), strict=True)
    ]
    stops = [first + count for first, count in zip(begin, shape, strict=True)]
    _moved(emitter, operator, _sliced(emitter, x, (begin, stops, [1] * len(begin)), shape))


def _pad(emitter: Emitter, operator: Operator) -> None:
    """By the zero point, or by a value that is given."""
    import numpy as np

    widths = constant(emitter, operator, 1).reshape(-1, 2)
    tensor, x = emitter.tensors[operator.inputs[0]], emitter.value(operator.inputs[0])
    value = tensor.quantisation.zero[0] if tensor.quantisation is not None else 0
    if len(operator.inputs) > 2:
        value = constant(emitter, operator, 2).reshape(())
    pads = emitter.const(np.asarray([*widths[:, 0], *widths[:, 1]], np.int64))
    shape = [n + int(sum(width)) for n, width in zip(emitter.shape(x), widths, strict=True)]
    fill = emitter.const(np.asarray(value, emitter.dtype(x)))
    _moved(emitter, operator, emitter.op("Pad", x, pads, fill, shape=shape, mode="constant"))


CONVERTERS: dict[str, Converter] = {
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _reshape,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshape,
    "SLICE": _slice,
    "SQUEEZE": _reshape,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
}

"""Operators that move elements and change shapes, whatever the elements mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    axis_of,
    constant,
    is_quantised,
    moved,
    option,
    same_quantisation,
)
from edgepack.compiler.frontend.tflite.operators.convolution import activated

__all__ = ["CONVERTERS"]


def _reshape(emitter: Emitter, operator: Operator) -> None:
    """As a constant operand says, of which one size may be left open; else as the result's shape, which
    converters write."""
    x = emitter.value(operator.inputs[0])
    count, shape = math.prod(emitter.shape(x)), list(emitter.tensors[operator.outputs[0]].shape)
    given = emitter.known(emitter.value(operator.inputs[1])) if emitter.tensor(operator, 1) else None
    if given is not None and given.ndim == 1:
        shape = [int(n) for n in given]
    elif given is None and emitter.tensor(operator, 1) is not None:
        emitter.assumed[operator.inputs[1]] = tuple(shape)
    if shape.count(-1) == 1:
        rest = math.prod(n for n in shape if n != -1)
        shape[shape.index(-1)] = count // max(rest, 1)
    if math.prod(shape) != count:
        raise UnsupportedFormError(f"{count} elements as {shape}")
    moved(emitter, operator, emitter.reshape(x, shape))


def _expand_dims(emitter: Emitter, operator: Operator) -> None:
    x = emitter.value(operator.inputs[0])
    shape = list(emitter.shape(x))
    shape.insert(axis_of(int(constant(emitter, operator, 1).reshape(())), len(shape) + 1), 1)
    moved(emitter, operator, emitter.reshape(x, shape))


def _squeeze(emitter: Emitter, operator: Operator) -> None:
    x = emitter.value(operator.inputs[0])
    shape = emitter.shape(x)
    given = operator.options.get("squeezeDims")
    axes = {axis_of(int(axis), len(shape)) for axis in ([] if given is None else given)}
    axes = axes or {axis for axis, extent in enumerate(shape) if extent == 1}
    if any(shape[axis] != 1 for axis in axes):
        raise UnsupportedFormError("a dimension that is not 1")
    moved(emitter, operator, emitter.reshape(x, [n for axis, n in enumerate(shape) if axis not in axes]))


def _transpose(emitter: Emitter, operator: Operator) -> None:
    axes = [int(axis) for axis in constant(emitter, operator, 1)]
    moved(emitter, operator, emitter.transpose(emitter.value(operator.inputs[0]), axes))


def _concatenation(emitter: Emitter, operator: Operator) -> None:
    tensors = [emitter.tensors[i] for i in operator.inputs]
    result = emitter.tensors[operator.outputs[0]]
    if result.dtype != "uint8" and any(not same_quantisation(tensor, result) for tensor in tensors):
        raise UnsupportedFormError("parts of other scales than its result's")
    values = [_part(emitter, i, tensor, result) for i, tensor in zip(operator.inputs, tensors, strict=True)]
    shape = list(emitter.shape(values[0]))
    axis = axis_of(option(operator, "axis"), len(shape))
    shape[axis] = sum(emitter.shape(value)[axis] for value in values)
    made = emitter.op("Concat", *values, shape=shape, axis=axis)
    activation = option(operator, "fusedActivationFunction")
    if activation and is_quantised(result):
        raise UnsupportedFormError("a fused activation function of integers")
    emitter.result(operator.outputs[0], activated(emitter, made, activation))


def _part(emitter: Emitter, index: int, tensor: Tensor, result: Tensor) -> str:
    """A part of a whole; bytes without sign of another scale by a table: ``ConcatenationWithScaling``, which
    computes in float32."""
    import numpy as np

    x = emitter.value(index)
    if same_quantisation(tensor, result):
        return x
    given, wanted = tensor.quantisation, result.quantisation
    if (
        tensor.dtype != result.dtype
        or given is None
        or wanted is None
        or not (given.single and wanted.single)
    ):
        raise UnsupportedFormError("parts of other scales than its result's")
    scale = np.float32(given.scale[0]) * (np.float32(1) / np.float32(wanted.scale[0]))
    bias = np.float32(-int(given.zero[0])) * scale
    exact = np.arange(256, dtype=np.float32) * scale + bias
    near = np.copysign(np.floor(np.abs(exact.astype(np.float64)) + 0.5), exact) + int(wanted.zero[0])
    table = emitter.const(np.clip(near, 0, 255).astype(np.uint8))
    place = emitter.cast(x, np.int64)
    return emitter.op("Gather", table, place, shape=emitter.shape(x), dtype=np.uint8, axis=0)


def _strided_slice(emitter: Emitter, operator: Operator) -> None:
    """Places of the specification are dimensions of the operand, new ones, or as many as there are (an
    ellipsis); those that are shrunk are left out."""
    begin, end, steps = ([int(n) for n in constant(emitter, operator, i)] for i in (1, 2, 3))
    x = emitter.value(operator.inputs[0])
    names = ("begin", "end", "ellipsis", "newAxis", "shrinkAxis")
    masks = {name: option(operator, f"{name}Mask") for name in names}
    if option(operator, "offset"):  # ends are counted from the beginnings
        end = [first + count for first, count in zip(begin, end, strict=True)]
    starts, stops, strides = list[int](), list[int](), list[int]()
    sliced, shape = list[int](), list[int]()
    for place, bounds in enumerate(zip(begin, end, steps, strict=True)):
        bit, axis = 1 << place, len(starts)
        if masks["ellipsis"] & bit:
            new = sum(masks["newAxis"] >> later & 1 for later in range(place + 1, len(begin)))
            for _ in range(len(emitter.shape(x)) - axis - (len(begin) - place - 1 - new)):
                whole = emitter.shape(x)[len(starts)]
                _append((starts, stops, strides), (0, whole, 1))
                sliced.append(whole)
                shape.append(whole)
        elif masks["newAxis"] & bit:
            shape.append(1)
        else:
            extent = emitter.shape(x)[axis]
            first, last, step = _bounds(bounds, extent, masks, bit)
            _append((starts, stops, strides), (first, last if last >= 0 else -extent - 1, step))
            sliced.append(len(range(first, last, step)))
            shape.extend([] if masks["shrinkAxis"] & bit else [sliced[-1]])
    rest = emitter.shape(x)[len(starts) :]
    made = _sliced(emitter, x, (starts, stops, strides), [*sliced, *rest])
    moved(emitter, operator, emitter.reshape(made, [*shape, *rest]))


def _append(lists: tuple[list[int], ...], values: tuple[int, ...]) -> None:
    for one, value in zip(lists, values, strict=True):
        one.append(value)


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
    moved(emitter, operator, _sliced(emitter, x, (begin, stops, [1] * len(begin)), shape))


def _pad(emitter: Emitter, operator: Operator) -> None:
    """By the zero point, or by a value that is given."""
    import numpy as np

    widths = constant(emitter, operator, 1).reshape(-1, 2)
    tensor, x = emitter.tensors[operator.inputs[0]], emitter.value(operator.inputs[0])
    value = tensor.quantisation.zero[0] if tensor.quantisation is not None else 0
    if emitter.tensor(operator, 2) is not None:
        value = constant(emitter, operator, 2).reshape(())
    pads = emitter.const(np.asarray([*widths[:, 0], *widths[:, 1]], np.int64))
    shape = [n + int(sum(width)) for n, width in zip(emitter.shape(x), widths, strict=True)]
    fill = emitter.const(np.asarray(value, emitter.dtype(x)))
    moved(emitter, operator, emitter.op("Pad", x, pads, fill, shape=shape, mode="constant"))


CONVERTERS: dict[str, Converter] = {
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _expand_dims,
    "PAD": _pad,
    "PADV2": _pad,
    "RESHAPE": _reshape,
    "SLICE": _slice,
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _strided_slice,
    "TRANSPOSE": _transpose,
}

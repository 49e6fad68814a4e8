"""Products of matrices that are computed, and convolutions that are not of images: transposed ones, and those
of volumes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import centred, requantised, zero_of
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
)
from edgepack.compiler.frontend.tflite.operators.convolution import (
    activated,
    dequantised,
    multiplier_of_products,
    padding_of,
    requantised_sums,
    weights_of,
    with_bias,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CONVERTERS"]


def _batch_matmul(emitter: Emitter, operator: Operator) -> None:
    """Matrices of the last two dimensions, each of which may be transposed first."""
    import numpy as np

    tensors = [emitter.tensors[index] for index in operator.inputs]
    result = emitter.tensors[operator.outputs[0]]
    integers = all(is_quantised(tensor) for tensor in tensors)
    operands = []
    for index, tensor, name in zip(operator.inputs, tensors, ("adjX", "adjY"), strict=True):
        x = centred(emitter, index) if integers else emitter.value(index)
        if not integers and is_quantised(tensor):  # weights of dynamic-range quantisation
            known = emitter.known(x)
            if known is None:
                raise UnsupportedFormError(f"an operand of {tensor.dtype} beside floats")
            emitter.hybrid += 1
            x = emitter.const(dequantised(known, tensor))
        rank = len(emitter.shape(x))
        if option(operator, name):
            x = emitter.transpose(x, [*range(rank - 2), rank - 1, rank - 2])
        operands.append(x)
    left, right = (emitter.shape(x) for x in operands)
    shape = [*np.broadcast_shapes(left[:-2], right[:-2]), left[-2], right[-1]]
    made = emitter.op("MatMul", *operands, shape=shape)
    if integers:
        words = tensors[0].dtype == "int16"
        types = (tensors[1].dtype, result.dtype)
        if words and (types != ("int8", "int16") or any(zero_of(one) for one in (*tensors, result))):
            raise UnsupportedFormError(f"operands of int16 and {types[0]} with a result of {types[1]}")
        if not words and (tensors[0].dtype != tensors[1].dtype or not is_quantised(result)):
            raise UnsupportedFormError(f"operands of {tensors[0].dtype} and {types[0]}")
        if not all(one.quantisation and one.quantisation.single for one in (*tensors, result)):
            raise UnsupportedFormError("several scales of an operand")
        factor = multiplier_of_products(tensors[0], tensors[1], result)
        largest = _largest_sum(emitter.known(operands[1]), left[-1]) if words else 255 * 255 * left[-1]
        if largest >= 1 << 31:
            raise UnsupportedFormError("sums of int16 that do not fit into 32 bits")
        made = requantised(emitter, made, [factor], result, 0, largest, how="wide" if words else "twice")
    emitter.result(operator.outputs[0], made)


def _largest_sum(columns: NDArray[Any] | None, count: int) -> int:
    """A magnitude that no product of a row of ``count`` words with columns of bytes exceeds."""
    import numpy as np

    if columns is None:
        return (1 << 15) * (1 << 7) * count
    return (1 << 15) * int(np.abs(columns.astype(np.int64)).sum(-2).max(initial=0))


def _transposed(emitter: Emitter, operator: Operator) -> None:
    """Of a result whose size is given: the input's pixels are spread by the strides, and weights mirrored."""
    import numpy as np

    data, weights = emitter.tensors[operator.inputs[2]], emitter.tensors[operator.inputs[1]]
    result = emitter.tensors[operator.outputs[0]]
    integers = is_quantised(data)
    x = centred(emitter, operator.inputs[2]) if integers else emitter.value(operator.inputs[2])
    w = weights_of(emitter, operator, data, weights)
    strides = option(operator, "strideH", 1), option(operator, "strideW", 1)
    extents, size = _sizes(emitter, operator), emitter.shape(w)[1:3]
    before = padding_of(option(operator, "padding"), extents, size, strides, (1, 1))[:2]
    pads, more = list(before), []
    for axis in (0, 1):
        whole = (emitter.shape(x)[axis + 1] - 1) * strides[axis] + size[axis]
        rest = whole - before[axis] - extents[axis]
        pads.append(max(rest, 0))
        more.append(max(-rest, 0))
    first = emitter.channels_first(x)
    shape = [emitter.shape(x)[0], emitter.shape(w)[0], *extents]
    if integers:
        spread = _spread(emitter, first, strides)
        mirrored = emitter.known(w)
        assert mirrored is not None
        kernel = emitter.const(np.ascontiguousarray(mirrored[:, ::-1, ::-1]).transpose(0, 3, 1, 2))
        border = [n - 1 - p for n, p in zip(size * 2, pads, strict=True)]
        border[2], border[3] = border[2] + more[0], border[3] + more[1]
        if min(border) < 0:
            raise UnsupportedFormError("padding that is wider than the window")
        made = emitter.op("Conv", spread, kernel, shape=shape, kernel_shape=list(size), pads=border)
    else:
        made = emitter.op(
            "ConvTranspose",
            first,
            emitter.transpose(w, (3, 0, 1, 2)),
            shape=shape,
            kernel_shape=list(size),
            strides=list(strides),
            pads=pads,
            output_padding=more,
        )
    sums = with_bias(emitter, operator, emitter.channels_last(made), 3)
    if integers:
        emitter.result(
            operator.outputs[0], requantised_sums(emitter, operator, sums, (data, weights, result))
        )
        return
    activation = option(operator, "fusedActivationFunction")
    emitter.result(operator.outputs[0], activated(emitter, sums, activation))


def _sizes(emitter: Emitter, operator: Operator) -> tuple[int, int]:
    """Rows and columns of a transposed convolution's result: an operand, or what the file says."""
    shape = emitter.known(emitter.value(operator.inputs[0]))
    given = emitter.tensors[operator.outputs[0]].shape if shape is None else shape
    if shape is None:
        emitter.assumed[operator.inputs[0]] = tuple(int(n) for n in given)
    if len(given) != 4:
        raise UnsupportedFormError(f"a result of {len(given)} dimensions")
    return int(given[1]), int(given[2])


def _spread(emitter: Emitter, x: str, strides: tuple[int, int]) -> str:
    """(N, C, H, W) with zeros between rows and columns."""
    import numpy as np

    n, channels, rows, columns = emitter.shape(x)
    if strides == (1, 1):
        return x
    parts = emitter.reshape(x, [n, channels, rows, 1, columns, 1])
    behind = [0, 0, 0, strides[0] - 1, 0, strides[1] - 1]
    pads = emitter.const(np.asarray([0] * 6 + behind, np.int64))
    fill = emitter.scalar(0, x)
    shape = [n, channels, rows, strides[0], columns, strides[1]]
    wide = emitter.op("Pad", parts, pads, fill, shape=shape, mode="constant")
    whole = [n, channels, rows * strides[0], columns * strides[1]]
    made = emitter.reshape(wide, whole)
    last = [(rows - 1) * strides[0] + 1, (columns - 1) * strides[1] + 1]
    starts, stops, axes = (emitter.const(np.asarray(v, np.int64)) for v in ([0, 0], last, [2, 3]))
    return emitter.op("Slice", made, starts, stops, axes, shape=[n, channels, *last])


def _volume(emitter: Emitter, operator: Operator) -> None:
    """Of floats; weights are (D, H, W, I, O)."""
    data, weights = (emitter.tensors[index] for index in operator.inputs[:2])
    if data.dtype != "float32":
        raise UnsupportedFormError(f"a volume of {data.dtype}")
    x = emitter.channels_first(emitter.value(operator.inputs[0]))
    w = emitter.transpose(weights_of(emitter, operator, data, weights), (4, 3, 0, 1, 2))
    strides, dilation = (
        [option(operator, f"{name}{side}{end}", 1) for side in "DHW"]
        for name, end in (("stride", ""), ("dilation", "Factor"))
    )
    size, pads, extents = emitter.shape(w)[2:], [[], []], []  # type: ignore[var-annotated]
    for axis in range(3):
        given = ((emitter.shape(x)[axis + 2],) * 2, (size[axis],) * 2, (strides[axis],) * 2)
        sides = padding_of(option(operator, "padding"), *given, (dilation[axis],) * 2)
        pads[0].append(sides[0])
        pads[1].append(sides[2])
        whole = emitter.shape(x)[axis + 2] + sides[0] + sides[2]
        extents.append((whole - (size[axis] - 1) * dilation[axis] - 1) // strides[axis] + 1)
    shape = [emitter.shape(x)[0], emitter.shape(w)[0], *extents]
    if emitter.shape(w)[1] != emitter.shape(x)[1] or min(extents) < 1:
        raise UnsupportedFormError(f"{emitter.shape(x)[1]} channels in groups of {emitter.shape(w)[1]}")
    made = emitter.op(
        "Conv",
        x,
        w,
        shape=shape,
        kernel_shape=list(size),
        strides=strides,
        dilations=dilation,
        pads=[*pads[0], *pads[1]],
    )
    sums = with_bias(emitter, operator, emitter.channels_last(made))
    activation = option(operator, "fusedActivationFunction")
    emitter.result(operator.outputs[0], activated(emitter, sums, activation))


CONVERTERS: dict[str, Converter] = {
    "BATCH_MATMUL": _batch_matmul,
    "CONV_3D": _volume,
    "TRANSPOSE_CONV": _transposed,
}

"""Convolutions and fully connected layers, of floats and of integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.fixed_point import BOUNDS, centred, integer_range, requantised
from edgepack.compiler.frontend.tflite.model import LEFT_OUT, Operator, Tensor
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    is_quantised,
    option,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "CONVERTERS",
    "Window",
    "activated",
    "dequantised",
    "extents_of",
    "multiplier_of_products",
    "padding_of",
    "requantised_sums",
    "weights_of",
    "window_of",
    "with_bias",
]

#: The schema's number of the padding SAME; VALID is 1.
SAME = 0

#: The schema's number of the type int32.
_INT32 = 2


@dataclass(frozen=True)
class Window:
    """How a window slides over an image.

    Attributes:
        size, strides, dilation: along rows and columns.
        padding: before rows, before columns, behind rows, behind columns.
    """

    size: tuple[int, int]
    strides: tuple[int, int]
    dilation: tuple[int, int]
    padding: tuple[int, int, int, int]

    def attributes(self) -> dict[str, Any]:
        """Those of ONNX's operators."""
        return {
            "kernel_shape": list(self.size),
            "strides": list(self.strides),
            "dilations": list(self.dilation),
            "pads": list(self.padding),
        }


def padding_of(
    scheme: int, extents: Sequence[int], size: Sequence[int], strides: Sequence[int], dilation: Sequence[int]
) -> tuple[int, int, int, int]:
    """Zeros before and behind rows and columns. SAME: as many that the result has ``ceil(extent / stride)``
    elements, the odd one behind (``ComputePaddingWithOffset`` of ``tensorflow/lite/kernels/padding.h``)."""
    if scheme != SAME:
        return (0, 0, 0, 0)
    before, behind = [], []
    for extent, taps, stride, step in zip(extents, size, strides, dilation, strict=True):
        count = -(-extent // stride)
        total = max((count - 1) * stride + (taps - 1) * step + 1 - extent, 0)
        before.append(total // 2)
        behind.append(total - total // 2)
    return (before[0], before[1], behind[0], behind[1])


def window_of(operator: Operator, image: Sequence[int], size: tuple[int, int]) -> Window:
    """The window of an operator over an image (N, H, W, C)."""
    strides = option(operator, "strideH", 1), option(operator, "strideW", 1)
    dilation = option(operator, "dilationHFactor", 1), option(operator, "dilationWFactor", 1)
    if min(*strides, *dilation, *size) < 1:
        raise UnsupportedFormError("a window, stride or dilation below 1")
    padding = padding_of(option(operator, "padding"), image[1:3], size, strides, dilation)
    return Window(size, strides, dilation, padding)


def activated(emitter: Emitter, x: str, activation: int) -> str:
    """Floats behind a fused activation function."""
    if activation == 4:
        return emitter.op("Tanh", x)
    if activation not in BOUNDS:
        raise UnsupportedFormError(f"the fused activation function {activation}")
    low, high = BOUNDS[activation]
    if high < float("inf"):
        return emitter.op("Clip", x, emitter.scalar(low, x), emitter.scalar(high, x), shape=emitter.shape(x))
    return emitter.op("Relu", x) if low == 0 else x


def _conv(emitter: Emitter, operator: Operator) -> None:
    image, weights = (emitter.tensors[i] for i in operator.inputs[:2])
    _check_rank(image, weights)
    channels = weights.shape[3]
    if not channels or image.shape[3] % channels:
        raise UnsupportedFormError(f"{image.shape[3]} channels in groups of {channels}")
    window = window_of(operator, image.shape, (weights.shape[1], weights.shape[2]))
    _convolved(emitter, operator, window, (0, 3, 1, 2), image.shape[3] // channels)


def _depthwise(emitter: Emitter, operator: Operator) -> None:
    image, weights = (emitter.tensors[i] for i in operator.inputs[:2])
    _check_rank(image, weights)
    window = window_of(operator, image.shape, (weights.shape[1], weights.shape[2]))
    if not image.shape[3] or weights.shape[3] % image.shape[3]:
        raise UnsupportedFormError(f"{weights.shape[3]} filters of {image.shape[3]} channels")
    _convolved(emitter, operator, window, (3, 0, 1, 2), image.shape[3])


def _check_rank(image: Tensor, weights: Tensor) -> None:
    if len(image.shape) != 4 or len(weights.shape) != 4:
        raise UnsupportedFormError(f"an image of {len(image.shape)} dimensions")


def _convolved(
    emitter: Emitter, operator: Operator, window: Window, axes: Sequence[int], groups: int
) -> None:
    """A convolution whose weights have their dimensions in the order ``axes`` of (O, I, H, W)."""
    image, weights = (emitter.tensors[i] for i in operator.inputs[:2])
    result = emitter.tensors[operator.outputs[0]]
    integers = is_quantised(image)
    x = centred(emitter, operator.inputs[0]) if integers else emitter.value(operator.inputs[0])
    w = emitter.transpose(weights_of(emitter, operator, image, weights), axes)
    first = emitter.channels_first(x)
    rows, columns = extents_of(image.shape[1:3], window)
    shape = (image.shape[0], emitter.shape(w)[0], rows, columns)
    made = emitter.op("Conv", first, w, shape=shape, group=groups, **window.attributes())
    sums = with_bias(emitter, operator, emitter.channels_last(made))
    if not integers:
        emitter.result(operator.outputs[0], activated(emitter, sums, _activation(operator)))
        return
    emitter.result(operator.outputs[0], requantised_sums(emitter, operator, sums, (image, weights, result)))


def extents_of(extents: Sequence[int], window: Window) -> list[int]:
    """Rows and columns of what a window makes."""
    made = []
    for axis in (0, 1):
        whole = extents[axis] + window.padding[axis] + window.padding[axis + 2]
        reach = (window.size[axis] - 1) * window.dilation[axis] + 1
        made.append((whole - reach) // window.strides[axis] + 1)
    if min(made) < 1:
        raise UnsupportedFormError("a window that is larger than the image")
    return made


def weights_of(emitter: Emitter, operator: Operator, data: Tensor, weights: Tensor) -> str:
    """The weights: floats, or for a quantised input integers less their zero point."""
    import numpy as np

    name = emitter.value(operator.inputs[1])
    known = emitter.known(name)
    if operator.kind == "CONV_2D" and emitter.tensor(operator, 2) is None:
        emitter.foreign.add(operator.kind)  # LiteRT wants a bias
    if is_quantised(data):
        if known is None or weights.quantisation is None:
            raise UnsupportedFormError(f"weights of {weights.dtype} that are computed, or not quantised")
        _check_weights(operator, data, weights)
        return emitter.const(known.astype(np.int32) - np.int32(weights.quantisation.zero[0]))
    if weights.quantisation is not None and known is not None and known.dtype.kind in "iu":
        emitter.hybrid += 1
        if not _has_hybrid_kernel(operator, weights, single=weights.quantisation.single):
            emitter.foreign.add(operator.kind)
        return emitter.const(dequantised(known, weights))
    return emitter.cast(name, np.float32)


def _has_hybrid_kernel(operator: Operator, weights: Tensor, *, single: bool) -> bool:
    """Whether LiteRT reads such weights beside floats as what they are."""
    if operator.kind == "DEPTHWISE_CONV_2D":
        return weights.dtype == "int8" and not single
    if operator.kind == "CONV_2D":
        return weights.dtype in {"int8", "int4"} or (weights.dtype == "uint8" and single)
    return True


#: Types of weights that LiteRT's kernels of integers read as what they are, by the data's.
_WEIGHTS = {"int8": {"int8", "int4"}, "int16": {"int8", "int4"}, "uint8": {"uint8"}}


def _check_weights(operator: Operator, data: Tensor, weights: Tensor) -> None:
    """Refuses what LiteRT's kernels of integers read as something else than the file says, without a word."""
    assert weights.quantisation is not None
    dense, signed = operator.kind == "FULLY_CONNECTED", data.dtype != "uint8"
    known = _WEIGHTS[data.dtype] | ({"int2"} if dense and signed else set())
    if operator.kind == "DEPTHWISE_CONV_2D" and data.dtype == "int16":
        known = {"int8"}
    if weights.dtype not in known:
        raise UnsupportedFormError(f"weights of {weights.dtype} for data of {data.dtype}")
    if weights.quantisation.zero.any() and not (weights.quantisation.single and (dense or not signed)):
        raise UnsupportedFormError(f"zero points of weights of {weights.dtype}, which LiteRT does not read")
    if not (weights.quantisation.single or signed):
        raise UnsupportedFormError("scales by channel of uint8")


def dequantised(known: NDArray[Any], tensor: Tensor) -> NDArray[Any]:
    """Integers as the floats that they mean: weights of dynamic-range quantisation. From before files had
    int8 there are some of uint8 that are int8, as LiteRT reads them."""
    import numpy as np

    assert tensor.quantisation is not None
    if tensor.dtype == "uint8":
        if tensor.quantisation.zero.any():
            raise UnsupportedFormError("weights of uint8 with a zero point beside floats")
        known = known.view(np.int8)
    along = [-1 if axis == tensor.quantisation.axis else 1 for axis in range(known.ndim)]
    zero, scale = (
        value.reshape(along if value.size > 1 else ())
        for value in (tensor.quantisation.zero, tensor.quantisation.scale)
    )
    return np.asarray((known.astype(np.float32) - zero.astype(np.float32)) * scale, np.float32)


def _activation(operator: Operator) -> int:
    return option(operator, "fusedActivationFunction")


def with_bias(emitter: Emitter, operator: Operator, sums: str, place: int = 2) -> str:
    """Sums and the bias at a place of the operator's inputs, if there is one."""
    bias = emitter.tensor(operator, place)
    if bias is None:
        return sums
    name = emitter.value(operator.inputs[place])
    words = any(emitter.tensors[i].dtype == "int16" for i in operator.inputs if i != LEFT_OUT)
    if bias.dtype == "int64" and words and bias.data is not None and _fits(bias.data):
        name = emitter.cast(name, "int32")
    elif bias.dtype != ("float32" if emitter.dtype(sums).kind == "f" else "int32"):
        raise UnsupportedFormError(f"a bias of {bias.dtype}")
    count = emitter.shape(sums)[-1]
    if math.prod(bias.shape) != count:  # of any shape: some converters write that of the result
        raise UnsupportedFormError(f"a bias of {list(bias.shape)} for {count} sums")
    return emitter.op("Add", sums, emitter.reshape(name, [count]))


def _fits(numbers: NDArray[Any]) -> bool:
    """Whether numbers are those of int32."""
    return bool((numbers.astype("int32") == numbers).all())


def requantised_sums(
    emitter: Emitter, operator: Operator, sums: str, tensors: tuple[Tensor, Tensor, Tensor]
) -> str:
    """The sums of a quantised convolution or product as its result."""
    data, weights, result = tensors
    if result.quantisation is None or not is_quantised(result):
        raise UnsupportedFormError(f"an input of {data.dtype} with a result of {result.dtype}")
    assert data.quantisation is not None and weights.quantisation is not None
    factors = _factors(operator, data, weights, result)
    bound, words = _largest(emitter, operator), data.dtype == "int16"
    if words and bound >= 1 << 31:
        raise UnsupportedFormError("sums of int16 that do not fit into 32 bits")
    narrow = _has_narrow_bias(emitter, operator)
    how = "wide" if words and not narrow else "twice"
    if words and narrow and option(operator, "quantizedBiasType") != _INT32:
        emitter.foreign.add(operator.kind)  # LiteRT reads pairs of them as int64
    if operator.kind == "FULLY_CONNECTED":
        if words and narrow:
            emitter.foreign.add(operator.kind)
        else:
            how = "once"
    return requantised(emitter, sums, factors, result, _activation(operator), bound, how=how)


def _has_narrow_bias(emitter: Emitter, operator: Operator) -> bool:
    """Whether sums of int16 have the type int32 in the kernel, for their bias has; those over channels are
    int64 all the same."""
    bias = emitter.tensor(operator, 3 if operator.kind == "TRANSPOSE_CONV" else 2)
    return operator.kind != "DEPTHWISE_CONV_2D" and bias is not None and bias.dtype == "int32"


def _factors(operator: Operator, data: Tensor, weights: Tensor, result: Tensor) -> list[float]:
    """What sums are multiplied by, in float64; of convolutions of bytes without sign the product of the
    scales is rounded to float32 first (``GetQuantizedConvolutionMultipler``)."""
    import numpy as np

    assert data.quantisation and weights.quantisation and result.quantisation
    if data.dtype == "uint8" and operator.kind != "FULLY_CONNECTED":
        return [multiplier_of_products(data, weights, result)]
    x, y = np.float32(data.quantisation.scale[0]), np.float32(result.quantisation.scale[0])
    return [float(x) * float(w) / float(y) for w in weights.quantisation.scale]


def multiplier_of_products(a: Tensor, b: Tensor, result: Tensor) -> float:
    """``GetQuantizedConvolutionMultipler``: the product of the scales is rounded to float32."""
    import numpy as np

    assert a.quantisation and b.quantisation and result.quantisation
    product = np.float32(a.quantisation.scale[0]) * np.float32(b.quantisation.scale[0])
    return float(product) / float(result.quantisation.scale[0])


def _largest(emitter: Emitter, operator: Operator) -> int:
    """A magnitude that no sum exceeds."""
    import numpy as np

    places = (2, 1) if operator.kind == "TRANSPOSE_CONV" else (0, 1)
    data, weights = (emitter.tensors[operator.inputs[i]] for i in places)
    assert data.quantisation is not None and weights.quantisation is not None and weights.data is not None
    low, high = (bound - int(data.quantisation.zero[0]) for bound in integer_range(data.dtype))
    whole = weights.data.astype(np.int64) - int(weights.quantisation.zero[0])
    filters = whole.shape[3] if operator.kind == "DEPTHWISE_CONV_2D" else whole.shape[0]
    last = operator.kind == "DEPTHWISE_CONV_2D"
    sums = np.abs(whole).reshape(-1, filters).sum(0) if last else np.abs(whole).reshape(filters, -1).sum(1)
    bias = emitter.tensor(operator, 3 if operator.kind == "TRANSPOSE_CONV" else 2)
    added = 0 if bias is None or bias.data is None else int(np.abs(bias.data.astype(np.int64)).max(initial=0))
    return int(sums.max(initial=0)) * max(abs(low), abs(high)) + added


def _fully_connected(emitter: Emitter, operator: Operator) -> None:
    """Rows of the input, which is flattened to as many columns as the weights have, times these."""
    data, weights = (emitter.tensors[i] for i in operator.inputs[:2])
    result = emitter.tensors[operator.outputs[0]]
    if len(weights.shape) != 2 or option(operator, "weightsFormat"):
        raise UnsupportedFormError("weights that are shuffled, or no matrix")
    integers = is_quantised(data)
    x = centred(emitter, operator.inputs[0]) if integers else emitter.value(operator.inputs[0])
    columns = weights.shape[1]
    w = emitter.transpose(weights_of(emitter, operator, data, weights), (1, 0))
    rows = 1
    for extent in data.shape:
        rows *= extent
    if not columns or rows % columns:
        raise UnsupportedFormError(f"{rows} elements in rows of {columns}")
    flat = emitter.reshape(x, [rows // columns, columns])
    sums = emitter.op("MatMul", flat, w, shape=[rows // columns, weights.shape[0]])
    sums = with_bias(emitter, operator, sums)
    if integers:
        made = requantised_sums(emitter, operator, sums, (data, weights, result))
    else:
        made = activated(emitter, sums, _activation(operator))
    shape = [*data.shape[:-1], weights.shape[0]] if option(operator, "keepNumDims") else emitter.shape(made)
    emitter.result(operator.outputs[0], emitter.reshape(made, shape))


CONVERTERS: dict[str, Converter] = {
    "CONV_2D": _conv,
    "DEPTHWISE_CONV_2D": _depthwise,
    "FULLY_CONNECTED": _fully_connected,
}

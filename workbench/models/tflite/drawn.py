"""Small models of one operator whose shapes, scales and options a seed draws."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN", "drawn"]

Random = np.random.Generator
_Draw = Callable[[Random], bytes]

#: Versions of operators of bytes that are not 2.
VERSIONS = {"ELU": 1, "EXPAND_DIMS": 1, "HARD_SWISH": 1, "RELU_N1_TO_1": 1, "RESHAPE": 1}

#: Fused activation functions: none, ReLU, ReLU between -1 and 1, ReLU6.
ACTIVATIONS = (0, 1, 2, 3)


def drawn(kind: str, seed: int) -> bytes:
    """A TFLite file of one operator of :data:`DRAWN`."""
    return DRAWN[kind](np.random.default_rng([seed, *kind.encode()]))


def scale_of(random: Random) -> float:
    """A scale as networks have them."""
    return float(np.float32(2.0 ** random.uniform(-9, -3)))


def zero_of(random: Random, dtype: str = "int8") -> int:
    """A zero point: in the middle, at the ends, or anywhere."""
    info = np.iinfo(dtype)
    middle = (int(info.min) + int(info.max) + 1) // 2
    return int(random.choice([info.min, info.max, middle, *random.integers(info.min, info.max, 3)]))


def quantised(writer: Writer, random: Random, shape: list[int], dtype: str = "int8", **more: Any) -> int:
    """A tensor of bytes."""
    zero = 0 if dtype == "int16" else zero_of(random, dtype)
    return writer.tensor(shape, dtype, scale_of(random), zero, **more)


def numbers(random: Random, shape: list[int], dtype: str = "int8") -> Any:
    """Integers of all of a type, the ends among them."""
    info = np.iinfo(dtype)
    made = random.integers(info.min, info.max, shape, dtype, endpoint=True)
    if made.size:
        made.flat[random.integers(made.size)] = random.choice([info.min, info.max])
    return made


def floats(random: Random, shape: list[int]) -> Any:
    """Numbers around 0."""
    return random.standard_normal(shape).astype(np.float32)


def extents(size: int, window: int, stride: int, dilation: int, padding: int) -> int:
    """Pixels of the result along a side; padding is the schema's number, 0 for SAME."""
    reach = (window - 1) * dilation + 1
    return -(-size // stride) if padding == 0 else (size - reach) // stride + 1


def _convolution(random: Random, *, depthwise: bool, integers: bool) -> bytes:
    writer = Writer()
    rows, columns = (int(n) for n in random.integers(5, 12, 2))
    window, stride = [int(n) for n in random.integers(1, 4, 2)], [int(n) for n in random.integers(1, 3, 2)]
    dilation = [int(n) for n in random.integers(1, 3, 2)] if stride == [1, 1] else [1, 1]
    padding = int(random.integers(2))
    channels = int(random.integers(1, 9)) if depthwise else int(random.integers(1, 19))
    filters = channels * int(random.integers(1, 3)) if depthwise else int(random.integers(1, 37))
    sides = [
        extents(n, w, s, d, padding)
        for n, w, s, d in zip((rows, columns), window, stride, dilation, strict=True)
    ]
    shape = [1, *window, filters] if depthwise else [filters, *window, channels]
    axis = 3 if depthwise else 0
    image, made = [int(random.integers(1, 3)), rows, columns, channels], [*sides, filters]
    made.insert(0, image[0])
    if integers:
        x = quantised(writer, random, image)
        scales = [scale_of(random) for _ in range(filters)] if random.integers(3) else [scale_of(random)]
        w = writer.tensor(shape, "int8", scales, 0, axis, np.maximum(numbers(random, shape), -127))
        y = quantised(writer, random, made)
        bias = random.integers(-(2**15), 2**15, filters, np.int32)
        b = writer.tensor([filters], "int32", [1e-3] * len(scales), data=bias)
    else:
        x, w = writer.tensor(image, "float32"), writer.tensor(shape, "float32", data=floats(random, shape))
        b = writer.tensor([filters], "float32", data=floats(random, [filters]))
        y = writer.tensor(made, "float32")
    options = {
        "padding": padding,
        "strideH": stride[0],
        "strideW": stride[1],
        "dilationHFactor": dilation[0],
        "dilationWFactor": dilation[1],
        "fusedActivationFunction": int(random.choice(ACTIVATIONS)),
    }
    if depthwise:
        options["depthMultiplier"] = filters // channels
        writer.operator("DEPTHWISE_CONV_2D", [x, w, b], [y], 3, "DepthwiseConv2D", **options)
    else:
        writer.operator("CONV_2D", [x, w, b], [y], 3, "Conv2D", **options)
    return writer.finished([x], [y])


def _fully_connected(random: Random, *, integers: bool) -> bytes:
    writer = Writer()
    rows, columns, filters = (int(n) for n in random.integers(1, 40, 3))
    kept = bool(random.integers(2))
    image = [rows, 2, columns] if kept else [rows, columns]
    result = [rows, 2, filters] if kept else [rows, filters]
    if integers:
        x = quantised(writer, random, image)
        scales = [scale_of(random) for _ in range(filters)] if random.integers(2) else [scale_of(random)]
        weights = numbers(random, [filters, columns])
        zero = int(random.integers(-5, 5)) if len(scales) == 1 and not random.integers(3) else 0
        w = writer.tensor([filters, columns], "int8", scales, zero, 0, weights)
        b = writer.tensor(
            [filters],
            "int32",
            [1e-3] * len(scales),
            data=random.integers(-(2**15), 2**15, filters, np.int32),
        )
        y = quantised(writer, random, result)
        # The interpreter wants the bias's scale near that of the products.
        scale = np.asarray(writer.graph.tensors[x].quantization.scale) * np.asarray(scales)
        writer.graph.tensors[b].quantization.scale = [float(n) for n in scale]
    else:
        x = writer.tensor(image, "float32")
        w = writer.tensor([filters, columns], "float32", data=floats(random, [filters, columns]))
        b = writer.tensor([filters], "float32", data=floats(random, [filters]))
        y = writer.tensor(result, "float32")
    writer.operator(
        "FULLY_CONNECTED",
        [x, w, b],
        [y],
        5,
        fusedActivationFunction=int(random.choice(ACTIVATIONS)),
        keepNumDims=kept,
    )
    return writer.finished([x], [y])


def _binary(kind: str) -> _Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = [int(n) for n in random.integers(1, 7, 4)]
        other = [n if random.integers(3) else 1 for n in shape]
        if random.integers(2):
            x, y, z = (quantised(writer, random, one) for one in (shape, other, shape))
        else:
            x, y, z = (writer.tensor(one, "float32") for one in (shape, other, shape))
        pair = [x, y] if random.integers(2) else [y, x]
        writer.operator(kind, pair, [z], 2, fusedActivationFunction=int(random.choice(ACTIVATIONS)))
        return writer.finished([x, y], [z])

    return draw


def _pool(kind: str) -> _Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        rows, columns, channels = (int(n) for n in random.integers(3, 10, 3))
        whole = not random.integers(3)
        window = [rows, columns] if whole else [int(n) for n in random.integers(1, 4, 2)]
        stride, padding = [int(n) for n in random.integers(1, 3, 2)], int(random.integers(2))
        sides = [
            extents(n, w, s, 1, padding) for n, w, s in zip((rows, columns), window, stride, strict=True)
        ]
        if random.integers(2):
            scale, zero = scale_of(random), zero_of(random)
            x = writer.tensor([1, rows, columns, channels], "int8", scale, zero)
            y = writer.tensor([1, *sides, channels], "int8", scale, zero)
        else:
            x = writer.tensor([1, rows, columns, channels], "float32")
            y = writer.tensor([1, *sides, channels], "float32")
        writer.operator(
            kind,
            [x],
            [y],
            2,
            "Pool2D",
            padding=padding,
            strideH=stride[0],
            strideW=stride[1],
            filterHeight=window[0],
            filterWidth=window[1],
            fusedActivationFunction=int(random.choice(ACTIVATIONS)),
        )
        return writer.finished([x], [y])

    return draw


def _softmax(random: Random) -> bytes:
    writer = Writer()
    shape = [int(random.integers(1, 5)), int(random.choice([1, 2, 3, 12, 40, 300, 1001]))]
    beta = float(random.choice([1.0, 0.5, 2.0]))
    if random.integers(3):
        x = quantised(writer, random, shape)
        y = writer.tensor(shape, "int8", 1 / 256, -128)
    else:
        x, y = writer.tensor(shape, "float32"), writer.tensor(shape, "float32")
    writer.operator("SOFTMAX", [x], [y], 2, beta=beta)
    return writer.finished([x], [y])


def _unary(
    kind: str, result: tuple[float, int] | None = None, *, bytes_too: bool = True, **options: Any
) -> _Draw:
    """Of bytes, where there is a kernel for these, with a ``result`` of this scale and zero point or any, and
    of floats. Options that are functions draw their values."""

    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = [int(n) for n in random.integers(1, 9, 3)]
        if bytes_too and random.integers(2):
            x = quantised(writer, random, shape)
            if kind == "RSQRT":  # which the interpreter refuses of negative numbers
                writer.graph.tensors[x].quantization.zeroPoint = [-128]
            y = quantised(writer, random, shape) if result is None else writer.tensor(shape, "int8", *result)
        else:
            x, y = writer.tensor(shape, "float32"), writer.tensor(shape, "float32")
        given = {key: value(random) if callable(value) else value for key, value in options.items()}
        writer.operator(kind, [x], [y], VERSIONS.get(kind, 2 if bytes_too else 1), **given)
        return writer.finished([x], [y])

    return draw


def _shape_of(random: Random, rank: int = 4) -> list[int]:
    return [int(n) for n in random.integers(1, 7, rank)]


def _moved(kind: str, choose: Callable[[Writer, Random, list[int]], Any]) -> _Draw:
    """An operator that moves elements of bytes or floats.

    Args:
        choose: further inputs, the result's shape, and options, of a shape.
    """

    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = _shape_of(random)
        like: tuple[Any, ...] = ("float32",)
        if random.integers(2):
            like = ("int8", scale_of(random), zero_of(random))
        x = writer.tensor(shape, *like)
        more, result, options = choose(writer, random, shape)
        y = writer.tensor(result, *like)
        writer.operator(kind, [x, *more], [y], VERSIONS.get(kind, 2), **options)
        return writer.finished([x], [y])

    return draw


def _numbers(writer: Writer, values: Any) -> int:
    array = np.asarray(values, np.int32)
    return writer.tensor(list(array.shape), "int32", data=array)


def _reshape(writer: Writer, random: Random, shape: list[int]) -> Any:
    result = [shape[0] * shape[1], shape[2] * shape[3]]
    return [_numbers(writer, result)], result, {"newShape": result}


def _expand(writer: Writer, random: Random, shape: list[int]) -> Any:
    axis = int(random.integers(0, 5))
    return [_numbers(writer, axis)], [*shape[:axis], 1, *shape[axis:]], {}


def _transpose(writer: Writer, random: Random, shape: list[int]) -> Any:
    axes = [int(n) for n in random.permutation(4)]
    return [_numbers(writer, axes)], [shape[axis] for axis in axes], {}


def _pad(writer: Writer, random: Random, shape: list[int]) -> Any:
    widths = random.integers(0, 3, (4, 2))
    result = [n + int(sum(width)) for n, width in zip(shape, widths, strict=True)]
    return [_numbers(writer, widths)], result, {}


def _slice(writer: Writer, random: Random, shape: list[int]) -> Any:
    begin = [int(random.integers(n)) for n in shape]
    size = [int(random.integers(1, n - b + 1)) for n, b in zip(shape, begin, strict=True)]
    given = [
        -1 if n == b + s and random.integers(2) else s for n, b, s in zip(shape, begin, size, strict=True)
    ]
    return [_numbers(writer, begin), _numbers(writer, given)], size, {}


def _strided(writer: Writer, random: Random, shape: list[int]) -> Any:
    steps = [int(random.choice([1, 1, 2, -1, -2])) for _ in shape]
    masks = {key: int(random.integers(16)) for key in ("beginMask", "endMask")}
    shrunk = int(random.integers(16)) if random.integers(2) else 0
    begin, end, result = [], [], []
    for axis, (extent, step) in enumerate(zip(shape, steps, strict=True)):
        first, last = sorted(int(n) for n in random.integers(0, extent, 2))
        pair = (first, last + 1) if step > 0 else (last, first - 1 if first else -extent - 1)
        if shrunk >> axis & 1:
            steps[axis], pair = 1, (first, first + 1)
        whole = list(range(extent))
        start = None if masks["beginMask"] >> axis & 1 else pair[0]
        stop = None if masks["endMask"] >> axis & 1 else pair[1]
        if not shrunk >> axis & 1:
            result.append(len(whole[start : stop : steps[axis]]))
        begin.append(pair[0])
        end.append(pair[1])
    options = {**masks, "shrinkAxisMask": shrunk}
    return [_numbers(writer, values) for values in (begin, end, steps)], result, options


def _concatenation(random: Random) -> bytes:
    writer = Writer()
    shape, axis = _shape_of(random), int(random.integers(4))
    like: tuple[Any, ...] = ("float32",)
    if random.integers(2):
        like = ("int8", scale_of(random), zero_of(random))
    parts = [[*shape[:axis], int(random.integers(1, 5)), *shape[axis + 1 :]] for _ in range(3)]
    given = [writer.tensor(part, *like) for part in parts]
    result = [*shape[:axis], sum(part[axis] for part in parts), *shape[axis + 1 :]]
    y = writer.tensor(result, *like)
    writer.operator("CONCATENATION", given, [y], 2, axis=axis - 4 if random.integers(2) else axis)
    return writer.finished(given, [y])


def _padded_with_value(random: Random) -> bytes:
    writer = Writer()
    shape = _shape_of(random)
    x = writer.tensor(shape, "float32")
    (widths,), result, _ = _pad(writer, random, shape)
    value = writer.tensor([1], "float32", data=floats(random, [1]))
    y = writer.tensor(result, "float32")
    writer.operator("PADV2", [x, widths, value], [y], 2, "PadV2")
    return writer.finished([x], [y])


def _floats_of_two(kind: str) -> _Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = _shape_of(random)
        x, y, z = (writer.tensor(shape, "float32") for _ in range(3))
        writer.operator(kind, [x, y], [z], 1, fusedActivationFunction=int(random.choice(ACTIVATIONS)))
        return writer.finished([x, y], [z])

    return draw


def _squeeze(random: Random) -> bytes:
    writer = Writer()
    x = writer.tensor([1, 3, 1, 5], "int8", 0.5, 3)
    both = bool(random.integers(2))
    y = writer.tensor([3, 5] if both else [3, 1, 5], "int8", 0.5, 3)
    writer.operator("SQUEEZE", [x], [y], 2, squeezeDims=[0, 2] if both else [0])
    return writer.finished([x], [y])


def _quantize(random: Random) -> bytes:
    writer = Writer()
    shape = [int(n) for n in random.integers(1, 9, 3)]
    source = str(random.choice(["float32", "int8", "uint8"]))
    x = writer.tensor(shape, source) if source == "float32" else quantised(writer, random, shape, source)
    y = quantised(writer, random, shape, str(random.choice(["int8", "uint8"])))
    writer.operator("QUANTIZE", [x], [y], 2)
    return writer.finished([x], [y])


def _dequantize(random: Random) -> bytes:
    writer = Writer()
    shape = [int(n) for n in random.integers(1, 9, 3)]
    x = quantised(writer, random, shape, str(random.choice(["int8", "uint8"])))
    y = writer.tensor(shape, "float32")
    writer.operator("DEQUANTIZE", [x], [y], 2)
    return writer.finished([x], [y])


DRAWN: dict[str, _Draw] = {
    "ABS": _unary("ABS"),
    "ADD": _binary("ADD"),
    "AVERAGE_POOL_2D": _pool("AVERAGE_POOL_2D"),
    "CEIL": _unary("CEIL", bytes_too=False),
    "CONCATENATION": _concatenation,
    "CONV_2D": lambda random: _convolution(random, depthwise=False, integers=bool(random.integers(3))),
    "COS": _unary("COS", bytes_too=False),
    "DEPTHWISE_CONV_2D": lambda random: _convolution(
        random, depthwise=True, integers=bool(random.integers(3))
    ),
    "DEQUANTIZE": _dequantize,
    "DIV": _floats_of_two("DIV"),
    "ELU": _unary("ELU"),
    "EXP": _unary("EXP"),
    "EXPAND_DIMS": _moved("EXPAND_DIMS", _expand),
    "FLOOR": _unary("FLOOR", bytes_too=False),
    "FULLY_CONNECTED": lambda random: _fully_connected(random, integers=bool(random.integers(3))),
    "GELU": _unary("GELU", approximate=lambda random: bool(random.integers(2))),
    "HARD_SWISH": _unary("HARD_SWISH"),
    "LEAKY_RELU": _unary("LEAKY_RELU", alpha=lambda random: float(random.uniform(0.01, 0.5))),
    "LOG": _unary("LOG"),
    "LOGISTIC": _unary("LOGISTIC", (1 / 256, -128)),
    "MAX_POOL_2D": _pool("MAX_POOL_2D"),
    "MUL": _binary("MUL"),
    "NEG": _unary("NEG", bytes_too=False),
    "PAD": _moved("PAD", _pad),
    "PADV2": _padded_with_value,
    "QUANTIZE": _quantize,
    "RELU": _unary("RELU"),
    "RELU6": _unary("RELU6"),
    "RELU_N1_TO_1": _unary("RELU_N1_TO_1"),
    "RESHAPE": _moved("RESHAPE", _reshape),
    "ROUND": _unary("ROUND", bytes_too=False),
    "RSQRT": _unary("RSQRT"),
    "SIN": _unary("SIN", bytes_too=False),
    "SLICE": _moved("SLICE", _slice),
    "SOFTMAX": _softmax,
    "SQRT": _unary("SQRT", bytes_too=False),
    "SQUARE": _unary("SQUARE", bytes_too=False),
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _moved("STRIDED_SLICE", _strided),
    "SUB": _binary("SUB"),
    "TANH": _unary("TANH", (1 / 128, 0)),
    "TRANSPOSE": _moved("TRANSPOSE", _transpose),
}

"""Convolutions, fully connected layers, pooling, softmax."""

from __future__ import annotations

import numpy as np

from workbench.models.tflite.operators.values import (
    ACTIVATIONS,
    Draw,
    Random,
    extents,
    floats,
    numbers,
    quantised,
    scale_of,
    zero_of,
)
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]


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
        dtype = "int8" if random.integers(3) else "int16"
        x = quantised(writer, random, image, dtype)
        scales = [scale_of(random) for _ in range(filters)] if random.integers(3) else [scale_of(random)]
        w = writer.tensor(shape, "int8", scales, 0, axis, np.maximum(numbers(random, shape), -127))
        y = quantised(writer, random, made, dtype)
        wide = "int32" if dtype == "int8" else "int64"
        bias = random.integers(-(2**15), 2**15, filters).astype(wide)
        b = writer.tensor([filters], wide, [1e-3] * len(scales), data=bias)
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
    wide = "int32"
    if integers:
        dtype = "int8" if random.integers(3) else "int16"
        wide = "int32" if dtype == "int8" else "int64"
        x = quantised(writer, random, image, dtype)
        scales = [scale_of(random) for _ in range(filters)] if random.integers(2) else [scale_of(random)]
        weights = numbers(random, [filters, columns])
        free = dtype == "int8" and len(scales) == 1 and not random.integers(3)
        zero = int(random.integers(-5, 5)) if free else 0
        w = writer.tensor([filters, columns], "int8", scales, zero, 0, weights)
        bias = random.integers(-(2**15), 2**15, filters).astype(wide)
        b = writer.tensor([filters], wide, [1e-3] * len(scales), data=bias)
        y = quantised(writer, random, result, dtype)
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
        quantizedBiasType=4 if wide == "int64" else 0,
    )
    return writer.finished([x], [y])


def _pool(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        rows, columns, channels = (int(n) for n in random.integers(3, 10, 3))
        whole = not random.integers(3)
        window = [rows, columns] if whole else [int(n) for n in random.integers(1, 4, 2)]
        stride, padding = [int(n) for n in random.integers(1, 3, 2)], int(random.integers(2))
        sides = [
            extents(n, w, s, 1, padding) for n, w, s in zip((rows, columns), window, stride, strict=True)
        ]
        if kind != "L2_POOL_2D" and random.integers(2):
            dtype = str(random.choice(["int8", "int8", "uint8", "int16"]))
            like = dtype, scale_of(random), 0 if dtype == "int16" else zero_of(random, dtype)
            x = writer.tensor([1, rows, columns, channels], *like)
            y = writer.tensor([1, *sides, channels], *like)
        else:
            x = writer.tensor([1, rows, columns, channels], "float32")
            y = writer.tensor([1, *sides, channels], "float32")
        writer.operator(
            kind,
            [x],
            [y],
            1 if kind == "L2_POOL_2D" else 3,
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
        if shape[1] > 512:  # nearly equal ones end the interpreter: its sum has more bits than it shifts by
            writer.graph.tensors[x].quantization.scale = [0.0625]
        y = writer.tensor(shape, "int8", 1 / 256, -128)
    else:
        x, y = writer.tensor(shape, "float32"), writer.tensor(shape, "float32")
    writer.operator("SOFTMAX", [x], [y], 2, beta=beta)
    return writer.finished([x], [y])


DRAWN: dict[str, Draw] = {
    "AVERAGE_POOL_2D": _pool("AVERAGE_POOL_2D"),
    "CONV_2D": lambda random: _convolution(random, depthwise=False, integers=bool(random.integers(3))),
    "DEPTHWISE_CONV_2D": lambda random: _convolution(
        random, depthwise=True, integers=bool(random.integers(3))
    ),
    "FULLY_CONNECTED": lambda random: _fully_connected(random, integers=bool(random.integers(3))),
    "L2_POOL_2D": _pool("L2_POOL_2D"),
    "MAX_POOL_2D": _pool("MAX_POOL_2D"),
    "SOFTMAX": _softmax,
}

"""Products of matrices, transposed convolutions, convolutions of volumes, and norms."""

from __future__ import annotations

import numpy as np

from workbench.models.tflite.operators.values import (
    ACTIVATIONS,
    Draw,
    Random,
    extents,
    floats,
    integers,
    numbers,
    quantised,
    scale_of,
    shape_of,
)
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]


def _batch_matmul(random: Random) -> bytes:
    writer = Writer()
    batch = shape_of(random, int(random.integers(3)))
    rows, inner, columns = (int(n) for n in random.integers(1, 20, 3))
    flags = {name: bool(random.integers(2)) for name in ("adjX", "adjY")}
    left = [*batch, *((inner, rows) if flags["adjX"] else (rows, inner))]
    right = [*batch, *((columns, inner) if flags["adjY"] else (inner, columns))]
    if batch and random.integers(2):
        right[0] = 1
    whole = [*batch, rows, columns]
    if random.integers(2):
        x, y, z = (quantised(writer, random, shape) for shape in (left, right, whole))
    else:
        x, y, z = (writer.tensor(shape, "float32") for shape in (left, right, whole))
    writer.operator("BATCH_MATMUL", [x, y], [z], 2, "BatchMatMul", **flags)
    return writer.finished([x, y], [z])


def _transposed(random: Random) -> bytes:
    writer = Writer()
    rows, columns, channels, filters = (int(n) for n in random.integers(1, 7, 4))
    window, strides = [int(n) for n in random.integers(1, 5, 2)], [int(n) for n in random.integers(1, 4, 2)]
    padding = int(random.integers(2))
    if padding == 0:
        sides = [n * s for n, s in zip((rows, columns), strides, strict=True)]
    else:
        sides = [(n - 1) * s + w for n, s, w in zip((rows, columns), strides, window, strict=True)]
    image, made = [int(random.integers(1, 3)), rows, columns, channels], [1, *sides, filters]
    made[0] = image[0]
    shape = [filters, *window, channels]
    if random.integers(2):
        x, y = quantised(writer, random, image), quantised(writer, random, made)
        scales = [scale_of(random) for _ in range(filters)] if random.integers(3) else [scale_of(random)]
        w = writer.tensor(shape, "int8", scales, 0, 0, np.maximum(numbers(random, shape), -127))
        bias = random.integers(-(2**15), 2**15, filters, np.int32)
        b = writer.tensor([filters], "int32", [1e-3] * len(scales), data=bias)
    else:
        x, y = writer.tensor(image, "float32"), writer.tensor(made, "float32")
        w = writer.tensor(shape, "float32", data=floats(random, shape))
        b = writer.tensor([filters], "float32", data=floats(random, [filters]))
    operands = [integers(writer, made), w, x, *([b] if random.integers(2) else [])]
    options = {"padding": padding, "strideH": strides[0], "strideW": strides[1]}
    options["fusedActivationFunction"] = int(random.choice(ACTIVATIONS))
    writer.operator("TRANSPOSE_CONV", operands, [y], 4 if len(operands) > 3 else 3, **options)
    return writer.finished([x], [y])


def _volume(random: Random) -> bytes:
    writer = Writer()
    sides, window, strides = (random.integers(low, high, 3) for low, high in ((3, 8), (1, 4), (1, 3)))
    channels, filters, padding = (int(n) for n in (*random.integers(1, 6, 2), random.integers(2)))
    made = [
        extents(int(n), int(w), int(s), 1, padding) for n, w, s in zip(sides, window, strides, strict=True)
    ]
    shape = [*(int(n) for n in window), channels, filters]
    x = writer.tensor([1, *(int(n) for n in sides), channels], "float32")
    w = writer.tensor(shape, "float32", data=floats(random, shape))
    b = writer.tensor([filters], "float32", data=floats(random, [filters]))
    y = writer.tensor([1, *made, filters], "float32")
    options = {f"stride{side}": int(n) for side, n in zip("DHW", strides, strict=True)}
    options["fusedActivationFunction"] = int(random.choice(ACTIVATIONS))
    writer.operator("CONV_3D", [x, w, b], [y], 1, "Conv3D", padding=padding, **options)
    return writer.finished([x], [y])


def _norm(kind: str, table: str = "") -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = shape_of(random, 4)
        x, y = writer.tensor(shape, "float32"), writer.tensor(shape, "float32")
        writer.operator(kind, [x], [y], 1, table)
        return writer.finished([x], [y])

    return draw


def _local_response(random: Random) -> bytes:
    writer = Writer()
    shape = [1, *shape_of(random, 2), int(random.integers(1, 12))]
    x, y = writer.tensor(shape, "float32"), writer.tensor(shape, "float32")
    options = {"alpha": 0.3, "beta": 0.75, "bias": 1.5, "radius": int(random.integers(1, 4))}
    writer.operator("LOCAL_RESPONSE_NORMALIZATION", [x], [y], 1, **options)
    return writer.finished([x], [y])


DRAWN: dict[str, Draw] = {
    "BATCH_MATMUL": _batch_matmul,
    "CONV_3D": _volume,
    "L2_NORMALIZATION": _norm("L2_NORMALIZATION", "L2Norm"),
    "LOCAL_RESPONSE_NORMALIZATION": _local_response,
    "LOG_SOFTMAX": _norm("LOG_SOFTMAX"),
    "TRANSPOSE_CONV": _transposed,
}

"""Functions of one number or two, and between floats and integers."""

from __future__ import annotations

from typing import Any

from workbench.models.tflite.operators.values import (
    ACTIVATIONS,
    VERSIONS,
    Draw,
    Random,
    floats,
    numbers,
    quantised,
    shape_of,
)
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]


#: Functions that have kernels of int16.
_WORDS = ("LEAKY_RELU", "LOGISTIC", "RELU", "RELU6", "TANH")


def _binary(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = [int(n) for n in random.integers(1, 7, 4)]
        other = [n if random.integers(3) else 1 for n in shape]
        if random.integers(2):
            dtype = str(random.choice(["int8", "int8", "uint8", "int16"]))
            x, y, z = (quantised(writer, random, one, dtype) for one in (shape, other, shape))
        else:
            x, y, z = (writer.tensor(one, "float32") for one in (shape, other, shape))
        pair = [x, y] if random.integers(2) else [y, x]
        version = 5 if kind in {"MUL", "SUB"} else 3
        writer.operator(kind, pair, [z], version, fusedActivationFunction=int(random.choice(ACTIVATIONS)))
        return writer.finished([x, y], [z])

    return draw


def _unary(
    kind: str, result: tuple[float, int] | None = None, *, bytes_too: bool = True, **options: Any
) -> Draw:
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
        elif kind in _WORDS and random.integers(2):
            x, y = (quantised(writer, random, shape, "int16") for _ in range(2))
            if result is not None:
                writer.graph.tensors[y].quantization.scale = [2.0**-15]
        else:
            x, y = writer.tensor(shape, "float32"), writer.tensor(shape, "float32")
        given = {key: value(random) if callable(value) else value for key, value in options.items()}
        writer.operator(
            kind, [x], [y], VERSIONS.get(kind, 3 if kind in _WORDS[1:] else 2 if bytes_too else 1), **given
        )
        return writer.finished([x], [y])

    return draw


def _floats_of_two(kind: str) -> Draw:
    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = shape_of(random)
        x, y, z = (writer.tensor(shape, "float32") for _ in range(3))
        writer.operator(kind, [x, y], [z], 1, fusedActivationFunction=int(random.choice(ACTIVATIONS)))
        return writer.finished([x, y], [z])

    return draw


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


def _plain_of_two(kind: str, *dtypes: str) -> Draw:
    """Of floats and integers that are numbers; by constants that are not 0."""

    def draw(random: Random) -> bytes:
        writer = Writer()
        shape, dtype = shape_of(random), str(random.choice(dtypes))
        other = [n if random.integers(3) else 1 for n in shape]
        low = 0 if kind == "POW" else 1
        values = random.integers(low, 4, other) * (1 if kind == "POW" else random.choice([-1, 1], other))
        x, y, z = (
            writer.tensor(one, dtype, data=data)
            for one, data in ((shape, None), (other, values.astype(dtype)), (shape, None))
        )
        writer.operator(kind, [x, y], [z], 1)
        return writer.finished([x], [z])

    return draw


def _add_n(random: Random) -> bytes:
    writer = Writer()
    shape, dtype = shape_of(random), str(random.choice(["float32", "int32"]))
    given = [writer.tensor(shape, dtype) for _ in range(int(random.integers(2, 5)))]
    y = writer.tensor(shape, dtype)
    writer.operator("ADD_N", given, [y], 1, "AddN")
    return writer.finished(given, [y])


def _prelu(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random)
    by = [1, 1, shape[3]] if random.integers(2) else [1, 1, 1]
    dtype = str(random.choice(["float32", "int8", "uint8"]))
    if dtype == "float32":
        x, y = writer.tensor(shape, dtype), writer.tensor(shape, dtype)
        alpha = writer.tensor(by, dtype, data=floats(random, by))
    else:
        x, y = (quantised(writer, random, shape, dtype) for _ in range(2))
        alpha = quantised(writer, random, by, dtype, data=numbers(random, by, dtype))
    writer.operator("PRELU", [x, alpha], [y], 1)
    return writer.finished([x], [y])


def _squared_difference(random: Random) -> bytes:
    writer = Writer()
    shape, dtype = shape_of(random), str(random.choice(["float32", "int32", "int8"]))
    other = [n if random.integers(3) else 1 for n in shape]
    if dtype == "int8":
        x, y, z = (quantised(writer, random, one) for one in (shape, other, shape))
    else:
        x, y, z = (writer.tensor(one, dtype) for one in (shape, other, shape))
    writer.operator("SQUARED_DIFFERENCE", [x, y], [z], 2)
    return writer.finished([x, y], [z])


def _cast(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random)
    source, result = random.choice(["float32", "int8", "uint8", "int16", "int32", "int64", "bool"], 2)
    x, y = writer.tensor(shape, str(source)), writer.tensor(shape, str(result))
    writer.operator("CAST", [x], [y], 1)
    return writer.finished([x], [y])


DRAWN: dict[str, Draw] = {
    "ABS": _unary("ABS"),
    "ADD": _binary("ADD"),
    "ADD_N": _add_n,
    "CAST": _cast,
    "FLOOR_DIV": _plain_of_two("FLOOR_DIV", "float32", "int32"),
    "FLOOR_MOD": _plain_of_two("FLOOR_MOD", "float32", "int32", "int64"),
    "POW": _plain_of_two("POW", "float32", "int32"),
    "PRELU": _prelu,
    "SIGN": _unary("SIGN", bytes_too=False),
    "SQUARED_DIFFERENCE": _squared_difference,
    "CEIL": _unary("CEIL", bytes_too=False),
    "COS": _unary("COS", bytes_too=False),
    "DEQUANTIZE": _dequantize,
    "DIV": _floats_of_two("DIV"),
    "ELU": _unary("ELU"),
    "EXP": _unary("EXP"),
    "FLOOR": _unary("FLOOR", bytes_too=False),
    "GELU": _unary("GELU", approximate=lambda random: bool(random.integers(2))),
    "HARD_SWISH": _unary("HARD_SWISH"),
    "LEAKY_RELU": _unary("LEAKY_RELU", alpha=lambda random: float(random.uniform(0.01, 0.5))),
    "LOG": _unary("LOG"),
    "LOGISTIC": _unary("LOGISTIC", (1 / 256, -128)),
    "MUL": _binary("MUL"),
    "NEG": _unary("NEG", bytes_too=False),
    "QUANTIZE": _quantize,
    "RELU": _unary("RELU"),
    "RELU6": _unary("RELU6"),
    "RELU_0_TO_1": _unary("RELU_0_TO_1"),
    "RELU_N1_TO_1": _unary("RELU_N1_TO_1"),
    "ROUND": _unary("ROUND", bytes_too=False),
    "RSQRT": _unary("RSQRT"),
    "SIN": _unary("SIN", bytes_too=False),
    "SQRT": _unary("SQRT", bytes_too=False),
    "SQUARE": _unary("SQUARE", bytes_too=False),
    "SUB": _binary("SUB"),
    "TANH": _unary("TANH", (1 / 128, 0)),
}

"""What models of one operator are drawn with: shapes, scales, numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from workbench.models.tflite.writer import Writer

__all__ = [
    "ACTIVATIONS",
    "VERSIONS",
    "Draw",
    "Random",
    "extents",
    "floats",
    "integers",
    "like",
    "numbers",
    "quantised",
    "scale_of",
    "shape_of",
    "zero_of",
]

Random = np.random.Generator
#: Makes a TFLite file.
Draw = Callable[[Random], bytes]

#: Versions of operators of bytes that are not 2.
VERSIONS = {"ELU": 1, "EXPAND_DIMS": 1, "HARD_SWISH": 1, "RELU_0_TO_1": 1, "RELU_N1_TO_1": 1, "RESHAPE": 1}

#: Fused activation functions: none, ReLU, ReLU between -1 and 1, ReLU6.
ACTIVATIONS = (0, 1, 2, 3)


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


def shape_of(random: Random, rank: int = 4) -> list[int]:
    """Sizes of up to 6."""
    return [int(n) for n in random.integers(1, 7, rank)]


def integers(writer: Writer, values: Any) -> int:
    """A constant of int32."""
    array = np.asarray(values, np.int32)
    return writer.tensor(list(array.shape), "int32", data=array)


def like(random: Random, *dtypes: str) -> tuple[Any, ...]:
    """What describes a tensor of one of these types behind its shape: its type, scale and zero point."""
    dtype = str(random.choice(dtypes))
    if dtype in {"int8", "uint8"}:
        return dtype, scale_of(random), zero_of(random, dtype)
    return (dtype,)

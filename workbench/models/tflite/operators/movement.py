"""Operators that move elements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from workbench.models.tflite.operators.values import (
    VERSIONS,
    Draw,
    Random,
    floats,
    integers,
    scale_of,
    shape_of,
    zero_of,
)
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]


def _moved(kind: str, choose: Callable[[Writer, Random, list[int]], Any]) -> Draw:
    """An operator that moves elements of bytes or floats.

    Args:
        choose: further inputs, the result's shape, and options, of a shape.
    """

    def draw(random: Random) -> bytes:
        writer = Writer()
        shape = shape_of(random)
        like: tuple[Any, ...] = ("float32",)
        if random.integers(2):
            dtype = str(random.choice(["int8", "uint8"]))
            like = (dtype, scale_of(random), zero_of(random, dtype))
        x = writer.tensor(shape, *like)
        more, result, options = choose(writer, random, shape)
        y = writer.tensor(result, *like)
        writer.operator(kind, [x, *more], [y], VERSIONS.get(kind, 2), **options)
        return writer.finished([x], [y])

    return draw


def _reshape(writer: Writer, random: Random, shape: list[int]) -> Any:
    result = [shape[0] * shape[1], shape[2] * shape[3]]
    given = [-1 if random.integers(2) else result[0], result[1]]
    return [integers(writer, given)], result, {"newShape": given}


def _expand(writer: Writer, random: Random, shape: list[int]) -> Any:
    axis = int(random.integers(0, 5))
    return [integers(writer, axis)], [*shape[:axis], 1, *shape[axis:]], {}


def _transpose(writer: Writer, random: Random, shape: list[int]) -> Any:
    axes = [int(n) for n in random.permutation(4)]
    return [integers(writer, axes)], [shape[axis] for axis in axes], {}


def _pad(writer: Writer, random: Random, shape: list[int]) -> Any:
    widths = random.integers(0, 3, (4, 2))
    result = [n + int(sum(width)) for n, width in zip(shape, widths, strict=True)]
    return [integers(writer, widths)], result, {}


def _slice(writer: Writer, random: Random, shape: list[int]) -> Any:
    begin = [int(random.integers(n)) for n in shape]
    size = [int(random.integers(1, n - b + 1)) for n, b in zip(shape, begin, strict=True)]
    given = [
        -1 if n == b + s and random.integers(2) else s for n, b, s in zip(shape, begin, size, strict=True)
    ]
    return [integers(writer, begin), integers(writer, given)], size, {}


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
    if not random.integers(3):
        begin, end, steps, result, options = _with_ellipsis(random, shape)
    return [integers(writer, values) for values in (begin, end, steps)], result, options


def _with_ellipsis(random: Random, shape: list[int]) -> Any:
    """A specification of a slice, all the dimensions behind it, a new one, and one element of the last."""
    first = int(random.integers(shape[0]))
    new = int(random.integers(2))
    begin, end, steps = [first, 0, *[0] * new, shape[-1] - 1], [shape[0], 0, *[0] * new, 0], [1] * (3 + new)
    options = {"ellipsisMask": 2, "newAxisMask": 4 * new, "shrinkAxisMask": 4 << new}
    return begin, end, steps, [shape[0] - first, *shape[1:-1], *[1] * new], options


def _concatenation(random: Random) -> bytes:
    writer = Writer()
    shape, axis = shape_of(random), int(random.integers(4))
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
    shape = shape_of(random)
    x = writer.tensor(shape, "float32")
    (widths,), result, _ = _pad(writer, random, shape)
    value = writer.tensor([1], "float32", data=floats(random, [1]))
    y = writer.tensor(result, "float32")
    writer.operator("PADV2", [x, widths, value], [y], 2, "PadV2")
    return writer.finished([x], [y])


def _squeeze(random: Random) -> bytes:
    writer = Writer()
    x = writer.tensor([1, 3, 1, 5], "int8", 0.5, 3)
    both = bool(random.integers(2))
    y = writer.tensor([3, 5] if both else [3, 1, 5], "int8", 0.5, 3)
    writer.operator("SQUEEZE", [x], [y], 2, squeezeDims=[0, 2] if both else [0])
    return writer.finished([x], [y])


DRAWN: dict[str, Draw] = {
    "CONCATENATION": _concatenation,
    "EXPAND_DIMS": _moved("EXPAND_DIMS", _expand),
    "PAD": _moved("PAD", _pad),
    "PADV2": _padded_with_value,
    "RESHAPE": _moved("RESHAPE", _reshape),
    "SLICE": _moved("SLICE", _slice),
    "SQUEEZE": _squeeze,
    "STRIDED_SLICE": _moved("STRIDED_SLICE", _strided),
    "TRANSPOSE": _moved("TRANSPOSE", _transpose),
}

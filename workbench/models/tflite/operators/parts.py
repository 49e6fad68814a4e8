"""Tensors of parts, and parts of tensors; tensors that are repeated, or known before anything runs."""

from __future__ import annotations

import numpy as np

from workbench.models.tflite.operators.values import (
    Draw,
    Random,
    floats,
    integers,
    like,
    scale_of,
    shape_of,
)
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]

_MOVED = ("float32", "int8", "uint8", "int32", "int64")


def _split(random: Random) -> bytes:
    writer = Writer()
    shape, count = shape_of(random, int(random.integers(1, 5))), int(random.integers(1, 5))
    axis, given = int(random.integers(len(shape))), like(random, *_MOVED)
    part = list(shape)
    shape[axis] *= count
    x = writer.tensor(shape, *given)
    made = [writer.tensor(part, *given) for _ in range(count)]
    where = integers(writer, axis - len(shape) if random.integers(2) else axis)
    writer.operator("SPLIT", [where, x], made, 4, numSplits=count)
    return writer.finished([x], made)


def _split_v(random: Random) -> bytes:
    writer = Writer()
    shape, count = shape_of(random, int(random.integers(1, 5))), int(random.integers(1, 5))
    axis, given = int(random.integers(len(shape))), like(random, *_MOVED)
    sizes = [int(n) for n in random.integers(1, 5, count)]
    shape[axis] = sum(sizes)
    x = writer.tensor(shape, *given)
    made = [writer.tensor([*shape[:axis], n, *shape[axis + 1 :]], *given) for n in sizes]
    if random.integers(2):
        sizes[int(random.integers(count))] = -1
    writer.operator("SPLIT_V", [x, integers(writer, sizes), integers(writer, axis)], made, 2, numSplits=count)
    return writer.finished([x], made)


def _pack(random: Random) -> bytes:
    writer = Writer()
    shape, count = shape_of(random, int(random.integers(4))), int(random.integers(1, 5))
    axis, given = int(random.integers(-len(shape) - 1, len(shape) + 1)), like(random, *_MOVED)
    parts = [writer.tensor(shape, *given) for _ in range(count)]
    made = list(shape)
    made.insert(axis % (len(shape) + 1), count)
    y = writer.tensor(made, *given)
    writer.operator("PACK", parts, [y], 3, valuesCount=count, axis=axis)
    return writer.finished(parts, [y])


def _unpack(random: Random) -> bytes:
    writer = Writer()
    shape, given = shape_of(random, int(random.integers(1, 5))), like(random, *_MOVED[:4])
    axis = int(random.integers(-len(shape), len(shape)))
    x = writer.tensor(shape, *given)
    part = list(shape)
    count = part.pop(axis)
    made = [writer.tensor(part, *given) for _ in range(count)]
    writer.operator("UNPACK", [x], made, 3, num=count, axis=axis)
    return writer.finished([x], made)


def _tile(random: Random) -> bytes:
    writer = Writer()
    shape, given = shape_of(random, int(random.integers(1, 5))), like(random, *_MOVED[:1], "int32", "int64")
    repeats = [int(n) for n in random.integers(1, 4, len(shape))]
    x = writer.tensor(shape, *given)
    y = writer.tensor([n * by for n, by in zip(shape, repeats, strict=True)], *given)
    writer.operator("TILE", [x, integers(writer, repeats)], [y], 1)
    return writer.finished([x], [y])


def _broadcast_to(random: Random) -> bytes:
    writer = Writer()
    made, given = shape_of(random, int(random.integers(1, 6))), like(random, *_MOVED)
    shape = [n if random.integers(2) else 1 for n in made][int(random.integers(len(made))) :]
    x, y = writer.tensor(shape, *given), writer.tensor(made, *given)
    writer.operator("BROADCAST_TO", [x, integers(writer, made)], [y], 3)
    return writer.finished([x], [y])


def _fill(random: Random) -> bytes:
    writer = Writer()
    made, given = shape_of(random, int(random.integers(1, 5))), like(random, "float32", "int32", "int8")
    x, y = writer.tensor([], *given), writer.tensor(made, *given)
    writer.operator("FILL", [integers(writer, made), x], [y], 3)
    return writer.finished([x], [y])


def _added(writer: Writer, made: int, dtype: str, shape: list[int]) -> bytes:
    """A model that adds an input to what is known before it runs."""
    x, y = writer.tensor(shape, dtype), writer.tensor(shape, dtype)
    writer.operator("ADD", [x, made], [y], 1)
    return writer.finished([x], [y])


def _zeros_like(random: Random) -> bytes:
    writer = Writer()
    shape, dtype = shape_of(random, 3), str(random.choice(["float32", "int32"]))
    x, y, z = (writer.tensor(shape, dtype) for _ in range(3))
    writer.operator("ZEROS_LIKE", [x], [y], 1)
    writer.operator("SUB", [y, x], [z], 1)
    return writer.finished([x], [z])


def _shape(random: Random) -> bytes:
    """A shape, whose parts a reshape takes."""
    writer = Writer()
    shape = shape_of(random, 4)
    x, y = writer.tensor(shape, "float32"), writer.tensor(shape, "float32")
    size, last, whole = writer.tensor([4], "int32"), writer.tensor([2], "int32"), writer.tensor([3], "int32")
    writer.operator("SHAPE", [x], [size], 1, outType=2)
    ends = [integers(writer, value) for value in ([2], [4], [1])]
    writer.operator("STRIDED_SLICE", [size, *ends], [last], 1)
    writer.operator("CONCATENATION", [integers(writer, [-1]), last], [whole], 1, axis=0)
    made = writer.tensor([shape[0] * shape[1], *shape[2:]], "float32")
    writer.operator("ABS", [x], [y], 1)
    writer.operator("RESHAPE", [y, whole], [made], 1)
    return writer.finished([x], [made])


def _rank(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(5)))
    x, rank, y = writer.tensor(shape, "int32"), writer.tensor([], "int32"), writer.tensor(shape, "int32")
    writer.operator("RANK", [x], [rank], 1)
    writer.operator("ADD", [x, rank], [y], 1)
    return writer.finished([x], [y])


def _range(random: Random) -> bytes:
    writer = Writer()
    dtype = str(random.choice(["float32", "int32"]))
    first, step = int(random.integers(-9, 9)), int(random.choice([-3, -1, 1, 2]))
    count = int(random.integers(1, 12))
    limit = first + step * count - (int(np.sign(step)) if abs(step) > 1 else 0)
    given = [writer.tensor([], dtype, data=np.asarray(n, dtype)) for n in (first, limit, step)]
    made = writer.tensor([count], dtype)
    writer.operator("RANGE", given, [made], 1)
    return _added(writer, made, dtype, [count])


def _densify(random: Random) -> bytes:
    """Rows of which some are stored, each dense."""
    writer = Writer()
    rows, columns = (int(n) for n in random.integers(1, 9, 2))
    kept = sorted(int(n) for n in random.choice(rows, int(random.integers(1, rows + 1)), replace=False))
    dtype = str(random.choice(["float32", "int8"]))
    given: tuple[object, ...] = ("int8", scale_of(random), 0) if dtype == "int8" else ("float32",)
    values = floats(random, [len(kept), columns])
    if dtype == "int8":
        values = np.clip(values * 40, -127, 127).astype(np.int8)
    sparse = writer.tensor([rows, columns], *given, data=values)
    writer.sparse(sparse, kept, columns)
    made, x, y = (writer.tensor([rows, columns], *given) for _ in range(3))
    writer.operator("DENSIFY", [sparse], [made], 1)
    writer.operator("MAXIMUM", [x, made], [y], 2, "MaximumMinimum")
    return writer.finished([x], [y])


DRAWN: dict[str, Draw] = {
    "BROADCAST_TO": _broadcast_to,
    "DENSIFY": _densify,
    "FILL": _fill,
    "PACK": _pack,
    "RANGE": _range,
    "RANK": _rank,
    "SHAPE": _shape,
    "SPLIT": _split,
    "SPLIT_V": _split_v,
    "TILE": _tile,
    "UNPACK": _unpack,
    "ZEROS_LIKE": _zeros_like,
}

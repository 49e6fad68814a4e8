"""Elements by their positions."""

from __future__ import annotations

import numpy as np

from workbench.models.tflite.operators.values import (
    Draw,
    Random,
    floats,
    integers,
    like,
    numbers,
    scale_of,
    shape_of,
    zero_of,
)
from workbench.models.tflite.writer import Writer

__all__ = ["DRAWN"]

_MOVED = ("float32", "int8", "uint8", "int32", "int64", "bool")


def _places(writer: Writer, random: Random, shape: list[int], extent: int, *, free: bool = True) -> int:
    """Positions in a dimension: a constant, or what is computed elsewhere."""
    if free and random.integers(2):
        return writer.tensor(shape, str(random.choice(["int32", "int64"])))
    return integers(writer, random.integers(0, extent, shape))


def _finished(writer: Writer, inputs: list[int], outputs: list[int]) -> bytes:
    """With inputs that are no constants."""
    return writer.finished([i for i in inputs if not writer.graph.tensors[i].buffer], outputs)


def _gather(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(1, 5)))
    axis = int(random.integers(len(shape)))
    batches = int(random.integers(axis + 1)) if random.integers(2) else 0
    own = shape_of(random, int(random.integers(3)))
    given = like(random, *_MOVED)
    x = writer.tensor(shape, *given)
    places = _places(writer, random, [*shape[:batches], *own], shape[axis], free=not batches)
    y = writer.tensor([*shape[:axis], *own, *shape[axis + 1 :]], *given)
    writer.operator("GATHER", [x, places], [y], 5, axis=axis, batchDims=batches)
    return _finished(writer, [x, places], [y])


def _gather_nd(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(1, 5)))
    depth, count = int(random.integers(1, len(shape) + 1)), shape_of(random, int(random.integers(3)))
    points = np.stack([random.integers(0, n, count) for n in shape[:depth]], -1)
    given = like(random, *_MOVED)
    x, y = writer.tensor(shape, *given), writer.tensor([*count, *shape[depth:]], *given)
    writer.operator("GATHER_ND", [x, integers(writer, points)], [y], 5)
    return writer.finished([x], [y])


def _scatter_nd(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(1, 5)))
    depth, count = int(random.integers(1, len(shape) + 1)), int(random.integers(1, 5))
    points = np.stack([random.integers(0, n, count) for n in shape[:depth]], -1)
    dtype = str(random.choice(["float32", "int32", "int64"]))
    x, y = writer.tensor([count, *shape[depth:]], dtype), writer.tensor(shape, dtype)
    writer.operator("SCATTER_ND", [integers(writer, points), x, integers(writer, shape)], [y], 1)
    return writer.finished([x], [y])


def _embedding(random: Random) -> bytes:
    writer = Writer()
    rows, columns, count = (int(n) for n in random.integers(1, 9, 3))
    form = int(random.integers(3))
    if form == 0:
        table = writer.tensor([rows, columns], "float32", data=floats(random, [rows, columns]))
    else:
        scales = [scale_of(random) for _ in range(rows)] if form == 1 else scale_of(random)
        table = writer.tensor([rows, columns], "int8", scales, 0, 0, numbers(random, [rows, columns]))
    places = integers(writer, random.integers(0, rows, [count]))
    if random.integers(2):
        places = writer.tensor([count], "int32")
    y = writer.tensor([count, columns], "float32")
    writer.operator("EMBEDDING_LOOKUP", [places, table], [y], 3)
    if writer.graph.tensors[places].buffer:  # a model has an input
        z = writer.tensor([count, columns], "float32")
        x = writer.tensor([count, columns], "float32")
        writer.operator("ADD", [x, y], [z], 1)
        return writer.finished([x], [z])
    return writer.finished([places], [y])


def _one_hot(random: Random) -> bytes:
    writer = Writer()
    shape, depth = shape_of(random, int(random.integers(4))), int(random.integers(1, 9))
    axis = int(random.integers(-1, len(shape) + 1))
    dtype = str(random.choice(["float32", "int32", "int64", "int8", "bool"]))
    kind = np.dtype(dtype)
    on, off = (writer.tensor([], dtype, data=np.asarray(n, kind)) for n in (1, 0))
    x = writer.tensor(shape, "int32")
    made = [*shape, depth] if axis < 0 else [*shape[:axis], depth, *shape[axis:]]
    y = writer.tensor(made, dtype)
    writer.operator("ONE_HOT", [x, integers(writer, depth), on, off], [y], 1, axis=axis)
    return writer.finished([x], [y])


def _reverse(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(1, 5)))
    count = int(random.integers(1, len(shape) + 1))
    first = int(random.integers(len(shape) - count + 1))
    given = like(random, "float32", "int8", "uint8", "int32", "int64", "bool")
    x, y = writer.tensor(shape, *given), writer.tensor(shape, *given)
    writer.operator("REVERSE_V2", [x, integers(writer, range(first, first + count))], [y], 3)
    return writer.finished([x], [y])


def _reverse_sequence(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(2, 5)))
    batch, time = (int(n) for n in random.choice(len(shape), 2, replace=False))
    dtype = str(random.choice(["float32", "int32", "int64"]))
    x, y = writer.tensor(shape, dtype), writer.tensor(shape, dtype)
    lengths = integers(writer, random.integers(1, shape[time] + 1, shape[batch]))
    writer.operator("REVERSE_SEQUENCE", [x, lengths], [y], 1, seqDim=time, batchDim=batch)
    return writer.finished([x], [y])


def _largest(random: Random) -> bytes:
    writer = Writer()
    shape = shape_of(random, int(random.integers(1, 4)))
    shape[-1] = int(random.integers(1, 30))
    count = int(random.integers(1, shape[-1] + 1))
    given: tuple[object, ...] = (str(random.choice(["float32", "int32", "int8"])),)
    if given[0] == "int8":
        given = ("int8", scale_of(random), zero_of(random))
    made = [*shape[:-1], count]
    x, y, z = writer.tensor(shape, *given), writer.tensor(made, *given), writer.tensor(made, "int32")
    writer.operator("TOPK_V2", [x, integers(writer, count)], [y, z], 2)
    return writer.finished([x], [y, z])


DRAWN: dict[str, Draw] = {
    "EMBEDDING_LOOKUP": _embedding,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "ONE_HOT": _one_hot,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "REVERSE_V2": _reverse,
    "SCATTER_ND": _scatter_nd,
    "TOPK_V2": _largest,
}

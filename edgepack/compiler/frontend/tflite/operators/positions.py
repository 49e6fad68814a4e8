"""Elements by their positions: gathered, scattered, reversed, in order of size."""

from __future__ import annotations

from collections.abc import Sequence

from edgepack.compiler.frontend.tflite.emitter import Emitter
from edgepack.compiler.frontend.tflite.model import Operator
from edgepack.compiler.frontend.tflite.operators.contract import (
    Converter,
    UnsupportedFormError,
    axis_of,
    constant,
    is_quantised,
    moved,
    option,
    same_quantisation,
)

__all__ = ["CONVERTERS"]


def _indices(emitter: Emitter, operator: Operator, place: int) -> str:
    """An operand as positions."""
    import numpy as np

    return emitter.cast(emitter.value(operator.inputs[place]), np.int64)


def _gather(emitter: Emitter, operator: Operator) -> None:
    x, places = emitter.value(operator.inputs[0]), _indices(emitter, operator, 1)
    rank = len(emitter.shape(x))
    axis, batches = axis_of(option(operator, "axis"), rank), option(operator, "batchDims")
    if batches < 0:
        batches += len(emitter.shape(places))
    if not batches:
        moved(emitter, operator, _gathered(emitter, x, places, axis))
        return
    if not 0 <= batches <= min(axis, len(emitter.shape(places))):
        raise UnsupportedFormError(f"{batches} dimensions of batches before axis {axis}")
    order = [*range(batches), axis, *(n for n in range(batches, rank) if n != axis)]
    near = emitter.transpose(x, order)
    own = emitter.shape(places)[batches:]
    points = emitter.reshape(places, [*emitter.shape(places), 1])
    shape = [*emitter.shape(near)[:batches], *own, *emitter.shape(near)[batches + 1 :]]
    made = emitter.op("GatherND", near, points, shape=shape, batch_dims=batches)
    back = [
        *range(batches),
        *range(batches + len(own), axis + len(own)),
        *range(batches, batches + len(own)),
        *range(axis + len(own), len(shape)),
    ]
    moved(emitter, operator, made if back == sorted(back) else emitter.transpose(made, back))


def _gathered(emitter: Emitter, x: str, places: str, axis: int) -> str:
    shape = [*emitter.shape(x)[:axis], *emitter.shape(places), *emitter.shape(x)[axis + 1 :]]
    return emitter.op("Gather", x, places, shape=shape, axis=axis)


def _gather_nd(emitter: Emitter, operator: Operator) -> None:
    x, points = emitter.value(operator.inputs[0]), _indices(emitter, operator, 1)
    depth = emitter.shape(points)[-1]
    shape = [*emitter.shape(points)[:-1], *emitter.shape(x)[depth:]]
    moved(emitter, operator, emitter.op("GatherND", x, points, shape=shape))


def _scatter_nd(emitter: Emitter, operator: Operator) -> None:
    """Updates at their positions, added up where these are the same, zeros elsewhere."""
    import numpy as np

    points, updates = _indices(emitter, operator, 0), emitter.value(operator.inputs[1])
    shape = [int(n) for n in constant(emitter, operator, 2)]
    zeros = emitter.const(np.zeros(shape, emitter.dtype(updates)))
    made = emitter.op("ScatterND", zeros, points, updates, shape=shape, reduction="add")
    moved(emitter, operator, made, source=1)


def _embedding(emitter: Emitter, operator: Operator) -> None:
    """Rows of a table: as they are, or for a result of floats scaled as the table or the row is."""
    import numpy as np

    table, result = emitter.tensors[operator.inputs[1]], emitter.tensors[operator.outputs[0]]
    places = _indices(emitter, operator, 0)
    rows = _gathered(emitter, emitter.value(operator.inputs[1]), places, 0)
    if result.dtype != "float32" or table.dtype == "float32":
        moved(emitter, operator, rows, source=1)
        return
    if table.quantisation is None or table.quantisation.axis or table.quantisation.zero.any():
        raise UnsupportedFormError("a table whose scales are not those of its rows")
    scales = emitter.const(table.quantisation.scale)
    if table.quantisation.single:
        factor = emitter.reshape(scales, [])
    else:
        factor = _gathered(emitter, scales, places, 0)
        factor = emitter.reshape(factor, [*emitter.shape(factor), *[1] * (len(table.shape) - 1)])
    made = emitter.op("Mul", emitter.cast(rows, np.float32), factor)
    emitter.result(operator.outputs[0], made)


def _one_hot(emitter: Emitter, operator: Operator) -> None:
    import numpy as np

    places = _indices(emitter, operator, 0)
    depth = int(constant(emitter, operator, 1).reshape(()))
    on, off = (emitter.reshape(emitter.value(index), []) for index in operator.inputs[2:4])
    rank = len(emitter.shape(places)) + 1
    axis = axis_of(option(operator, "axis"), rank)
    shape = list(emitter.shape(places))
    classes = np.arange(depth, dtype=np.int64).reshape([-1 if n == axis else 1 for n in range(rank)])
    wide = emitter.reshape(places, [*shape[:axis], 1, *shape[axis:]])
    same = emitter.op("Equal", wide, emitter.const(classes), dtype=bool)
    made = emitter.op("Where", same, on, off, shape=emitter.shape(same), dtype=emitter.dtype(on))
    moved(emitter, operator, made, source=2)


def _reverse(emitter: Emitter, operator: Operator) -> None:
    x = emitter.value(operator.inputs[0])
    axes = [axis_of(int(axis), len(emitter.shape(x))) for axis in constant(emitter, operator, 1).reshape(-1)]
    moved(emitter, operator, _reversed(emitter, x, axes))


def _reversed(emitter: Emitter, x: str, axes: Sequence[int]) -> str:
    import numpy as np

    first, last, steps = (
        emitter.const(np.asarray([value] * len(axes), np.int64)) for value in (-1, -(2**31), -1)
    )
    where = emitter.const(np.asarray(axes, np.int64))
    return emitter.op("Slice", x, first, last, where, steps, shape=emitter.shape(x))


def _reverse_sequence(emitter: Emitter, operator: Operator) -> None:
    """In reverse along one dimension, as many elements as the operand says for each place of another."""
    import numpy as np

    x, lengths = emitter.value(operator.inputs[0]), _indices(emitter, operator, 1)
    shape = emitter.shape(x)
    time = axis_of(option(operator, "seqDim"), len(shape))
    batch = axis_of(option(operator, "batchDim"), len(shape))
    if time == batch:
        raise UnsupportedFormError(f"sequences along axis {time}, which is that of the batch")
    order = [batch, time, *(n for n in range(len(shape)) if n not in (batch, time))]
    near = emitter.transpose(x, order)
    count = emitter.shape(near)[1]
    steps = np.arange(count, dtype=np.int64)[None]
    lengths = emitter.op("Min", lengths, emitter.const(np.asarray(count, np.int64)))
    long = emitter.reshape(lengths, [shape[batch], 1])
    mirrored = emitter.op("Sub", long, emitter.const(steps + 1))
    inside = emitter.op("Less", emitter.const(steps), long, dtype=bool)
    places = emitter.op("Where", inside, mirrored, emitter.const(steps), dtype=np.int64)
    points = emitter.reshape(places, [*emitter.shape(places), 1])
    made = emitter.op("GatherND", near, points, shape=emitter.shape(near), batch_dims=1)
    moved(emitter, operator, emitter.transpose(made, [order.index(n) for n in range(len(shape))]))


def _largest(emitter: Emitter, operator: Operator) -> None:
    """The k largest of each row in order, and where they are; the first ones of the same size."""
    import numpy as np

    tensor, values = emitter.tensors[operator.inputs[0]], emitter.tensors[operator.outputs[0]]
    if is_quantised(tensor) and not same_quantisation(tensor, values):
        raise UnsupportedFormError("another scale behind it than before")
    x, count = emitter.value(operator.inputs[0]), int(constant(emitter, operator, 1).reshape(()))
    shape = [*emitter.shape(x)[:-1], count]
    wide = x if emitter.dtype(x).itemsize > 2 else emitter.cast(x, np.int32)
    k = emitter.const(np.asarray([count], np.int64))
    made = emitter.ops("TopK", [wide, k], [(shape, None), (shape, np.int64)], axis=-1, largest=1, sorted=1)
    places = emitter.cast(made[1], emitter.tensors[operator.outputs[1]].dtype)
    emitter.result(operator.outputs[1], places)
    emitter.result(operator.outputs[0], emitter.cast(made[0], values.dtype))


CONVERTERS: dict[str, Converter] = {
    "EMBEDDING_LOOKUP": _embedding,
    "GATHER": _gather,
    "GATHER_ND": _gather_nd,
    "ONE_HOT": _one_hot,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "REVERSE_V2": _reverse,
    "SCATTER_ND": _scatter_nd,
    "TOPK_V2": _largest,
}

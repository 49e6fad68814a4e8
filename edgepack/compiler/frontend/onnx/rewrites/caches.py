"""Sequences of run-time lengths and caches that are written at run-time places, as gathers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["reverse_sequence", "tensor_scatter"]


def reverse_sequence(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Element t of a sequence of n elements is element n - 1 - t, as long as t < n. A length greater than the
    axis stands for all of its elements."""
    import numpy as np

    values, shape = attributes(node), editor.shape(node.input[0])
    if shape is None:
        return None
    batch, time = values.get("batch_axis", 1), values.get("time_axis", 0)
    int64, rows = np.dtype(np.int64), list(shape[:2])
    lengths = editor.cast(node.input[1], int64)
    lengths = editor.op("Max", lengths, editor.scalar(0, int64))
    lengths = editor.op("Min", lengths, editor.scalar(rows[time], int64))
    along = editor.reshape(lengths, [-1 if i == batch else 1 for i in range(2)])
    t = editor.const(np.arange(rows[time]).reshape([-1 if i == time else 1 for i in range(2)]))
    mirrored = editor.op("Sub", editor.op("Sub", along, editor.scalar(1, int64)), t)
    place = editor.op("Where", editor.op("Less", t, along), mirrored, t)
    sequence = np.arange(rows[batch]).reshape([-1 if i == batch else 1 for i in range(2)])
    pair = {
        time: editor.reshape(place, [*rows, 1]),
        batch: editor.const(np.broadcast_to(sequence, rows)[..., None]),
    }
    return [editor.op("GatherND", node.input[0], editor.op("Concat", pair[0], pair[1], axis=-1))]


def tensor_scatter(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Place t of the cache is element t - w of the update, where there is one, else what it was.

    ``w`` is the batch's write index; in circular mode the difference wraps around.
    """
    import numpy as np

    values, int64 = attributes(node), np.dtype(np.int64)
    cache, update = node.input[:2]
    shape, new = editor.shape(cache), editor.shape(update)
    if shape is None or new is None:
        return None
    rank = len(shape)
    axis = values.get("axis", -2) % rank
    t = editor.const(np.arange(shape[axis]).reshape([-1 if i == axis else 1 for i in range(rank)]))
    if len(node.input) > 2 and node.input[2]:
        begins = editor.reshape(editor.cast(node.input[2], int64), [-1, *[1] * (rank - 1)])
    else:
        begins = editor.scalar(0, int64)
    source = editor.op("Sub", t, begins)
    if values.get("mode", "linear") == "circular":
        size = editor.scalar(shape[axis], int64)
        wrapped = editor.op("Add", source, size)
        source = editor.op("Where", editor.op("Less", source, editor.scalar(0, int64)), wrapped, source)
    last = editor.scalar(new[axis] - 1, int64)
    inside = editor.op(
        "And",
        editor.op("GreaterOrEqual", source, editor.scalar(0, int64)),
        editor.op("LessOrEqual", source, last),
    )
    safe = editor.op("Clip", source, editor.scalar(0, int64), last)
    wide = editor.op("Expand", safe, editor.const(np.asarray(shape, np.int64)))
    return [editor.op("Where", inside, editor.op("GatherElements", update, wide, axis=axis), cache)]

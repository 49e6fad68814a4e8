"""Tensors that are split into heads of attention."""

from __future__ import annotations

from dataclasses import dataclass

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor

__all__ = ["Heads", "behind_past", "merged", "past_heads", "repeated", "sliced", "split_heads"]


@dataclass(frozen=True)
class Heads:
    """A tensor [batch, heads, rows, depth], split into heads.

    Attributes:
        name: of the tensor.
    """

    name: str
    batch: int
    heads: int
    rows: int
    depth: int


def split_heads(editor: Editor, x: str, shape: tuple[int, ...], heads: int) -> Heads:
    """[batch, rows, width] as heads."""
    batch, rows, width = shape
    split = editor.reshape(x, [batch, rows, heads, width // heads])
    return Heads(editor.op("Transpose", split, perm=[0, 2, 1, 3]), batch, heads, rows, width // heads)


def merged(editor: Editor, x: Heads) -> str:
    """Heads as [batch, rows, width]."""
    return editor.reshape(
        editor.op("Transpose", x.name, perm=[0, 2, 1, 3]), [x.batch, x.rows, x.heads * x.depth]
    )


def repeated(editor: Editor, x: Heads, heads: int) -> Heads:
    """Each head as often as there are heads of queries that share it."""
    import numpy as np

    if x.heads == heads:
        return x
    times = heads // x.heads
    apart = editor.reshape(x.name, [x.batch, x.heads, 1, x.rows, x.depth])
    shape = editor.const(np.asarray([x.batch, x.heads, times, x.rows, x.depth], np.int64))
    whole = editor.reshape(editor.op("Expand", apart, shape), [x.batch, heads, x.rows, x.depth])
    return Heads(whole, x.batch, heads, x.rows, x.depth)


def past_heads(editor: Editor, past: str, index: int) -> Heads:
    """Keys or values of [2, batch, heads, rows, depth]."""
    shape = editor.shape(past)
    assert shape is not None
    return Heads(editor.reshape(sliced(editor, past, 0, index, 1), shape[1:]), *shape[1:])


def behind_past(editor: Editor, past: Heads, new: Heads) -> Heads:
    joined = editor.op("Concat", past.name, new.name, axis=2)
    return Heads(joined, new.batch, new.heads, past.rows + new.rows, new.depth)


def sliced(editor: Editor, x: str, axis: int, begin: int, size: int) -> str:
    import numpy as np

    return editor.op(
        "Slice", x, *(editor.const(np.asarray([i], np.int64)) for i in (begin, begin + size, axis))
    )

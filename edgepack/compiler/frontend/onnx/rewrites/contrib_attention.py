"""Attention of ONNX Runtime's own domain (com.microsoft), by products, a sum and a softmax.

They are written in the form that :mod:`edgepack.compiler.graph.attention` finds again: scores = scale * Q K'
+ masks, one softmax, a product with the values, heads split and merged by reshapes and transposes. A mask
adds ``mask_filter_value`` where a key is left out, as ONNX Runtime's CPU kernels do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.contrib import given
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.heads import (
    Heads,
    behind_past,
    merged,
    past_heads,
    repeated,
    sliced,
    split_heads,
)

if TYPE_CHECKING:
    import numpy as np
    import onnx
    from numpy.typing import NDArray

__all__ = [
    "Projection",
    "attention",
    "group_query_attention",
    "multi_head_attention",
    "projected_attention",
    "rotary_embedding",
]


@dataclass(frozen=True)
class Projection:
    """Queries, keys and values [batch, rows, sum of sizes] of one product, and what else Attention reads.

    Attributes:
        name: of the tensor.
        sizes: columns of queries, of keys and of values.
        mask: of integers, "" for none.
        past: keys and values [2, batch, heads, rows, depth] before these, "" for none.
    """

    name: str
    sizes: Sequence[int]
    mask: str
    past: str


def attention(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Attention: one product makes queries, keys and values of the input [batch, rows, width]."""

    values = attributes(node)
    x, weights, bias = node.input[0], node.input[1], given(node, 2)
    columns = editor.shape(weights)
    if columns is None or values.get("do_rotary", 0) or given(node, 6):
        return None
    sizes = values.get("qkv_hidden_sizes") or [columns[1] // 3] * 3
    made = editor.op("MatMul", x, weights)
    if bias:
        made = editor.op("Add", made, bias)
    return projected_attention(editor, node, Projection(made, sizes, given(node, 3), given(node, 4)))


def projected_attention(
    editor: Editor, node: onnx.NodeProto, projection: Projection, dtype: np.dtype[Any] | None = None
) -> Sequence[str] | None:
    """Attention over queries, keys and values that lie side by side.

    Args:
        node: an Attention, or a QAttention: its input [batch, rows, width], attributes and outputs are read.
        dtype: of the floats, where the node's input has integers.
    """
    values, shape = attributes(node), editor.shape(node.input[0])
    if shape is None:
        return None
    heads, sizes, integers = values["num_heads"], projection.sizes, dtype is not None
    dtype = dtype or editor.dtype(node.input[0])
    begins = [0, sizes[0], sizes[0] + sizes[1]]
    parts = [
        split_heads(editor, sliced(editor, projection.name, 2, begin, size), (*shape[:2], size), heads)
        for begin, size in zip(begins, sizes, strict=True)
    ]
    query, key, value = parts
    if projection.past:
        key = behind_past(editor, past_heads(editor, projection.past, 0), key)
        value = behind_past(editor, past_heads(editor, projection.past, 1), value)
    bias = "" if integers else given(node, 5)
    masks = _added_to_scores(editor, values, dtype, (projection.mask, bias), (query, key))
    if masks is None:
        return None
    results = [_attended(editor, (query, key, value), dtype, _scale(values, query), masks)]
    if len(node.output) > 1 and node.output[1]:
        both = [editor.reshape(t.name, [1, t.batch, t.heads, t.rows, t.depth]) for t in (key, value)]
        results.append(editor.op("Concat", *both, axis=0))
    return results


def multi_head_attention(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """MultiHeadAttention: queries, keys and values are made already, as [batch, rows, width] or split."""

    values = attributes(node)
    heads, dtype = values["num_heads"], editor.dtype(node.input[0])
    parts = _projected(editor, node, heads)
    if parts is None or given(node, 8) or given(node, 9) or (len(node.output) > 3 and node.output[3]):
        return None
    query, key, value = parts
    if given(node, 6) and given(node, 7):
        shapes = editor.shape(node.input[6]), editor.shape(node.input[7])
        if shapes[0] is None or shapes[1] is None:
            return None
        key = behind_past(editor, Heads(node.input[6], *shapes[0]), key)
        value = behind_past(editor, Heads(node.input[7], *shapes[1]), value)
    masks = _added_to_scores(editor, values, dtype, (given(node, 4), given(node, 5)), (query, key))
    if masks is None:
        return None
    result = _attended(editor, (query, key, value), dtype, _scale(values, query), masks)
    return [result, key.name, value.name][: len(node.output)]


def group_query_attention(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """GroupQueryAttention of a whole prompt, without a past, and without padding by the constant lengths:
    several heads of queries share one of keys and values; causal, over the last ``local_window_size`` keys.
    """
    import numpy as np

    values = attributes(node)
    heads, groups = values["num_heads"], values["kv_num_heads"]
    packed = not given(node, 1)
    shape = editor.shape(node.input[0])
    unusual = ("smooth_softmax", "qk_output", "k_quant_type", "v_quant_type")
    refused = any(values.get(name, 0) not in (0, "NONE") for name in unusual)
    if shape is None or refused or any(given(node, i) for i in (3, 4, 9, 11)) or any(node.output[3:]):
        return None
    batch, rows, width = shape
    lengths = editor.constant(given(node, 5))
    if lengths is None or (lengths != rows - 1).any():
        return None
    depth = width // (heads + 2 * groups) if packed else width // heads
    names = list(node.input[:3])
    if packed:
        sizes = [heads * depth, groups * depth, groups * depth]
        begins = [0, sizes[0], sizes[0] + sizes[1]]
        names = [
            sliced(editor, node.input[0], 2, begin, size) for begin, size in zip(begins, sizes, strict=True)
        ]
    counts = (heads, groups, groups)
    query, key, value = (
        split_heads(editor, name, (batch, rows, count * depth), count)
        for name, count in zip(names, counts, strict=True)
    )
    if values.get("do_rotary", 0):
        places = editor.const(np.arange(rows, dtype=np.int64).reshape(1, rows))
        tables = (node.input[7], node.input[8])
        inner = bool(values.get("rotary_interleaved", 0))
        query = _rotated(editor, query, places, tables, inner)
        key = _rotated(editor, key, places, tables, inner)
    dtype = editor.dtype(node.input[0])
    masks = [_causal(editor, query, key, dtype, values.get("local_window_size", -1))]
    if given(node, 10):
        masks.append(given(node, 10))
    wide = (query, repeated(editor, key, heads), repeated(editor, value, heads))
    cap = values.get("softcap", 0.0)
    result = _attended(editor, wide, dtype, _scale(values, query), masks, cap)
    return [result, key.name, value.name][: len(node.output)]


def rotary_embedding(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """RotaryEmbedding: pairs of elements of each head turned by the angle of their row's position."""
    import numpy as np

    values = attributes(node)
    x, positions, cosines, sines = node.input
    shape, table, places = editor.shape(x), editor.shape(cosines), editor.shape(positions)
    if shape is None or table is None or places is None or values.get("is_packed_batching", 0):
        return None
    if values.get("scale", 1.0) != 1.0:
        return None
    split = len(shape) == 4
    turned = values.get("rotary_embedding_dim", 0) or 2 * table[1]
    heads = shape[1] if split else values.get("num_heads", 0) or shape[2] // turned
    rows = shape[2] if split else shape[1]
    if places != (shape[0], rows):  # the first row's position: the others follow
        steps, begin = np.arange(rows, dtype=np.int64).reshape(1, rows), editor.constant(positions)
        if begin is not None:
            positions = editor.const(begin.reshape(1, 1) + steps)
        else:
            positions = editor.op("Add", editor.reshape(positions, [1, 1]), editor.const(steps))
    whole = Heads(x, *shape) if split else split_heads(editor, x, shape, heads)
    result = _rotated(editor, whole, positions, (cosines, sines), bool(values.get("interleaved", 0)))
    return [result.name if split else merged(editor, result)]


# Heads ------------------------------------------------------------------------------------------------------


def _projected(editor: Editor, node: onnx.NodeProto, heads: int) -> tuple[Heads, Heads, Heads] | None:
    """Queries, keys and values of MultiHeadAttention, with their bias, split into heads."""
    query, key, value, bias = node.input[0], given(node, 1), given(node, 2), given(node, 3)
    shapes = [editor.shape(name) if name else None for name in (query, key, value)]
    if any(shape is None or len(shape) > 4 for shape in shapes):
        return None
    split, begin = [], 0
    for name, shape in zip((query, key, value), shapes, strict=True):
        assert shape is not None
        if len(shape) == 4:  # split already
            split.append(Heads(name, *shape))
            begin += shape[1] * shape[3]
        else:
            split.append(split_heads(editor, _biased(editor, name, bias, begin, shape[2]), shape, heads))
            begin += shape[2]
    return split[0], split[1], split[2]


def _biased(editor: Editor, x: str, bias: str, begin: int, size: int) -> str:
    if not bias:
        return x
    array = editor.constant(bias)
    part = (
        editor.const(array[begin : begin + size])
        if array is not None
        else sliced(editor, bias, 0, begin, size)
    )
    return editor.op("Add", x, part)


def _rotated(editor: Editor, x: Heads, positions: str, tables: tuple[str, str], interleaved: bool) -> Heads:
    """Each head's leading elements turned; as many as the tables have columns, twice."""
    half = (editor.shape(tables[0]) or (0, 0))[1]
    angles = []
    for table in tables:  # [batch or 1, rows, half], with an axis for heads
        angles.append(editor.reshape(editor.op("Gather", table, positions), [-1, 1, x.rows, half]))
    cosine, sine = angles
    shape = [x.batch, x.heads, x.rows]
    turned = sliced(editor, x.name, 3, 0, 2 * half) if x.depth > 2 * half else x.name
    if interleaved:
        pairs = editor.reshape(turned, [*shape, half, 2])
        a, b = (editor.reshape(sliced(editor, pairs, 4, i, 1), [*shape, half]) for i in range(2))
    else:
        a, b = sliced(editor, turned, 3, 0, half), sliced(editor, turned, 3, half, half)
    real = editor.op("Sub", editor.op("Mul", a, cosine), editor.op("Mul", b, sine))
    imaginary = editor.op("Add", editor.op("Mul", a, sine), editor.op("Mul", b, cosine))
    if interleaved:
        parts = [editor.reshape(part, [*shape, half, 1]) for part in (real, imaginary)]
        result = editor.reshape(editor.op("Concat", *parts, axis=4), [*shape, 2 * half])
        rest = [result]
    else:
        rest = [real, imaginary]
    if x.depth > 2 * half:
        rest.append(sliced(editor, x.name, 3, 2 * half, x.depth - 2 * half))
    joined = editor.op("Concat", *rest, axis=3) if len(rest) > 1 else rest[0]
    return Heads(joined, x.batch, x.heads, x.rows, x.depth)


# Scores -----------------------------------------------------------------------------------------------------


def _scale(values: dict[str, Any], query: Heads) -> float:
    return float(values.get("scale", 0.0)) or float(query.depth) ** -0.5


def _added_to_scores(
    editor: Editor,
    values: dict[str, Any],
    dtype: np.dtype[Any],
    added: tuple[str, str],
    parts: tuple[Heads, Heads],
) -> list[str] | None:
    """Mask, causality and bias of Attention and MultiHeadAttention; None as for :func:`_masks`.

    Args:
        values: the node's attributes.
        added: names of mask and bias, "" for none.
        parts: queries and keys.
    """
    import numpy as np

    (mask, bias), (query, key) = added, parts
    fill = np.asarray(values.get("mask_filter_value", -10000.0), dtype)
    found = _masks(editor, mask, query, key, fill)
    if found is None:
        return None
    if values.get("unidirectional", 0):
        found.append(_causal(editor, query, key, dtype))
    if bias:
        found.append(bias)
    return found


def _masks(editor: Editor, mask: str, query: Heads, key: Heads, fill: NDArray[Any]) -> list[str] | None:
    """What a mask of integers adds to the scores; None for a form that ONNX Runtime's CPU kernels lack."""
    if not mask:
        return []
    shape = editor.shape(mask)
    if shape is None:
        return None
    batch, keys = query.batch, key.rows
    if len(shape) == 1 and shape[0] in (batch, 2 * batch):
        return [_of_lengths(editor, mask, shape[0] // batch, (batch, keys), fill)]
    forms = {(batch, keys): [batch, 1, 1, keys], (batch, query.rows, keys): [batch, 1, query.rows, keys]}
    if shape not in forms:
        return None
    open_ = editor.op("Greater", editor.reshape(mask, forms[shape]), editor.scalar(0, editor.dtype(mask)))
    return [_filled(editor, open_, fill)]


def _of_lengths(editor: Editor, mask: str, count: int, shape: tuple[int, int], fill: NDArray[Any]) -> str:
    """Keys from each row's end on, and with ``count`` 2 those before its start, are left out."""
    import numpy as np

    batch, keys = shape
    places = editor.const(np.arange(keys, dtype=np.int32).reshape(1, 1, 1, keys))
    end = editor.reshape(sliced(editor, mask, 0, 0, batch), [batch, 1, 1, 1])
    inside = editor.op("Less", places, end)
    if count == 2:
        start = editor.reshape(sliced(editor, mask, 0, batch, batch), [batch, 1, 1, 1])
        inside = editor.op("And", inside, editor.op("Not", editor.op("Less", places, start)))
    return _filled(editor, inside, fill)


def _filled(editor: Editor, kept: str, fill: NDArray[Any]) -> str:
    """0 where a key is kept, ``fill`` elsewhere."""
    import numpy as np

    return editor.op("Where", kept, editor.const(np.zeros_like(fill)), editor.const(fill))


def _causal(editor: Editor, query: Heads, key: Heads, dtype: np.dtype[Any], window: int = -1) -> str:
    """Keys behind a query's own place are left out, and those more than ``window`` places before it."""
    import numpy as np

    row = np.arange(query.rows)[:, None] + key.rows - query.rows
    column = np.arange(key.rows)[None, :]
    hidden = column > row
    if window > 0:
        hidden |= column <= row - window
    lowest = np.finfo(np.float16 if dtype == np.float16 else np.float32).min
    return editor.const(np.where(hidden, lowest, 0).astype(dtype)[None, None])


def _attended(
    editor: Editor,
    parts: tuple[Heads, Heads, Heads],
    dtype: np.dtype[Any],
    scale: float,
    masks: Sequence[str],
    cap: float = 0.0,
) -> str:
    """softmax(scale * Q K' + masks) V, heads merged."""
    query, key, value = parts
    scores = editor.op("MatMul", query.name, editor.op("Transpose", key.name, perm=[0, 1, 3, 2]))
    scores = editor.op("Mul", scores, editor.scalar(scale, dtype))
    if cap:
        bounded = editor.op("Tanh", editor.op("Mul", scores, editor.scalar(1 / cap, dtype)))
        scores = editor.op("Mul", bounded, editor.scalar(cap, dtype))
    for mask in masks:
        scores = editor.op("Add", scores, mask)
    product = editor.op("MatMul", editor.op("Softmax", scores, axis=-1), value.name)
    return merged(editor, Heads(product, query.batch, query.heads, query.rows, value.depth))

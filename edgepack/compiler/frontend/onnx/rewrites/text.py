"""TfIdfVectorizer: how often each n-gram of a list occurs among whole numbers, that is among tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx
    from numpy.typing import NDArray

__all__ = ["tf_idf_vectorizer"]


def tf_idf_vectorizer(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Every place is compared with every n-gram, and what is equal is added up. Not for strings.

    Between the tokens of an n-gram up to ``max_skip_count`` others may stand, as many between each two.
    """
    import numpy as np

    values, shape = attributes(node), editor.shape(node.input[0])
    if shape is None or "pool_int64s" not in values or 0 in shape:
        return None
    length, dtype = shape[-1], np.dtype(np.float32)
    tokens = editor.cast(editor.reshape(node.input[0], [-1, length, 1]), np.dtype(np.int64))
    indexes = np.asarray(values["ngram_indexes"])
    weights = np.asarray(values.get("weights") or np.ones(len(indexes)), np.float64)
    results = int(indexes.max()) + 1
    total = ""
    for first, grams in _grams(values):
        counts = _counts(editor, tokens, length, grams, int(values["max_skip_count"]))
        if not counts:
            continue
        mode, own = values["mode"], slice(first, first + len(grams))
        if mode == "IDF":
            counts = editor.cast(editor.op("Greater", counts, editor.scalar(0, dtype)), dtype)
        table = np.zeros((len(grams), results), np.float32)
        table[np.arange(len(grams)), indexes[own]] = 1 if mode == "TF" else weights[own]
        part = editor.op("MatMul", counts, editor.const(table))
        total = editor.op("Add", total, part) if total else part
    if not total:
        total = editor.const(np.zeros((int(np.prod(shape[:-1])), results), np.float32))
    return [editor.reshape(total, [*shape[:-1], results])]


def _grams(values: dict[str, Any]) -> list[tuple[int, NDArray[Any]]]:
    """The n-grams of each length that counts, [grams, n], and how many stand before them in the list."""
    import numpy as np

    pool, starts = np.asarray(values["pool_int64s"]), [int(n) for n in values["ngram_counts"]]
    found, before = [], 0
    for n, (begin, end) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        grams = pool[begin:end].reshape(-1, n)
        if len(grams) and int(values["min_gram_length"]) <= n <= int(values["max_gram_length"]):
            found.append((before, grams))
        before += len(grams)
    return found


def _counts(editor: Editor, tokens: str, length: int, grams: NDArray[Any], skips: int) -> str:
    """How often each n-gram occurs, float32 [rows, grams]; "" if none can."""
    import numpy as np

    n, total = grams.shape[1], ""
    for step in range(1, (skips if n > 1 else 0) + 2):
        places = length - (n - 1) * step
        if places <= 0:
            break
        same = ""
        for i in range(n):  # Slice has its bounds as attributes before opset 10, where the operator is from
            moved = editor.op("Gather", tokens, editor.const(np.arange(places) + i * step), axis=1)
            equal = editor.op("Equal", moved, editor.const(grams[:, i]))
            same = editor.op("And", same, equal) if same else equal
        found = editor.reduce("ReduceSum", editor.cast(same, np.dtype(np.float32)), 1)
        total = editor.op("Add", total, found) if total else found
    return editor.reshape(total, [-1, len(grams)]) if total else ""

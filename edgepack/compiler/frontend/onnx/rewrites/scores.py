"""What the operators of ai.onnx.ml make of scores: post transforms, classes, labels.

Forms that ONNX leaves open are those of ONNX Runtime (core/providers/cpu/ml/ml_common.h).
"""

from __future__ import annotations

from math import pi, sqrt
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor

if TYPE_CHECKING:
    import numpy as np

__all__ = [
    "TRANSFORMS",
    "as_rows",
    "best",
    "chosen",
    "column",
    "in_float32",
    "label_numbers",
    "labels_of",
    "probit",
    "side_by_side",
    "transformed",
]

TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")

#: Of the approximation of the inverse of the error function (S. Winitzki, 2008), with ONNX Runtime's digits.
_WINITZKI = 0.147

#: What SOFTMAX_ZERO takes for zero.
_NOTHING = 1e-7


def as_rows(editor: Editor, x: str) -> tuple[str, tuple[int, int]] | None:
    """The input as [rows, features], and that shape; a vector is one row. None of one without a shape."""
    shape = editor.shape(x)
    if shape is None or len(shape) not in (1, 2):
        return None
    if len(shape) == 1:
        row = editor.reshape(x, [1, shape[0]])
        editor.declare(row, editor.dtype(x), (1, shape[0]))
        return row, (1, shape[0])
    return x, (shape[0], shape[1])


def in_float32(editor: Editor, x: str) -> str:
    """The input as float32, which ONNX Runtime converts it to."""
    import numpy as np

    dtype = np.dtype(np.float32)
    return x if editor.dtype(x) == dtype else editor.cast(x, dtype)


def transformed(editor: Editor, scores: str, transform: str) -> str:
    """Scores [rows, columns], float32, after a post transform."""
    if transform == "PROBIT":
        return probit(editor, scores)
    if transform == "LOGISTIC":
        return editor.op("Sigmoid", scores)
    if transform == "SOFTMAX":
        return editor.op("Softmax", scores, axis=1)
    if transform == "SOFTMAX_ZERO":
        return _softmax_zero(editor, scores)
    return scores


def probit(editor: Editor, scores: str) -> str:
    """sqrt(2) * erfinv(2 * score - 1), as ONNX Runtime approximates it."""
    import numpy as np

    def number(value: float) -> str:
        return editor.scalar(value, np.dtype(np.float32))

    x = editor.op("Sub", editor.op("Mul", scores, number(2)), number(1))
    inner = editor.op("Mul", editor.op("Sub", number(1), x), editor.op("Add", number(1), x))
    log = editor.op("Log", inner)
    half = editor.op("Mul", log, number(0.5))
    v = editor.op("Add", half, number(2 / (round(pi, 5) * _WINITZKI)))
    v2 = editor.op("Mul", log, number(1 / _WINITZKI))
    root = editor.op("Sqrt", editor.op("Sub", editor.op("Mul", v, v), v2))
    size = editor.op("Sqrt", editor.op("Sub", root, v))
    negative = editor.op("Less", x, number(0))
    signed = editor.op("Where", negative, editor.op("Neg", size), size)
    return editor.op("Mul", signed, number(sqrt(2)))


def _softmax_zero(editor: Editor, scores: str) -> str:
    """Softmax over the scores that are not zero; the others stay zero."""
    import numpy as np

    dtype = np.dtype(np.float32)
    most = editor.reduce("ReduceMax", scores, 1)
    counts = editor.op("Greater", editor.op("Abs", scores), editor.scalar(_NOTHING, dtype))
    powers = editor.op("Exp", editor.op("Sub", scores, most))
    small = editor.op("Mul", scores, editor.op("Exp", editor.op("Neg", most)))
    total = editor.reduce("ReduceSum", editor.op("Where", counts, powers, editor.scalar(0, dtype)), 1)
    return editor.op("Div", editor.op("Where", counts, powers, small), total)


def side_by_side(editor: Editor, *columns: str) -> str:
    """Columns [rows, 1] as one tensor."""
    return editor.op("Concat", *columns, axis=1)


def best(editor: Editor, scores: str) -> str:
    """Index of the greatest of each row, the first of equal ones, int64 [rows]."""
    return editor.op("ArgMax", scores, axis=1, keepdims=0)


def labels_of(editor: Editor, classes: str, values: dict[str, Any]) -> str:
    """The labels of classes, int64 [rows]; labels that are texts are their indices."""
    import numpy as np

    known = label_numbers(values)
    if known == list(range(len(known))):
        return editor.op("Identity", classes)
    return editor.op("Gather", editor.const(np.asarray(known, np.int64)), classes)


def label_numbers(values: dict[str, Any]) -> list[int]:
    """The labels of a classifier as numbers."""
    for name in ("classlabels_int64s", "classlabels_ints"):
        if values.get(name):
            return [int(label) for label in values[name]]
    return list(range(len(values.get("classlabels_strings", ()))))


def chosen(editor: Editor, condition: str, yes: int, no: int, rows: int) -> str:
    """One of two labels by a condition of ``rows`` elements, int64 [rows]."""
    import numpy as np

    dtype: np.dtype[Any] = np.dtype(np.int64)
    flat = editor.reshape(condition, [rows])
    return editor.op("Where", flat, editor.scalar(yes, dtype), editor.scalar(no, dtype))


def column(editor: Editor, scores: str, index: int) -> str:
    """One column of [rows, columns] as [rows, 1]."""
    import numpy as np

    return editor.op("Gather", scores, editor.const(np.asarray([index], np.int64)), axis=1)

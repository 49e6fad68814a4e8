"""Reductions in forms that the importer lacks, or gets wrong: of integers by a root or a logarithm, and over
no axes at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["reduction"]

#: What a reduction does to each element if it reduces nothing; the others leave it as it is.
_ELEMENTS = {"ReduceL1": "Abs", "ReduceL2": "Abs", "ReduceLogSum": "Log", "ReduceSumSquare": "Mul"}


def reduction(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """A reduction over no axes (``noop_with_empty_axes``) as what it does to each element; one of integers as
    sums of their own type, of which a root or a logarithm is taken in float64, and its fraction left out."""
    operator, x, values = node.op_type, str(node.input[0]), attributes(node)
    dtype, axes = editor.dtype(x), _axes(editor, node, values)
    if axes is None:
        return None
    if not axes and values.get("noop_with_empty_axes", 0):
        if operator not in _ELEMENTS:
            return [x]
        one = _ELEMENTS[operator]
        return [_elementwise(editor, one, x, dtype)]
    if dtype.kind not in "iu" or operator not in ("ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp"):
        return None
    return [_of_integers(editor, operator, x, dtype, (axes, values.get("keepdims", 1)))]


def _axes(editor: Editor, node: onnx.NodeProto, values: dict[str, Any]) -> list[int] | None:
    """Axes that are reduced, none for all of them; None where they are known at run time only."""
    if len(node.input) > 1 and node.input[1]:
        given = editor.constant(node.input[1])
        return None if given is None else [int(axis) for axis in given.reshape(-1)]
    return [int(axis) for axis in values.get("axes", ())]


def _elementwise(editor: Editor, operator: str, x: str, dtype: np.dtype[Any]) -> str:
    import numpy as np

    if operator == "Mul":
        return editor.op("Mul", x, x)
    if operator == "Abs" and dtype.kind == "u":
        return x
    if operator == "Log" and dtype.kind in "iu":
        return editor.cast(editor.op("Log", editor.cast(x, np.dtype(np.float64))), dtype)
    return editor.op(operator, x)


def _of_integers(
    editor: Editor, operator: str, x: str, dtype: np.dtype[Any], along: tuple[list[int], int]
) -> str:
    """A reduction of integers, in their type.

    Args:
        along: the axes, none for all, and whether they are kept with size 1.
    """
    import numpy as np

    double = np.dtype(np.float64)
    if operator == "ReduceL1":
        return _reduced(editor, "ReduceSum", _elementwise(editor, "Abs", x, dtype), along)
    if operator == "ReduceLogSumExp":
        return editor.cast(_reduced(editor, operator, editor.cast(x, double), along), dtype)
    wide = editor.cast(x, np.dtype(np.uint64 if dtype.kind == "u" else np.int64)) if dtype.itemsize < 8 else x
    if operator == "ReduceL2":
        total = _reduced(editor, "ReduceSum", editor.op("Mul", wide, wide), along)
        return editor.cast(editor.op("Sqrt", editor.cast(total, double)), dtype)
    total = _reduced(editor, "ReduceSum", wide, along)
    return editor.cast(editor.op("Log", editor.cast(total, double)), dtype)


def _reduced(editor: Editor, operator: str, x: str, along: tuple[list[int], int]) -> str:
    """A reduction; axes are an operand since opset 18, those of sums since 13."""
    import numpy as np

    axes, keepdims = along
    if not axes:
        return editor.op(operator, x, keepdims=keepdims)
    if editor.opset >= (13 if operator == "ReduceSum" else 18):
        return editor.op(operator, x, editor.const(np.asarray(axes, np.int64)), keepdims=keepdims)
    return editor.op(operator, x, axes=axes, keepdims=keepdims)

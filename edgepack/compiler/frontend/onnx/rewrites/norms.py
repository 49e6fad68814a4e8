"""LayerNormalization and RMSNormalization whose factor and summand are broadcast, and their other results.

The importer takes the number of normalised dimensions from the factor's rank: one of lower rank than that
would be another normalisation, without an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = ["layer_normalization", "rms_normalization"]

#: Elements of the largest factor that is stored as often as it is used: one kernel normalises then. Above
#: that it is a product behind the normalisation, which takes another pass, and no memory.
STORED = 4096


def layer_normalization(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Factor and summand as large as what is normalised; in simple operators where that is large, they differ
    between rows, the mean and the inverse deviation are asked for, or numbers have 64 bits."""
    x, shape, values = str(node.input[0]), editor.shape(node.input[0]), attributes(node)
    weights = [str(name) for name in node.input[1:] if name]
    if shape is None or any(editor.shape(name) is None for name in weights):
        return None
    axis = values.get("axis", -1) % len(shape)
    dtype = editor.dtype(x)
    if not any(node.output[1:]) and dtype.itemsize < 8:
        if all(editor.shape(name) == shape[axis:] for name in weights):
            return None
        stored = [_stored(editor, name, shape[axis:]) for name in weights]
        if None not in stored:
            return [editor.op("LayerNormalization", x, *(name for name in stored if name), **values)]
    mean = _mean(editor, x, (shape, axis))
    centred = editor.op("Sub", x, mean)
    root = _root(editor, centred, (shape, axis), dtype, values)
    y = editor.op("Mul", editor.op("Div", centred, root), weights[0])
    if len(weights) > 1:
        y = editor.op("Add", y, weights[1])
    results = [y, mean, editor.op("Div", editor.scalar(1, dtype), root)][: len(node.output)]
    return [
        results[0],
        *(
            _as_declared(editor, one, dtype, name)
            for one, name in zip(results[1:], node.output[1:], strict=True)
        ),
    ]


def rms_normalization(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The factor as large as what is normalised; in simple operators where that is large, or it differs
    between rows."""
    x, scale = (str(name) for name in node.input[:2])
    shape, values, factor = editor.shape(x), attributes(node), editor.shape(node.input[1])
    if shape is None or factor is None:
        return None
    axis = values.get("axis", -1) % len(shape)
    if factor == shape[axis:] and axis:
        return None
    stored = _stored(editor, scale, shape[axis:]) if axis else None
    if stored is not None:
        return [editor.op("RMSNormalization", x, stored, **values | {"axis": axis})]
    return [
        editor.op("Mul", editor.op("Div", x, _root(editor, x, (shape, axis), editor.dtype(x), values)), scale)
    ]


def _stored(editor: Editor, name: str, shape: Sequence[int]) -> str | None:
    """A factor repeated to a shape; None where it has dimensions beside that, or would be large."""
    import numpy as np

    own = list(editor.shape(name) or ())
    while len(own) > len(shape) and own[0] == 1:
        own = own[1:]
    padded = [*[1] * (len(shape) - len(own)), *own]
    fits = len(own) <= len(shape) and all(a in (1, b) for a, b in zip(padded, shape, strict=True))
    if not fits or prod(shape) > STORED:
        return None
    array = editor.constant(name)
    if array is not None:
        return editor.const(np.ascontiguousarray(np.broadcast_to(array.reshape(own), shape)))
    return editor.op("Expand", editor.reshape(name, own), editor.const(np.asarray(shape, np.int64)))


def _mean(editor: Editor, x: str, where: tuple[Sequence[int], int]) -> str:
    """The mean over the dimensions from one on, which are kept with size 1.

    Args:
        where: the shape, and the first of these dimensions.
    """
    import numpy as np

    axes = list(range(where[1], len(where[0])))
    if editor.opset >= 18:
        return editor.op("ReduceMean", x, editor.const(np.asarray(axes, np.int64)), keepdims=1)
    return editor.op("ReduceMean", x, axes=axes, keepdims=1)


def _root(
    editor: Editor,
    x: str,
    where: tuple[Sequence[int], int],
    dtype: np.dtype[Any],
    values: Mapping[str, Any],
) -> str:
    """sqrt(mean of squares + epsilon); arguments as of :func:`_mean`, the type, the node's attributes."""
    squares = _mean(editor, editor.op("Mul", x, x), where)
    epsilon = editor.scalar(values.get("epsilon", 1e-5), dtype)
    return editor.op("Sqrt", editor.op("Add", squares, epsilon))


def _as_declared(editor: Editor, x: str, dtype: np.dtype[Any], name: str) -> str:
    """A second result in the type that the model gives it."""
    wanted = editor.dtype(name) if name and editor.element(name) else dtype
    return x if not name or wanted == dtype else editor.cast(x, wanted)

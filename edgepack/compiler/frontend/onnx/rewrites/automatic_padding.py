"""The padding that a convolution or a pool leaves to its shapes, written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.sampling import max_pool_with_indices

if TYPE_CHECKING:
    import onnx

__all__ = ["conv", "max_pool", "pool"]


def conv(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Writes the ``pads`` that ``auto_pad`` stands for: the importer would pad the data before, as a copy."""
    weights, values = editor.shape(node.input[1]), attributes(node)
    padded = None if weights is None else _padded(values, editor.shape(node.input[0]), weights[2:])
    return None if padded is None else [editor.op("Conv", *node.input, **padded)]


def pool(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The same of a pool; what the importer makes of SAME_LOWER has another shape."""
    values = attributes(node)
    padded = _padded(values, editor.shape(node.input[0]), values["kernel_shape"])
    return None if padded is None else [editor.op(node.op_type, *node.input, **padded)]


def max_pool(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """The same of a MaxPool, whose second result is written out in simple operators."""
    if any(node.output[1:]):
        return max_pool_with_indices(editor, node)
    return pool(editor, node)


def _padded(
    values: dict[str, Any], shape: Sequence[int] | None, kernel: Sequence[int]
) -> dict[str, Any] | None:
    """The attributes with ``pads``; None where they do not say SAME.

    Args:
        shape: of the data, N C and one size or more.
        kernel: sizes of the window.
    """
    import numpy as np

    upper = values.get("auto_pad") == "SAME_UPPER"
    if shape is None or not (upper or values.get("auto_pad") == "SAME_LOWER"):
        return None
    size, ones = np.asarray(shape[2:], np.int64), np.ones(len(shape) - 2, np.int64)
    strides = np.asarray(values.get("strides", ones), np.int64)
    reach = (np.asarray(kernel, np.int64) - 1) * np.asarray(values.get("dilations", ones), np.int64) + 1
    total = np.maximum(0, (-(-size // strides) - 1) * strides + reach - size)  # formula of the ONNX standard
    small, large = total // 2, total - total // 2
    pads = [*small, *large] if upper else [*large, *small]
    kept = {k: v for k, v in values.items() if k not in ("auto_pad", "pads", "ceil_mode")}
    return {**kept, "pads": [int(p) for p in pads]}

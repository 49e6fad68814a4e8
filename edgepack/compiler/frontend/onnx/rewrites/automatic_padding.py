"""The padding that a convolution leaves to its shapes, written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["conv"]


def conv(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Writes the ``pads`` that ``auto_pad`` stands for: the importer would pad the data before, as a copy."""
    import numpy as np

    values = attributes(node)
    upper = values.get("auto_pad") == "SAME_UPPER"
    shapes = editor.shape(node.input[0]), editor.shape(node.input[1])
    if not (upper or values.get("auto_pad") == "SAME_LOWER") or None in shapes:
        return None
    size, kernel = (np.asarray(shape[2:], np.int64) for shape in shapes if shape is not None)
    ones = np.ones_like(size)
    strides = np.asarray(values.get("strides", ones), np.int64)
    reach = (kernel - 1) * np.asarray(values.get("dilations", ones), np.int64) + 1
    total = np.maximum(0, (-(-size // strides) - 1) * strides + reach - size)  # formula of the ONNX standard
    small, large = total // 2, total - total // 2
    pads = [*small, *large] if upper else [*large, *small]
    kept = {k: v for k, v in values.items() if k not in ("auto_pad", "pads")}
    return [editor.op("Conv", *node.input, **kept, pads=[int(p) for p in pads])]

"""Forms of operators from before opset 10, where what is an input today was an attribute."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import onnx

__all__ = ["slice_attributes"]


def slice_attributes(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """Slice of opset 1 (starts, ends, axes as attributes) as that of opset 10, which the importer reads."""
    import numpy as np

    values = attributes(node)
    if "starts" not in values:
        return None
    axes = values.get("axes", range(len(values["starts"])))
    bounds = [editor.const(np.asarray(item, np.int64)) for item in (values["starts"], values["ends"], axes)]
    return [editor.op("Slice", node.input[0], *bounds)]

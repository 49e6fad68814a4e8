"""ONNX Runtime's quantised parts of transformers (com.microsoft): embeddings, attention."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edgepack.compiler.frontend.onnx.rewrites.contrib import embedded, given, unmasked
from edgepack.compiler.frontend.onnx.rewrites.contrib_attention import Projection, projected_attention
from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes
from edgepack.compiler.frontend.onnx.rewrites.quantised import Quantised
from edgepack.compiler.frontend.onnx.rewrites.quantised_products import integer_matmul

if TYPE_CHECKING:
    import onnx

__all__ = ["qattention", "qembed_layer_norm"]


def qembed_layer_norm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QEmbedLayerNormalization: EmbedLayerNormalization of integer tables, whose rows are dequantised behind
    the Gather, so that the tables stay as small as they are."""
    import numpy as np

    ids, segments = node.input[:2]
    shape = editor.shape(ids)
    if shape is None:
        return None
    words, positions, kinds = (Quantised.of(node, i, i + 6, i + 11) for i in (2, 3, 4))
    gamma, beta = (Quantised.of(node, i, i + 6, i + 11).dequantised(editor) for i in (5, 6))
    at = editor.const(np.arange(shape[1], dtype=np.int64).reshape(1, -1))
    rows = [(words, ids), (positions, at), *([(kinds, segments)] if segments and kinds.x else [])]
    parts = [table.dequantised(editor, x=editor.op("Gather", table.x, place)) for table, place in rows]
    y, _ = embedded(editor, parts, np.dtype(np.float32), attributes(node), (gamma, beta))
    results = [y]
    if len(node.output) > 1 and node.output[1]:
        results.append(unmasked(editor, given(node, 7), shape))
    return results


def qattention(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """QAttention: Attention whose queries, keys and values are made by a product of integers."""
    import numpy as np

    values = attributes(node)
    x, weights = Quantised.of(node, 0, 3, 6), Quantised.of(node, 1, 4, 7)
    columns = editor.shape(weights.x)
    if columns is None or values.get("do_rotary", 0) or values.get("past_present_share_buffer", 0):
        return None
    made = integer_matmul(editor, x, weights)
    if given(node, 2):
        made = editor.op("Add", made, given(node, 2))
    projection = Projection(made, [columns[1] // 3] * 3, given(node, 5), given(node, 8))
    return projected_attention(editor, node, projection, np.dtype(np.float32))

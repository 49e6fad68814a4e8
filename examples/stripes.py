"""Writes the network of the examples: ``python stripes.py FILE.onnx [HEIGHT WIDTH]``.

It tells whether an image is plain or has horizontal or vertical stripes: four filters for edges (Sobel's),
how much of each there is, and a softmax. Its weights are written down here, so what it says is right.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

#: Of red, green and blue in what the eye sees (ITU-R BT.601).
LUMA = np.array([0.299, 0.587, 0.114], "f4")


def model(height: int, width: int) -> onnx.ModelProto:
    """``image`` float32[1, 3, height, width], from 0 to 1, gives ``classes`` float32[1, 3]."""
    across = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]], "f4")
    edges = np.stack([across, -across, across.T, -across.T])
    filters = edges[:, None] * LUMA[:, None, None]
    # The score of plain is fixed; those of stripes grow with the edges across them.
    scores = np.array([[0, 0, 20], [0, 0, 20], [0, 20, 0], [0, 20, 0]], "f4")
    weights = {"filters": filters, "scores": scores, "plain": np.array([2, 0, 0], "f4")}
    nodes = [
        helper.make_node("Conv", ["image", "filters"], ["edges"], kernel_shape=[3, 3]),
        helper.make_node("Relu", ["edges"], ["strengths"]),
        helper.make_node("GlobalAveragePool", ["strengths"], ["means"]),
        helper.make_node("Flatten", ["means"], ["features"]),
        helper.make_node("Gemm", ["features", "scores", "plain"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["classes"], axis=-1),
    ]
    graph = helper.make_graph(
        nodes,
        "stripes",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, [1, 3, height, width])],
        [helper.make_tensor_value_info("classes", TensorProto.FLOAT, [1, 3])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


if __name__ == "__main__":
    height, width = map(int, sys.argv[2:4] or (48, 64))
    Path(sys.argv[1]).write_bytes(model(height, width).SerializeToString())

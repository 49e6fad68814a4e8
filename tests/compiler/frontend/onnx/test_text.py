"""TfIdfVectorizer by standard operators, against ONNX Runtime's."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from edgepack.compiler.frontend.onnx.rewrites import apply
from workbench.models.evaluate import run_onnxruntime


def vectorizer(shape: list[int], mode: str, dtype: int, **sizes: int) -> onnx.ModelProto:
    """Counts two tokens, three pairs and a triple of a small vocabulary."""
    node = helper.make_node(
        "TfIdfVectorizer",
        ["x"],
        ["y"],
        mode=mode,
        pool_int64s=[2, 3, 0, 1, 3, 3, 1, 0, 1, 2, 1],
        ngram_counts=[0, 2, 8],
        ngram_indexes=[5, 1, 0, 3, 6, 2],
        weights=[0.5, 2.0, 1.5, 0.25, 3.0, 0.75],
        **{"min_gram_length": 1, "max_gram_length": 3, "max_skip_count": 2} | sizes,
    )
    values = [
        helper.make_tensor_value_info("x", dtype, shape),
        helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None),
    ]
    graph = helper.make_graph([node], "vectorizer", values[:1], values[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("shape", "mode", "sizes"),
    [
        ([3, 20], "TF", {}),
        ([3, 20], "IDF", {}),
        ([12], "TFIDF", {}),
        ([2, 9], "TFIDF", {"min_gram_length": 2, "max_gram_length": 2, "max_skip_count": 0}),
        ([2, 2], "TF", {}),
        ([1, 2], "TF", {"min_gram_length": 3}),
    ],
)
@pytest.mark.parametrize("dtype", [onnx.TensorProto.INT32, onnx.TensorProto.INT64])
def test_n_grams_are_counted_and_weighted(
    shape: list[int], mode: str, sizes: dict[str, int], dtype: int
) -> None:
    model = vectorizer(shape, mode, dtype, **sizes)
    rng = np.random.default_rng(5)
    inputs = {"x": rng.integers(0, 4, shape).astype(helper.tensor_dtype_to_np_dtype(dtype))}
    (wanted,) = run_onnxruntime(model, inputs)
    rewritten = apply(model)
    assert all(node.op_type != "TfIdfVectorizer" for node in rewritten.graph.node)
    (got,) = run_onnxruntime(rewritten, inputs)
    np.testing.assert_allclose(got, wanted, rtol=1e-6)

"""Operators of ONNX Runtime's own domain (com.microsoft), which its optimisers write, by standard ones.

What they compute is in ONNX Runtime's page of contributed operators (ContribOperators.md). Norms and
activations are written in the forms that :mod:`edgepack.compiler.graph.norms` and the epilogues know.
A rewrite returns None, and the operator is refused, where it is given what only ONNX Runtime's other
providers serve.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.onnx.rewrites.editor import Editor, attributes

if TYPE_CHECKING:
    import numpy as np
    import onnx

__all__ = [
    "embed_layer_norm",
    "embedded",
    "fused_conv",
    "fused_gemm",
    "fused_matmul",
    "given",
    "simplified_layer_norm",
    "skip_layer_norm",
    "skip_simplified_layer_norm",
    "unmasked",
]


def given(node: onnx.NodeProto, index: int) -> str:
    """The name of an optional input; "" where it is left out."""
    return str(node.input[index]) if len(node.input) > index else ""


def fused_matmul(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """FusedMatMul: alpha * A' B', where transBatchA moves A's first axis before its last one, and then transA
    swaps the last two."""
    values = attributes(node)
    operands = []
    for name, side in zip(node.input, "AB", strict=True):
        shape = editor.shape(name)
        swap, batch = values.get(f"trans{side}", 0), values.get(f"transBatch{side}", 0)
        if shape is None:
            return None
        order = list(range(len(shape)))
        if batch and len(shape) > 2:
            order = [*order[1:-1], 0, order[-1]]
        if swap and len(shape) > 1:
            order[-2:] = reversed(order[-2:])
        operands.append(name if order == sorted(order) else editor.op("Transpose", name, perm=order))
    product = editor.op("MatMul", *operands)
    alpha = values.get("alpha", 1.0)
    return [
        product
        if alpha == 1
        else editor.op("Mul", product, editor.scalar(alpha, editor.dtype(node.input[0])))
    ]


def fused_conv(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """FusedConv: activation(Conv(X, W, B) + Z)."""
    values = attributes(node)
    activation, params = values.pop("activation", ""), values.pop("activation_params", [])
    bias, added = given(node, 2), given(node, 3)
    x = editor.op("Conv", *node.input[:2], *([bias] if bias else []), **values)
    if added:
        x = editor.op("Add", x, added)
    result = _activated(editor, x, editor.dtype(node.input[0]), activation, params)
    return None if result is None else [result]


def fused_gemm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """FusedGemm: activation(Gemm(A, B, C))."""
    values = attributes(node)
    activation = values.pop("activation", "")
    params = [values.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    x = editor.op("Gemm", *[name for name in node.input if name], **values)
    known = [value for value in params if value is not None]
    result = _activated(editor, x, editor.dtype(node.input[0]), activation, known)
    return None if result is None else [result]


def _activated(
    editor: Editor, x: str, dtype: np.dtype[Any], activation: str, params: Sequence[float]
) -> str | None:
    """The activation of a fused operator, by its name in ONNX, with its parameters in ONNX's order."""
    if activation == "":
        return x
    if activation in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign"):
        return editor.op(activation, x)
    if activation == "Clip" and len(params) == 2:
        return editor.op("Clip", x, *(editor.scalar(value, dtype) for value in params))
    if activation not in ("LeakyRelu", "Elu", "ThresholdedRelu", "HardSigmoid"):
        return None
    named: dict[str, Any] = dict(zip(("alpha", "beta"), params, strict=False))
    return editor.op(activation, x, **named)


def skip_layer_norm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """SkipLayerNormalization: LayerNorm(input + skip + bias) * gamma + beta, and the mean, the inverse
    deviation and the sum where they are asked for."""
    x, skip, gamma = node.input[:3]
    total = _sum(editor, x, skip, given(node, 4))
    epsilon = attributes(node).get("epsilon", 1e-12)
    y, mean, inverse = _layer_norm(editor, total, editor.dtype(x), epsilon, (gamma, given(node, 3)))
    return [y, mean, inverse, total][: len(node.output)]


def skip_simplified_layer_norm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """SkipSimplifiedLayerNormalization: RMSNorm(input + skip + bias) * gamma, and the sum."""
    x, skip, gamma = node.input[:3]
    if any(node.output[1:3]):
        return None
    total = _sum(editor, x, skip, given(node, 3))
    y, _ = _rms_norm(editor, total, editor.dtype(x), attributes(node).get("epsilon", 1e-12), gamma)
    return [y, "", "", total][: len(node.output)]


def simplified_layer_norm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """SimplifiedLayerNormalization: x / sqrt(mean(x^2) + epsilon) * scale along the last axis."""
    values, x = attributes(node), str(node.input[0])
    shape = editor.shape(x)
    if shape is None or values.get("axis", -1) % len(shape) != len(shape) - 1:
        return None
    y, inverse = _rms_norm(editor, x, editor.dtype(x), values.get("epsilon", 1e-5), node.input[1])
    return [y, inverse][: len(node.output)]


def embed_layer_norm(editor: Editor, node: onnx.NodeProto) -> Sequence[str] | None:
    """EmbedLayerNormalization: LayerNorm of the sum of three embeddings, how many tokens of each row the mask
    keeps, and the sum."""
    import numpy as np

    ids, segments, words, positions, kinds, gamma, beta = node.input[:7]
    shape = editor.shape(ids)
    if shape is None:
        return None
    at = given(node, 8) or editor.const(np.arange(shape[1], dtype=np.int64).reshape(1, -1))
    parts = [editor.op("Gather", words, ids), editor.op("Gather", positions, at)]
    if segments and kinds:
        parts.append(editor.op("Gather", kinds, segments))
    y, total = embedded(editor, parts, editor.dtype(words), attributes(node), (gamma, beta))
    results = [y]
    if len(node.output) > 1 and node.output[1]:
        results.append(unmasked(editor, given(node, 7), shape))
    return [*results, *([""] * (2 - len(results))), total][: len(node.output)]


def embedded(
    editor: Editor,
    parts: Sequence[str],
    dtype: np.dtype[Any],
    values: dict[str, Any],
    weights: tuple[str, str],
) -> tuple[str, str]:
    """LayerNorm of the sum of embeddings of the given type, and the sum.

    Args:
        values: the node's attributes.
        weights: names of gamma and beta.
    """
    total = parts[0]
    for part in parts[1:]:
        total = editor.op("Add", total, part)
    return _layer_norm(editor, total, dtype, values.get("epsilon", 1e-12), weights)[0], total


def unmasked(editor: Editor, mask: str, shape: tuple[int, ...]) -> str:
    """int32 [batch]: how many tokens of each row have 1 in the mask; 0 without a mask."""
    import numpy as np

    if not mask:
        return editor.const(np.zeros(shape[0], np.int32))
    # As floats: sums of integers have no vectors on every CPU, and these numbers are exact.
    counted = editor.reduce("ReduceSum", editor.cast(mask, np.dtype(np.float32)), 1)
    return editor.cast(editor.reshape(counted, [shape[0]]), np.dtype(np.int32))


def _sum(editor: Editor, x: str, skip: str, bias: str) -> str:
    total = editor.op("Add", x, skip)
    return editor.op("Add", total, bias) if bias else total


def _layer_norm(
    editor: Editor, x: str, dtype: np.dtype[Any], epsilon: float, weights: tuple[str, str]
) -> tuple[str, str, str]:
    """(x - mean) / sqrt(mean of squares + epsilon) * gamma + beta along the last axis, the mean, and the
    inverse of the root; inside in float32."""
    import numpy as np

    gamma, beta = weights
    wide = _widened(editor, x, dtype)
    mean = editor.reduce("ReduceMean", wide, -1)
    centred = editor.op("Sub", wide, mean)
    variance = editor.reduce("ReduceMean", editor.op("Mul", centred, centred), -1)
    single = np.dtype(np.float32)
    root = editor.op("Sqrt", editor.op("Add", variance, editor.scalar(epsilon, single)))
    y = editor.op("Mul", editor.op("Div", centred, root), _widened(editor, gamma, dtype))
    if beta:
        y = editor.op("Add", y, _widened(editor, beta, dtype))
    inverse = editor.op("Div", editor.scalar(1.0, single), root)
    return (y if dtype == single else editor.cast(y, dtype)), mean, inverse


def _rms_norm(editor: Editor, x: str, dtype: np.dtype[Any], epsilon: float, gamma: str) -> tuple[str, str]:
    """x / sqrt(mean of squares + epsilon) * gamma along the last axis, and the inverse of the root."""
    import numpy as np

    wide, single = _widened(editor, x, dtype), np.dtype(np.float32)
    squares = editor.reduce("ReduceMean", editor.op("Mul", wide, wide), -1)
    root = editor.op("Sqrt", editor.op("Add", squares, editor.scalar(epsilon, single)))
    y = editor.op("Mul", editor.op("Div", wide, root), _widened(editor, gamma, dtype))
    inverse = editor.op("Div", editor.scalar(1.0, single), root)
    return (y if dtype == single else editor.cast(y, dtype)), inverse


def _widened(editor: Editor, x: str, dtype: np.dtype[Any]) -> str:
    """The value in float32."""
    import numpy as np

    array = editor.constant(x)
    single = np.dtype(np.float32)
    if dtype == single:
        return x
    return editor.const(array.astype(np.float32)) if array is not None else editor.cast(x, single)

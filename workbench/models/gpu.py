"""Small models that between them have each form of a GPU's kernel, of a size that the test chooses."""

from __future__ import annotations

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["attention", "causal_attention", "convolution", "masked_attention", "products", "rows"]


def convolution(
    batch: int = 2, channels: int = 20, height: int = 17, width: int = 33, outputs: int = 40
) -> onnx.ModelProto:
    """Tiles that stick out on all sides, padding, and a tail that reads another tensor."""
    g = Graph("convolution", seed=1)
    x = g.input("x", (batch, channels, height, width))
    other = g.input("other", (batch, outputs, (height + 1) // 2, (width + 1) // 2))
    weights = g.weight(outputs, channels, 3, 3), g.weight(outputs)
    y = g.op("Conv", x, *weights, strides=[2, 2], pads=[1, 1, 1, 1])
    g.op("Relu", g.op("Add", y, other), name="y")
    g.output("y")
    return g.model()


def products(
    batch: int = 3, height: int = 70, terms: int = 41, width: int = 50, others: int = 300
) -> onnx.ModelProto:
    """A batch of products of activations, one by a vector, and a tail with an elementary function."""
    g = Graph("products", seed=2)
    a, b = g.input("a", (batch, height, terms)), g.input("b", (batch, terms, width))
    y = g.op("Tanh", g.op("MatMul", a, b), name="y")
    g.op("MatMul", g.op("ReduceMean", y, axes=[1], keepdims=0), g.weight(width, others), name="vector")
    g.output("y")
    g.output("vector")
    return g.model()


def attention(heads: int = 2, tokens: int = 41, width: int = 24) -> onnx.ModelProto:
    """Products of activations and of weights, transposed and not, with depths that are no multiple of 8, and
    grouped and pointwise convolutions behind a layer norm: each way to read a factor of float16."""
    g = Graph("attention", seed=4, opset=17)
    x = g.input("x", (1, tokens, heads * width))
    x = g.op("LayerNormalization", x, g.weight(heads * width), g.weight(heads * width), axis=-1)
    parts = []
    for _ in range(3):
        y = g.op(
            "Reshape",
            g.op("MatMul", x, g.weight(heads * width, heads * width)),
            g.const([1, tokens, heads, width]),
        )
        parts.append(g.op("Transpose", y, perm=[0, 2, 1, 3]))
    scores = g.op("MatMul", parts[0], g.op("Transpose", parts[1], perm=[0, 1, 3, 2]))
    y = g.op("MatMul", g.op("Softmax", scores, axis=-1), parts[2])
    y = g.op("Reshape", g.op("Transpose", y, perm=[0, 2, 1, 3]), g.const([1, tokens, 6, 8]))
    y = g.op("Relu", g.op("Conv", y, g.weight(34, tokens, 1, 1), g.weight(34)))
    y = g.op("Conv", y, g.weight(40, 17, 3, 3), g.weight(40), pads=[1, 1, 1, 1], group=2)
    g.op(
        "Conv",
        g.op("Relu", y),
        g.weight(20, 40, 3, 3),
        g.weight(20),
        pads=[2, 1, 0, 1],
        strides=[1, 2],
        name="y",
    )
    g.output("y")
    return g.model()


def masked_attention(
    lengths: tuple[int, int, int] = (3, 37, 45), widths: tuple[int, int] = (24, 20), count: int = 2
) -> onnx.ModelProto:
    """Attention with a mask of -inf, of which some rows are whole, and one whose NaN become 0; heads that lie
    beside each other, and sizes that are no multiple of a tile.

    Args:
        lengths: heads, rows and keys.
        widths: of queries and keys, and of values.
        count: of attentions.
    """
    g = Graph("masked", seed=5)
    heads, rows, keys = lengths
    mask = np.where(np.tri(rows, keys, 3) > 0, 0, -np.inf).astype(np.float32)
    mask[[4, rows // 2 + 2]] = -np.inf
    for number in range(count):
        parts = []
        for name, length, width in (("q", rows, widths[0]), ("k", keys, widths[0]), ("v", keys, widths[1])):
            x = g.input(f"{name}{number}", (1, length, heads * width))
            x = g.op("Reshape", x, g.const([0, 0, heads, width]))
            parts.append(g.op("Transpose", x, perm=[0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]))
        scores = g.op("Add", g.op("Mul", g.op("MatMul", *parts[:2]), g.const(np.float32(0.2))), g.const(mask))
        weights = g.op("Softmax", scores, axis=-1)
        if number:
            weights = g.op("Where", g.op("IsNaN", weights), g.const(np.float32(0)), weights)
        g.op("MatMul", weights, parts[2], name=f"y{number}")
        g.output(f"y{number}")
    return g.model()


def causal_attention() -> onnx.ModelProto:
    """The operator Attention with a causal mask; two heads share keys and values."""
    node = onnx.helper.make_node("Attention", ["q", "k", "v"], ["y"], is_causal=1)
    sizes = {"q": (1, 4, 35, 16), "k": (1, 2, 35, 16), "v": (1, 2, 35, 12), "y": (1, 4, 35, 12)}
    values = [onnx.helper.make_tensor_value_info(name, 1, shape) for name, shape in sizes.items()]
    graph = onnx.helper.make_graph([node], "causal", values[:3], values[3:])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 23)], ir_version=10)


def rows(count: int = 5) -> onnx.ModelProto:
    """Reductions along memory and across it, longer than a work group and no power of two."""
    g = Graph("rows", seed=3, opset=17)
    x = g.input("x", (count, 700))
    s = g.op("Softmax", x, axis=-1, name="soft")
    g.op("LayerNormalization", s, g.weight(700), g.weight(700), axis=-1, name="norm")
    g.op("ReduceMax", g.op("Reshape", x, g.const([70, 10 * count])), axes=[0], keepdims=0, name="across")
    for name in ("soft", "norm", "across"):
        g.output(name)
    return g.model()

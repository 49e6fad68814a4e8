"""Small models that between them have each form of a GPU's kernel, of a size that the test chooses."""

from __future__ import annotations

import onnx

from tests.models.builder import Graph

__all__ = ["convolution", "products", "rows"]


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

"""Transformer encoders, small by default; the graphs have the forms that torch exports."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["SEGFORMER_B0", "bert", "segformer", "vit"]


def bert(
    seed: int = 0,
    *,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    vocabulary: int = 1000,
    batch: int | str = "batch",
    length: int | str = "sequence",
    decomposed_norm: bool = True,
    distilled: bool = False,
) -> onnx.ModelProto:
    """BERT-style encoder: int64 ``input_ids`` and ``attention_mask`` in; last_hidden_state and pooled out.

    ``distilled``, as DistilBERT is: no token types, nothing pooled.

    The shape arithmetic (Shape, Gather, Concat, Expand, Slice of the position ids) is that of torch's
    exporter.
    """
    g = Graph("bert", seed=seed, opset=14 if decomposed_norm else 17)
    ids, mask = (
        g.input("input_ids", [batch, length], "int64"),
        g.input("attention_mask", [batch, length], "int64"),
    )
    x = g.op("Gather", g.weight(vocabulary, width, std=0.5), ids)
    size = g.op("Gather", g.op("Shape", ids), g.const(1))
    positions = g.op(
        "Slice",
        g.const(np.arange(512)[None]),
        g.const([0]),
        g.op("Unsqueeze", size, g.const([0])),
        g.const([1]),
    )
    x = g.op("Add", x, g.op("Gather", g.weight(512, width, std=0.2), positions))
    if not distilled:
        zero = onnx.helper.make_tensor("zero", 7, [1], [0])
        types = g.op("ConstantOfShape", g.op("Shape", ids), value=zero)
        x = g.op("Add", x, g.op("Gather", g.weight(2, width, std=0.2), types))
    x = g.layer_norm(x, width, decomposed=decomposed_norm)
    bias = _mask_bias(g, mask)
    for _ in range(layers):
        y = _attention(g, x, x, width, heads, bias=bias, dynamic=True)
        x = g.layer_norm(g.op("Add", x, y), width, decomposed=decomposed_norm)
        y = g.linear(g.act(g.linear(x, width, 4 * width), "gelu"), 4 * width, width, gain=2.0)
        x = g.layer_norm(g.op("Add", x, y), width, decomposed=decomposed_norm)
    g.op("Identity", x, name="last_hidden_state")
    g.output("last_hidden_state", shape=[batch, length, width])
    if not distilled:
        first = g.op("Gather", x, g.const(0), axis=1)
        g.op("Tanh", g.gemm(first, width, width), name="pooled")
        g.output("pooled", shape=[batch, width])
    return g.model()


def vit(
    seed: int = 0,
    *,
    size: int = 64,
    patch: int = 16,
    layers: int = 2,
    width: int = 64,
    heads: int = 4,
    classes: int = 100,
) -> onnx.ModelProto:
    """Vision transformer with a class token; ViT-B/16 has size 224, layers 12, width 768, heads 12."""
    g = Graph("vit", seed=seed)
    x = g.conv(
        g.input("pixels", [1, 3, size, size]),
        3,
        width,
        patch,
        stride=patch,
        pads=[0] * 4,
        bias=True,
        gain=1.0,
    )
    tokens = (size // patch) ** 2
    x = g.op("Transpose", g.op("Reshape", x, g.const([1, width, tokens])), perm=[0, 2, 1])
    x = g.op("Concat", g.weight(1, 1, width, std=0.5), x, axis=1)
    x = g.op("Add", x, g.weight(1, tokens + 1, width, std=0.2))
    for _ in range(layers):
        normed = g.layer_norm(x, width)
        x = g.op("Add", x, _attention(g, normed, normed, width, heads, fused=True, tokens=tokens + 1))
        y = g.act(g.linear(g.layer_norm(x, width), width, 4 * width), "gelu")
        x = g.op("Add", x, g.linear(y, 4 * width, width, gain=2.0))
    x = g.op("Gather", g.layer_norm(x, width), g.const(0), axis=1)
    g.op("Gemm", x, g.weight(classes, width), g.weight(classes, std=0.1), transB=1, name="logits")
    g.output("logits")
    return g.model()


#: Stages of SegFormer: width, heads, kernel and stride of the patches, factor by which keys are fewer.
SEGFORMER_B0 = ((32, 1, 7, 4, 8), (64, 2, 3, 2, 4), (160, 5, 3, 2, 2), (256, 8, 3, 2, 1))


def segformer(
    seed: int = 0,
    size: int = 64,
    *,
    stages: Sequence[tuple[int, int, int, int, int]] = ((16, 1, 7, 4, 4), (32, 2, 3, 2, 2)),
    blocks: int = 1,
    decoder: int = 32,
    classes: int = 5,
) -> onnx.ModelProto:
    """SegFormer-like: overlapping patches, attention over fewer keys, convolutional MLP, bilinear heads.

    SegFormer-B0 has the stages ``SEGFORMER_B0`` of 2 blocks each, and a decoder of width 256.
    """
    g = Graph("segformer", seed=seed)
    x, cin, features = g.input("pixels", [1, 3, size, size]), 3, []
    for width, heads, kernel, stride, reduction in stages:
        x = g.conv(x, cin, width, kernel, stride=stride, bias=True, gain=1.0)
        size //= stride
        x = g.layer_norm(_to_tokens(g, x, width, size), width)
        for _ in range(blocks):
            x = _segformer_block(g, x, width, size, heads, reduction)
        x = _to_image(g, g.layer_norm(x, width), width, size)
        features.append((x, width, size))
        cin = width
    target = features[0][2]
    heads_out = []
    for feature, width, extent in features:
        y = _to_image(g, g.linear(_to_tokens(g, feature, width, extent), width, decoder), decoder, extent)
        sizes = g.const([1, decoder, target, target])
        heads_out.append(
            g.op(
                "Resize", y, "", "", sizes, mode="linear", coordinate_transformation_mode="pytorch_half_pixel"
            )
        )
    x = g.conv_bn(g.op("Concat", *heads_out, axis=1), len(stages) * decoder, decoder, 1)
    x = g.conv(x, decoder, classes, 1, bias=True)
    g.nodes.append(onnx.helper.make_node("Identity", [x], ["segments"]))
    g.output("segments")
    return g.model()


def _segformer_block(g: Graph, x: str, width: int, size: int, heads: int, reduction: int) -> str:
    """Attention over keys of ``reduction`` x ``reduction`` pixels each, then two products around a 3x3."""
    normed = keys = g.layer_norm(x, width)
    if reduction > 1:
        image = _to_image(g, normed, width, size)
        y = g.conv(image, width, width, reduction, stride=reduction, pads=[0] * 4, bias=True)
        keys = g.layer_norm(_to_tokens(g, y, width, size // reduction), width)
    x = g.op("Add", x, _attention(g, normed, keys, width, heads))
    y = _to_image(g, g.linear(g.layer_norm(x, width), width, 4 * width), 4 * width, size)
    y = g.conv(y, 4 * width, 4 * width, 3, groups=4 * width, bias=True)
    return g.op("Add", x, g.linear(g.act(_to_tokens(g, y, 4 * width, size), "gelu"), 4 * width, width))


def _mask_bias(g: Graph, mask: str) -> str:
    """(1 - mask) * -10000, broadcast to batch x 1 x 1 x length."""
    wide = g.op("Cast", g.op("Unsqueeze", g.op("Unsqueeze", mask, g.const([1])), g.const([2])), to=1)
    return g.op("Mul", g.op("Sub", g.const(1.0), wide), g.const(-10000.0))


def _attention(
    g: Graph,
    x: str,
    memory: str,
    width: int,
    heads: int,
    *,
    bias: str = "",
    dynamic: bool = False,
    fused: bool = False,
    tokens: int = 0,
) -> str:
    """Multi-head attention. ``dynamic``: shapes computed with Shape; ``fused``: one product for q, k, v."""
    head = width // heads
    if fused:
        qkv = g.op("Reshape", g.linear(x, width, 3 * width), g.const([1, tokens, 3, heads, head]))
        qkv = g.op("Transpose", qkv, perm=[2, 0, 3, 1, 4])
        q, k, v = (g.op("Gather", qkv, g.const(i), axis=0) for i in range(3))
        k = g.op("Transpose", k, perm=[0, 1, 3, 2])
    else:
        q = _split_heads(g, g.linear(x, width, width), heads, head, perm=[0, 2, 1, 3], dynamic=dynamic)
        k = _split_heads(g, g.linear(memory, width, width), heads, head, perm=[0, 2, 3, 1], dynamic=dynamic)
        v = _split_heads(g, g.linear(memory, width, width), heads, head, perm=[0, 2, 1, 3], dynamic=dynamic)
    scores = g.op("Div", g.op("MatMul", q, k), g.const(float(np.sqrt(head))))
    if bias:
        scores = g.op("Add", scores, bias)
    y = g.op("Transpose", g.op("MatMul", g.op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    if dynamic:
        leading = g.op("Slice", g.op("Shape", y), g.const([0]), g.const([2]))
        shape = g.op("Concat", leading, g.const([width]), axis=0)
    else:
        shape = g.const([0, 0, width])
    return g.linear(g.op("Reshape", y, shape), width, width)


def _split_heads(g: Graph, x: str, heads: int, head: int, *, perm: list[int], dynamic: bool) -> str:
    if dynamic:
        sizes = [
            g.op("Unsqueeze", g.op("Gather", g.op("Shape", x), g.const(i)), g.const([0])) for i in (0, 1)
        ]
        shape = g.op("Concat", *sizes, g.const([heads]), g.const([head]), axis=0)
    else:
        shape = g.const([0, 0, heads, head])
    return g.op("Transpose", g.op("Reshape", x, shape), perm=perm)


def _to_tokens(g: Graph, x: str, width: int, size: int) -> str:
    return g.op("Transpose", g.op("Reshape", x, g.const([1, width, size * size])), perm=[0, 2, 1])


def _to_image(g: Graph, x: str, width: int, size: int) -> str:
    return g.op("Reshape", g.op("Transpose", x, perm=[0, 2, 1]), g.const([1, width, size, size]))

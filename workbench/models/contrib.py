"""Small models around one operator each of ONNX Runtime's own domain (com.microsoft), as its optimisers write
them: ``CONTRIB[name]()`` gives a seeded model with static shapes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["CONTRIB"]

#: An input: shape, and dtype where it is not float32; a NumPy array is a constant, "" one that is left out.
Given = tuple[Any, ...] | np.ndarray | str
CONTRIB: dict[str, Callable[[], onnx.ModelProto]] = {}

RNG = np.random.default_rng(3)


def weight(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(shape[0])).astype("f4")


def case(
    name: str,
    op: str,
    inputs: Sequence[Given],
    outputs: Sequence[str] = ("y",),
    domain: str = "com.microsoft",
    **attributes: Any,
) -> None:
    def make() -> onnx.ModelProto:
        g = Graph(name)
        names = []
        for index, one in enumerate(inputs):
            if isinstance(one, np.ndarray):
                names.append(g.const(one))
            elif isinstance(one, str):
                names.append("")
            else:
                *shape, dtype = one if isinstance(one[-1], str) else (*one, "float32")
                what = "mask" if dtype == "int32" and "mask" in name else "input"
                names.append(g.input(f"{what}_{index}", shape, dtype))
        node = onnx.helper.make_node(op, names, list(outputs), name="node", domain=domain, **attributes)
        g.nodes.append(node)
        for output in outputs:
            if output:
                g.outputs.append(onnx.ValueInfoProto(name=output))
        model = g.model()
        return model

    CONTRIB[name] = make


# products ---------------------------------------------------------------------------------------------------

case("ms_fusedmatmul", "FusedMatMul", [(2, 3, 5, 4), (2, 3, 5, 6)], transA=1, alpha=0.25)
case("ms_fusedmatmul_b", "FusedMatMul", [(2, 3, 4, 5), (2, 3, 6, 5)], transB=1)
case("ms_fusedmatmul_batch", "FusedMatMul", [(4, 2, 3, 5), (2, 3, 5, 6)], transBatchA=1)
case("ms_fusedmatmul_all", "FusedMatMul", [(5, 2, 3, 4), (6, 2, 3, 5)], transA=1, transB=1, transBatchA=1,
     transBatchB=1)  # fmt: skip
case("ms_fusedgemm", "FusedGemm", [(3, 5), weight(5, 4), weight(4)], activation="Relu")
case("ms_fusedgemm_leaky", "FusedGemm", [(5, 3), weight(4, 5), weight(4)], activation="LeakyRelu",
     activation_alpha=0.3, transA=1, transB=1, alpha=0.5, beta=2.0)  # fmt: skip
X, W, B = (1, 3, 7, 7), weight(4, 3, 3, 3), weight(4)
case("ms_fusedconv", "FusedConv", [X, W, B], activation="Relu", pads=[1, 1, 1, 1])
case(
    "ms_fusedconv_sum", "FusedConv", [X, W, B, (1, 4, 4, 4)], activation="Relu", pads=[1] * 4, strides=[2, 2]
)
case("ms_fusedconv_clip", "FusedConv", [X, W], activation="Clip", activation_params=[0.0, 0.3])
case("ms_fusedconv_sigmoid", "FusedConv", [X, W], activation="HardSigmoid", activation_params=[0.3, 0.4])

# norms ------------------------------------------------------------------------------------------------------

ROWS, WIDTH = (2, 6, 16), 16
ONES, SHIFT = 1 + 0.2 * weight(WIDTH), weight(WIDTH)
case("ms_skipln", "SkipLayerNormalization", [ROWS, ROWS, ONES, SHIFT, SHIFT], ("y", "", "", "sum"))
case("ms_skipln_broadcast", "SkipLayerNormalization", [ROWS, (6, 16), ONES], epsilon=1e-3)
case("ms_simplified", "SimplifiedLayerNormalization", [ROWS, ONES], domain="", axis=-1, epsilon=1e-3)
case("ms_skipsimplified", "SkipSimplifiedLayerNormalization", [ROWS, ROWS, ONES, SHIFT], ("y", "", "", "sum"))
IDS, TABLES = (2, 6, "int32"), [weight(11, WIDTH), weight(8, WIDTH), weight(2, WIDTH)]
case("ms_embed_mask", "EmbedLayerNormalization", [IDS, IDS, *TABLES, ONES, SHIFT, IDS], ("y", "count"))
case("ms_embed_sum", "EmbedLayerNormalization", [IDS, "", *TABLES[:2], "", ONES, SHIFT, "", IDS],
     ("y", "", "sum"))  # fmt: skip

# attention --------------------------------------------------------------------------------------------------

QKV, BIAS = weight(WIDTH, 3 * WIDTH), weight(3 * WIDTH)
case("ms_attention", "Attention", [ROWS, QKV, BIAS], num_heads=4)
case("ms_attention_mask", "Attention", [ROWS, QKV, BIAS, (2, 6, "int32")], num_heads=4)
case("ms_attention_mask_3d", "Attention", [ROWS, QKV, BIAS, (2, 6, 6, "int32")], num_heads=2)
case("ms_attention_causal", "Attention", [ROWS, QKV, BIAS], num_heads=4, unidirectional=1)
case("ms_attention_lengths", "Attention", [ROWS, QKV, BIAS, np.int32([4, 6])], num_heads=4)
case("ms_attention_starts", "Attention", [ROWS, QKV, BIAS, np.int32([5, 6, 0, 2])], num_heads=4)
case("ms_attention_past", "Attention", [ROWS, QKV, BIAS, "", (2, 2, 4, 5, 4)], ("y", "present"), num_heads=4,
     unidirectional=1)  # fmt: skip
case("ms_attention_sizes", "Attention", [ROWS, weight(WIDTH, 40), weight(40), "", "", (2, 4, 6, 6)],
     num_heads=4, qkv_hidden_sizes=[16, 16, 8], scale=0.7)  # fmt: skip
KEYS = (2, 9, 16)
case("ms_mha", "MultiHeadAttention", [ROWS, KEYS, KEYS, BIAS], num_heads=4)
case("ms_mha_mask", "MultiHeadAttention", [ROWS, KEYS, KEYS, "", (2, 9, "int32")], num_heads=2)
case("ms_mha_causal", "MultiHeadAttention", [ROWS, ROWS, ROWS], num_heads=2, unidirectional=1)
case("ms_mha_cross", "MultiHeadAttention", [ROWS, (2, 4, 9, 4), (2, 4, 9, 4), BIAS], num_heads=4)
PAST = (2, 4, 5, 4)
case("ms_mha_past", "MultiHeadAttention", [ROWS, ROWS, ROWS, "", "", (1, 4, 6, 11), PAST, PAST],
     ("y", "key", "value"), num_heads=4)  # fmt: skip
LENGTHS, TOTAL = np.int32([5, 5]), np.asarray(6, np.int32)
ANGLES = [f(np.outer(np.arange(8), 0.5 ** np.arange(8))).astype("f4") for f in (np.cos, np.sin)]
COSINE, SINE = (f(np.outer(np.arange(8), [1.0, 0.1])).astype("f4") for f in (np.cos, np.sin))
WIDE, GROUPED = (2, 6, 32), (2, 6, 16)
case("ms_gqa", "GroupQueryAttention", [WIDE, GROUPED, GROUPED, "", "", LENGTHS, TOTAL],
     ("y", "key", "value"), num_heads=4, kv_num_heads=2)  # fmt: skip
case("ms_gqa_rotary", "GroupQueryAttention", [(2, 6, 128), "", "", "", "", LENGTHS, TOTAL, *ANGLES],
     ("y", "key", "value"), num_heads=4, kv_num_heads=2, do_rotary=1, local_window_size=3)  # fmt: skip
case("ms_gqa_cap", "GroupQueryAttention", [WIDE, WIDE, WIDE, "", "", LENGTHS, TOTAL],
     ("y", "key", "value"), num_heads=4, kv_num_heads=4, softcap=2.0, scale=1.0)  # fmt: skip
PLACES = (2, 6, "int64")
case("ms_rotary", "RotaryEmbedding", [ROWS, PLACES, COSINE, SINE])
case("ms_rotary_heads", "RotaryEmbedding", [(2, 4, 6, 4), np.int64([1]), COSINE, SINE], interleaved=1)
case("ms_rotary_part", "RotaryEmbedding", [(2, 4, 6, 7), PLACES, COSINE, SINE], num_heads=4,
     rotary_embedding_dim=4)  # fmt: skip


# networks ---------------------------------------------------------------------------------------------------


def _block(g: Graph, x: str, attended: str, width: int, gelu: str) -> str:
    """What follows attention in a transformer, after the optimiser: norms of sums, and products."""
    ms = {"domain": "com.microsoft"}

    def norm(a: str, b: str) -> str:
        weights = [g.const(1 + 0.1 * weight(width)), g.const(weight(width)), g.const(weight(width))]
        return g.op("SkipLayerNormalization", a, b, *weights, epsilon=1e-5, **ms)

    x = norm(g.op("MatMul", attended, g.weight(width, width)), x)
    inner = g.op("MatMul", x, g.weight(width, 2 * width))
    inner = g.op(gelu, inner, g.const(weight(2 * width)), **ms)
    return norm(g.op("MatMul", inner, g.weight(2 * width, width)), x)


def encoder() -> onnx.ModelProto:
    """A BERT of two layers as ONNX Runtime's transformer optimiser leaves it."""
    g, width = Graph("encoder", seed=4), 32
    ids, mask = (g.input(name, [2, 20], "int32") for name in ("ids", "mask"))
    tables = [g.const(weight(50, width)), g.const(weight(32, width))]
    weights = [g.const(1 + 0.1 * weight(width)), g.const(weight(width))]
    inputs = (ids, "", *tables, "", *weights, mask)
    x, count = g.ops("EmbedLayerNormalization", *inputs, outputs=2, domain="com.microsoft")
    for _ in range(2):
        qkv = [g.const(weight(width, 3 * width)), g.const(weight(3 * width))]
        attended = g.op("Attention", x, *qkv, count, domain="com.microsoft", num_heads=2)
        x = _block(g, x, attended, width, "BiasGelu")
    g.outputs.append(onnx.ValueInfoProto(name=g.op("Identity", x, name="y")))
    return g.model()


def decoder() -> onnx.ModelProto:
    """A layer of a Llama on a prompt: root mean square norms, rotated heads that share keys."""
    g, width = Graph("decoder", seed=4), 64
    ms = {"domain": "com.microsoft"}
    x = g.input("x", [1, 24, width])
    y = g.op("SimplifiedLayerNormalization", x, g.const(1 + 0.1 * weight(width)), axis=-1, epsilon=1e-5)
    query, key, value = (g.op("MatMul", y, g.weight(width, n)) for n in (width, width // 2, width // 2))
    tables = [g.const(f(np.outer(np.arange(24), 0.5 ** np.arange(8))).astype("f4")) for f in (np.cos, np.sin)]
    sizes = [g.const(np.int32([23])), g.const(np.asarray(24, np.int32))]
    attended = g.op("GroupQueryAttention", query, key, value, "", "", *sizes, *tables, **ms, outputs=3,
                    num_heads=4, kv_num_heads=2, do_rotary=1)  # fmt: skip
    made = g.op("MatMul", attended, g.weight(width, width))
    weights = g.const(1 + 0.1 * weight(width))
    norm, total = g.ops("SkipSimplifiedLayerNormalization", made, x, weights, outputs=2, **ms)
    g.nodes[-1].output[1:] = ["", "", total]
    up, gate = (g.op("MatMul", norm, g.weight(width, 96)) for _ in range(2))
    inner = g.op("Mul", g.op("QuickGelu", gate, alpha=1.0, **ms), up)
    g.op("Add", g.op("MatMul", inner, g.weight(96, width)), total, name="y")
    g.outputs.append(onnx.ValueInfoProto(name="y"))
    return g.model()

"""Greedy decoders: loops that append a token with each trip, and end behind one that ends the sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper

from workbench.models.builder import Graph

__all__ = [
    "DECODERS",
    "LAST",
    "SMALL",
    "Sizes",
    "decoder",
    "lists_of_sentences",
    "lists_of_tokens",
    "sentences",
]

#: The token that ends a sequence.
LAST = 0


@dataclass(frozen=True)
class Sizes:
    """How large a decoder is.

    Attributes:
        words: tokens that there are.
        width: of their embeddings.
        heads: of attention.
        layers: of a transformer.
        places: the longest sequence of one.
    """

    words: int = 12
    width: int = 16
    heads: int = 2
    layers: int = 1
    places: int = 128


SMALL = Sizes()

#: Adds the nodes of a trip: of the body, names of tokens so far, of what is carried beside them, and of the
#: trip's number, scores for the next token and what is carried on.
Trip = Callable[[Graph, Sizes, str, Sequence[str], str], tuple[str, list[str]]]


def _last(g: Graph, x: str, axis: int) -> str:
    """The last element along an axis, which stays."""
    return g.op("Slice", x, g.const([-1]), g.const([2**63 - 1]), g.const([axis]))


def _linear(g: Graph, x: str, cin: int, cout: int) -> str:
    return g.op("Add", g.op("MatMul", x, g.weight(cin, cout, std=cin**-0.5)), g.weight(cout, std=0.3))


def _embedded(g: Graph, size: Sizes, ids: str) -> str:
    return g.op("Gather", g.weight(size.words, size.width, std=1.0), ids, axis=0)


def of_a_cell(g: Graph, size: Sizes, ids: str, states: Sequence[str], step: str) -> tuple[str, list[str]]:
    """A GRU cell, whose state is carried; what it reads is the last token."""
    del step
    width, (h,) = size.width, states
    x = g.op("Squeeze", _embedded(g, size, _last(g, ids, 1)), g.const([1]))
    gates = g.op("Sigmoid", g.op("Add", _linear(g, x, width, 2 * width), _linear(g, h, width, 2 * width)))
    z, r = g.ops("Split", gates, g.const([width, width]), outputs=2, axis=1)
    new = g.op("Tanh", g.op("Add", _linear(g, x, width, width), g.op("Mul", r, _linear(g, h, width, width))))
    h = g.op("Add", new, g.op("Mul", z, g.op("Sub", h, new)))
    return _linear(g, h, width, size.words), [h]


def of_all_tokens_again(
    g: Graph, size: Sizes, ids: str, states: Sequence[str], step: str
) -> tuple[str, list[str]]:
    """A GRU layer over all tokens, anew in each trip."""
    del step
    x = g.op("Transpose", _embedded(g, size, ids), perm=[1, 0, 2])
    weights = [g.weight(1, 3 * size.width, size.width, std=0.3) for _ in range(2)]
    _, h = g.ops("GRU", x, *weights, outputs=2, hidden_size=size.width)
    return _linear(g, g.op("Squeeze", h, g.const([0])), size.width, size.words), list(states)


def _heads(g: Graph, size: Sizes, x: str) -> str:
    """[1, length, width] as [1, heads, length, depth], as PyTorch exports it: with sizes of a Shape."""
    sizes = g.op("Slice", g.op("Shape", x), g.const([0]), g.const([2]))
    shape = g.op("Concat", sizes, g.const([size.heads, size.width // size.heads]), axis=0)
    return g.op("Transpose", g.op("Reshape", x, shape), perm=[0, 2, 1, 3])


def _mixed(g: Graph, size: Sizes, weights: str, values: str) -> str:
    """Heads behind each other again."""
    mixed = g.op("Transpose", g.op("MatMul", weights, values), perm=[0, 2, 1, 3])
    return g.op("Reshape", mixed, g.const([1, -1, size.width]))


def _scores(g: Graph, size: Sizes, queries: str, keys: str) -> str:
    scores = g.op("MatMul", queries, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    return g.op("Div", scores, g.const(float(np.sqrt(size.width // size.heads))))


def _projected(g: Graph, size: Sizes, x: str) -> list[str]:
    """Queries, keys and values."""
    normal = g.layer_norm(x, size.width)
    return [_heads(g, size, _linear(g, normal, size.width, size.width)) for _ in range(3)]


def _layer(g: Graph, size: Sizes, x: str, attended: str) -> str:
    """A layer behind its attention."""
    width = size.width
    x = g.op("Add", x, _linear(g, attended, width, width))
    wide = g.op("Relu", _linear(g, g.layer_norm(x, width), width, 2 * width))
    return g.op("Add", x, _linear(g, wide, 2 * width, width))


def of_a_transformer(
    g: Graph, size: Sizes, ids: str, states: Sequence[str], step: str
) -> tuple[str, list[str]]:
    """A transformer over all tokens, anew in each trip, with a causal mask made of their number."""
    del step
    length = g.op("Gather", g.op("Shape", ids), g.const(1), axis=0)
    wide = g.op("Unsqueeze", length, g.const([0]))
    places = g.op("Slice", g.weight(size.places, size.width, std=1.0), g.const([0]), wide, g.const([0]))
    x = g.op("Add", _embedded(g, size, ids), places)
    square = g.op("Concat", wide, wide, axis=0)
    ones = g.op("ConstantOfShape", square, value=helper.make_tensor("", TensorProto.FLOAT, [1], [1.0]))
    hidden = g.op("Cast", g.op("Trilu", ones, g.const(1), upper=1), to=TensorProto.BOOL)
    for _ in range(size.layers):
        q, k, v = _projected(g, size, x)
        masked = g.op("Where", hidden, g.const(float("-inf")), _scores(g, size, q, k))
        x = _layer(g, size, x, _mixed(g, size, g.op("Softmax", masked, axis=-1), v))
    last = g.op("Gather", x, g.const(-1), axis=1)
    return _linear(g, last, size.width, size.words), list(states)


def of_a_cache(g: Graph, size: Sizes, ids: str, states: Sequence[str], step: str) -> tuple[str, list[str]]:
    """A transformer for the last token, whose keys and values are appended to those before, as a 1 is to a
    mask."""
    *caches, mask = states
    x = _embedded(g, size, _last(g, ids, 1))
    x = g.op("Add", x, g.op("Gather", g.weight(size.places, size.width, std=1.0), step, axis=0))
    mask = g.op("Concat", mask, g.const(np.ones((1, 1), np.float32)), axis=1)
    hidden = g.op("Unsqueeze", g.op("Mul", g.op("Sub", g.const(1.0), mask), g.const(-1e9)), g.const([1, 2]))
    carried = []
    for layer in range(size.layers):
        q, *new = _projected(g, size, x)
        pairs = zip(caches[2 * layer : 2 * layer + 2], new, strict=True)
        keys, values = (g.op("Concat", before, one, axis=2) for before, one in pairs)
        scores = g.op("Add", _scores(g, size, q, keys), hidden)
        x = _layer(g, size, x, _mixed(g, size, g.op("Softmax", scores, axis=-1), values))
        carried += [keys, values]
    last = g.op("Gather", x, g.const(-1), axis=1)
    return _linear(g, last, size.width, size.words), [*carried, mask]


def _nothing(size: Sizes) -> list[tuple[int | None, ...]]:
    del size
    return []


def _caches(size: Sizes) -> list[tuple[int | None, ...]]:
    return [*[(1, size.heads, None, size.width // size.heads)] * (2 * size.layers), (1, None)]


#: What a trip does, and the shapes of what is carried beside tokens: None for the size that grows.
DECODERS: dict[str, tuple[Trip, Callable[[Sizes], list[tuple[int | None, ...]]]]] = {
    "cell": (of_a_cell, lambda size: [(1, size.width)]),
    "again": (of_all_tokens_again, _nothing),
    "transformer": (of_a_transformer, _nothing),
    "cache": (of_a_cache, _caches),
}


def decoder(
    kind: str, size: Sizes = SMALL, *, trips: int | None = None, ends: bool = True, first: int = 1
) -> onnx.ModelProto:
    """A decoder of tokens: ``prompt`` int64[1,first], ``bias`` float[1,words] of scores, by which the token
    that ends can be made likely or not; and ``most`` int64, trips, where these are not constant.

    Args:
        ends: behind that token, else behind as many trips as there are.
        first: tokens of the prompt.
    """
    trip, shapes = DECODERS[kind][0], DECODERS[kind][1](size)
    body = Graph("body")
    scores, states = trip(body, size, "ids", [f"state{i}" for i in range(len(shapes))], "step")
    token = body.op("ArgMax", body.op("Add", scores, "bias"), axis=-1, keepdims=1)
    ids = body.op("Concat", "ids", token, axis=1, name="ids_after")
    ended = body.op("Equal", token, body.const([[LAST]]))
    going = body.op("Squeeze", body.op("Not", ended), body.const([0, 1]))
    going = body.op("Identity", going if ends else "going")
    results = [body.op("Identity", state) for state in states]
    whole, described = TensorProto.INT64, _described
    graph = helper.make_graph(
        body.nodes,
        "trip",
        [described("step", [], whole), described("going", [], TensorProto.BOOL),
         described("ids", [1, None], whole),
         *(described(f"state{i}", shape) for i, shape in enumerate(shapes))],
        [described(going, [], TensorProto.BOOL), described(ids, [1, None], whole),
         *(described(name, shape) for name, shape in zip(results, shapes, strict=True))],
        list(body.initializers.values()),
    )  # fmt: skip
    g = Graph(f"decoder_{kind}")
    g.input("prompt", [1, first], "int64")
    g.input("bias", [1, size.words])
    count = g.input("most", [], "int64") if trips is None else g.const(trips)
    starts = [g.const(np.zeros([extent or 0 for extent in shape], np.float32)) for shape in shapes]
    begins = g.const(np.asarray(True))
    g.ops("Loop", count, begins, "prompt", *starts, outputs=1 + len(shapes), name="tokens", body=graph)
    g.output("tokens", "int64", [1, "length"])
    return g.model()


def _described(name: str, shape: Sequence[int | None], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def lists_of_tokens(model: onnx.ModelProto, likely: float, seed: int, most: int) -> dict[str, np.ndarray]:
    """Inputs of a decoder whose last token is more likely by ``likely``."""
    rng = np.random.default_rng(seed)
    shapes = {v.name: [dim.dim_value for dim in v.type.tensor_type.shape.dim] for v in model.graph.input}
    bias = rng.standard_normal(shapes["bias"]).astype(np.float32)
    bias[0, LAST] = likely
    found = {"prompt": rng.integers(1, bias.shape[1], shapes["prompt"]), "bias": bias}
    return found | ({"most": np.asarray(most, np.int64)} if "most" in shapes else {})


def sentences() -> onnx.ModelProto:
    """A loop over ``count`` sentences; each begins with a token of ``starts`` int64[4] and grows in a
    loop inside, up to six tokens; the sum of the means of their embeddings and of their lengths."""
    g, rng = Graph("sentences"), np.random.default_rng(0)
    words = g.const(rng.standard_normal((9, 8)).astype(np.float32))
    weights = g.const(rng.standard_normal((8, 9)).astype(np.float32))
    last, end, six = g.const(-1), g.const([LAST]), g.const(6)
    whole, truth = TensorProto.INT64, TensorProto.BOOL
    body = Graph("bodies")
    word = body.op("Gather", words, body.op("Gather", "tokens", last, axis=0), axis=0)
    state = body.op("Tanh", body.op("Add", word, "state"))
    token = body.op("ArgMax", body.op("MatMul", state, weights), axis=0, keepdims=1)
    tokens = body.op("Concat", "tokens", token, axis=0)
    going = body.op("Squeeze", body.op("Not", body.op("Equal", token, end)))
    inner = helper.make_graph(
        list(body.nodes),
        "step",
        [_described("j", [], whole), _described("on", [], truth), _described("tokens", [None], whole),
         _described("state", [8])],
        [_described(going, [], truth), _described(tokens, [None], whole), _described(state, [8])],
    )  # fmt: skip
    of_step = len(body.nodes)
    first = body.op("Reshape", body.op("Gather", "starts", "i"), g.const([1]))
    found, after = body.ops("Loop", six, "", first, "before", outputs=2, body=inner)
    mean = body.op("ReduceMean", body.op("Gather", words, found, axis=0), axes=[0], keepdims=0)
    length = body.op("Cast", body.op("Shape", found), to=TensorProto.FLOAT)
    total = body.op("Add", "sum", body.op("Add", mean, length))
    go = body.op("Identity", "go")
    outer = helper.make_graph(
        body.nodes[of_step:],
        "each",
        [
            _described("i", [], whole),
            _described("go", [], truth),
            *(_described(n, [8]) for n in ("sum", "before")),
        ],
        [_described(go, [], truth), _described(total, [8]), _described(after, [8])],
    )
    g.input("count", [], "int64")
    g.input("starts", [4], "int64")
    zeros = g.const(np.zeros(8, np.float32))
    g.ops("Loop", "count", "", zeros, zeros, outputs=2, name="total", body=outer)
    g.output("total", shape=[8])
    return g.model()


def lists_of_sentences(count: int) -> dict[str, np.ndarray]:
    """Inputs of :func:`sentences`."""
    starts = np.random.default_rng(count).integers(1, 9, 4)
    return {"count": np.asarray(count, np.int64), "starts": starts}

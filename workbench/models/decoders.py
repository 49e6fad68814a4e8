"""Greedy decoders: loops that append a token with each trip, and end behind one that ends the sequence."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto, helper

from workbench.models.builder import Graph

__all__ = ["DECODERS", "LAST", "decoder", "lists_of_tokens"]

#: Tokens, and how wide their embeddings are.
WORDS, WIDTH = 12, 16

#: The token that ends a sequence.
LAST = 0

#: Of attention.
HEADS = 2

#: Adds the nodes of a trip: of the body, names of tokens so far, of what is carried beside them, and of the
#: trip's number, scores for the next token and what is carried on.
Trip = Callable[[Graph, str, Sequence[str], str], tuple[str, list[str]]]


def _last(g: Graph, x: str, axis: int) -> str:
    """The last element along an axis, which stays."""
    end = 2**63 - 1
    return g.op("Slice", x, g.const([-1]), g.const([end]), g.const([axis]))


def _linear(g: Graph, x: str, cin: int, cout: int) -> str:
    return g.op("Add", g.op("MatMul", x, g.weight(cin, cout, std=cin**-0.5)), g.weight(cout, std=0.3))


def _embedded(g: Graph, ids: str) -> str:
    return g.op("Gather", g.weight(WORDS, WIDTH, std=1.0), ids, axis=0)


def of_a_cell(g: Graph, ids: str, states: Sequence[str], step: str) -> tuple[str, list[str]]:
    """A GRU cell, whose state is carried; what it reads is the last token."""
    del step
    x = g.op("Squeeze", _embedded(g, _last(g, ids, 1)), g.const([1]))
    (h,) = states
    gates = g.op("Sigmoid", g.op("Add", _linear(g, x, WIDTH, 2 * WIDTH), _linear(g, h, WIDTH, 2 * WIDTH)))
    z, r = g.ops("Split", gates, g.const([WIDTH, WIDTH]), outputs=2, axis=1)
    new = g.op("Tanh", g.op("Add", _linear(g, x, WIDTH, WIDTH), g.op("Mul", r, _linear(g, h, WIDTH, WIDTH))))
    kept = g.op("Mul", z, g.op("Sub", h, new))
    h = g.op("Add", new, kept)
    return _linear(g, h, WIDTH, WORDS), [h]


def of_all_tokens_again(g: Graph, ids: str, states: Sequence[str], step: str) -> tuple[str, list[str]]:
    """A GRU layer over all tokens, anew in each trip."""
    del step
    x = g.op("Transpose", _embedded(g, ids), perm=[1, 0, 2])
    weights = [g.weight(1, 3 * WIDTH, WIDTH, std=0.3), g.weight(1, 3 * WIDTH, WIDTH, std=0.3)]
    _, h = g.ops("GRU", x, *weights, outputs=2, hidden_size=WIDTH)
    return _linear(g, g.op("Squeeze", h, g.const([0])), WIDTH, WORDS), list(states)


def _heads(g: Graph, x: str) -> str:
    """[1, length, WIDTH] as [1, heads, length, depth], as PyTorch exports it: with sizes of a Shape."""
    sizes = g.op("Slice", g.op("Shape", x), g.const([0]), g.const([2]))
    shape = g.op("Concat", sizes, g.const([HEADS, WIDTH // HEADS]), axis=0)
    return g.op("Transpose", g.op("Reshape", x, shape), perm=[0, 2, 1, 3])


def _mixed(g: Graph, weights: str, values: str) -> str:
    """Heads behind each other again."""
    mixed = g.op("Transpose", g.op("MatMul", weights, values), perm=[0, 2, 1, 3])
    return g.op("Reshape", mixed, g.const([1, -1, WIDTH]))


def _scores(g: Graph, queries: str, keys: str) -> str:
    scores = g.op("MatMul", queries, g.op("Transpose", keys, perm=[0, 1, 3, 2]))
    return g.op("Div", scores, g.const(float(np.sqrt(WIDTH // HEADS))))


def _fed_forward(g: Graph, x: str) -> str:
    wide = g.op("Relu", _linear(g, g.layer_norm(x, WIDTH), WIDTH, 2 * WIDTH))
    return g.op("Add", x, _linear(g, wide, 2 * WIDTH, WIDTH))


def of_a_transformer(g: Graph, ids: str, states: Sequence[str], step: str) -> tuple[str, list[str]]:
    """A transformer's layer over all tokens, anew in each trip, with a causal mask made of their number."""
    del step
    length = g.op("Gather", g.op("Shape", ids), g.const(1), axis=0)
    wide = g.op("Unsqueeze", length, g.const([0]))
    places = g.op("Slice", g.weight(40, WIDTH, std=1.0), g.const([0]), wide, g.const([0]))
    x = g.op("Add", _embedded(g, ids), places)
    normal = g.layer_norm(x, WIDTH)
    q, k, v = (_heads(g, _linear(g, normal, WIDTH, WIDTH)) for _ in range(3))
    square = g.op("Concat", wide, wide, axis=0)
    ones = g.op("ConstantOfShape", square, value=helper.make_tensor("", TensorProto.FLOAT, [1], [1.0]))
    hidden = g.op("Cast", g.op("Trilu", ones, g.const(1), upper=1), to=TensorProto.BOOL)
    masked = g.op("Where", hidden, g.const(float("-inf")), _scores(g, q, k))
    x = g.op("Add", x, _linear(g, _mixed(g, g.op("Softmax", masked, axis=-1), v), WIDTH, WIDTH))
    x = _fed_forward(g, x)
    last = g.op("Gather", x, g.const(-1), axis=1)
    return _linear(g, last, WIDTH, WORDS), list(states)


def of_a_cache(g: Graph, ids: str, states: Sequence[str], step: str) -> tuple[str, list[str]]:
    """A transformer's layer for the last token, whose keys and values are appended to those before, as a 1 is
    to a mask."""
    keys, values, mask = states
    x = _embedded(g, _last(g, ids, 1))
    x = g.op("Add", x, g.op("Gather", g.weight(40, WIDTH, std=1.0), step, axis=0))
    normal = g.layer_norm(x, WIDTH)
    q, k, v = (_heads(g, _linear(g, normal, WIDTH, WIDTH)) for _ in range(3))
    keys, values = g.op("Concat", keys, k, axis=2), g.op("Concat", values, v, axis=2)
    mask = g.op("Concat", mask, g.const(np.ones((1, 1), np.float32)), axis=1)
    hidden = g.op("Mul", g.op("Sub", g.const(1.0), mask), g.const(-1e9))
    scores = g.op("Add", _scores(g, q, keys), g.op("Unsqueeze", hidden, g.const([1, 2])))
    x = g.op("Add", x, _linear(g, _mixed(g, g.op("Softmax", scores, axis=-1), values), WIDTH, WIDTH))
    last = g.op("Gather", _fed_forward(g, x), g.const(-1), axis=1)
    return _linear(g, last, WIDTH, WORDS), [keys, values, mask]


#: What a trip does, and the shapes of what is carried beside tokens: None for the size that grows.
DECODERS: dict[str, tuple[Trip, Sequence[Sequence[int | None]]]] = {
    "cell": (of_a_cell, [(1, WIDTH)]),
    "again": (of_all_tokens_again, []),
    "transformer": (of_a_transformer, []),
    "cache": (of_a_cache, [(1, HEADS, None, WIDTH // HEADS)] * 2 + [(1, None)]),
}


def decoder(
    kind: str, *, seed: int = 0, trips: int | None = None, ends: bool = True, first: int = 1
) -> onnx.ModelProto:
    """A decoder of tokens: ``prompt`` int64[1,first], ``bias`` float[1,WORDS] of scores, by which the token
    that ends can be made likely or not; and ``most`` int64, trips, where these are not constant.

    Args:
        ends: behind that token, else behind as many trips as there are.
        first: tokens of the prompt.
    """
    trip, shapes = DECODERS[kind]
    body = Graph("body", seed=seed)
    scores, states = trip(body, "ids", [f"state{i}" for i in range(len(shapes))], "step")
    scores = body.op("Add", scores, "bias")
    token = body.op("ArgMax", scores, axis=-1, keepdims=1)
    ids = body.op("Concat", "ids", token, axis=1, name="ids_after")
    going = body.op(
        "Squeeze", body.op("Not", body.op("Equal", token, body.const([[LAST]]))), body.const([0, 1])
    )
    going = body.op("Identity", going if ends else "going")
    results = [body.op("Identity", state) for state in states]

    def described(
        name: str, shape: Sequence[int | None], dtype: int = TensorProto.FLOAT
    ) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, shape)

    whole = TensorProto.INT64
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
    g = Graph(f"decoder_{kind}", seed=seed)
    g.input("prompt", [1, first], "int64")
    g.input("bias", [1, WORDS])
    count = g.input("most", [], "int64") if trips is None else g.const(trips)
    starts = [g.const(np.zeros([size or 0 for size in shape], np.float32)) for shape in shapes]
    g.ops("Loop", count, g.const(np.asarray(True)), "prompt", *starts, outputs=1 + len(shapes), name="tokens",
          body=graph)  # fmt: skip
    g.output("tokens", "int64", [1, "length"])
    return g.model()


def _described(name: str, shape: Sequence[int | None], dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def lists_of_tokens(model: onnx.ModelProto, likely: float, seed: int, most: int) -> dict[str, np.ndarray]:
    """Inputs of a decoder whose last token is more likely by ``likely``."""
    rng = np.random.default_rng(seed)
    bias = rng.standard_normal((1, WORDS)).astype(np.float32)
    bias[0, LAST] = likely
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    found = {"prompt": rng.integers(1, WORDS, shape), "bias": bias}
    return found | ({"most": np.asarray(most, np.int64)} if len(model.graph.input) > 2 else {})

"""Loops that append a row with each trip, and compute one thing of all rows: an operator each."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

from workbench.models.builder import Graph

__all__ = ["CHAINS", "growing"]


def _bounds(g: Graph, *bounds: int) -> list[str]:
    return [g.const([number]) for number in bounds]


def _length(g: Graph, x: str) -> str:
    return g.op("Gather", g.op("Shape", x), g.const([1]), axis=0)


def _weighted(g: Graph, x: str) -> str:
    """The sum of rows [1,length,4] by weights of their places."""
    weights = g.op("Slice", g.weight(40, 1, std=1.0), g.const([0]), _length(g, x), g.const([0]))
    return g.op("ReduceSum", g.op("Mul", x, weights), g.const([1]), keepdims=0)


def _attention(g: Graph, x: str) -> str:
    scores = g.op(
        "MatMul", g.op("Slice", x, *_bounds(g, -1, 2**63 - 1, 1)), g.op("Transpose", x, perm=[0, 2, 1])
    )
    return g.op("MatMul", g.op("Softmax", scores, axis=-1), g.op("Exp", x))


def _layer(operator: str, gates: int, direction: str = "forward") -> Callable[[Graph, str], str]:
    def build(g: Graph, x: str) -> str:
        directions = 2 if direction == "bidirectional" else 1
        weights = [g.weight(directions, gates * 3, width, std=0.5) for width in (4, 3)]
        rows = g.op("Transpose", g.op("Exp", x), perm=[1, 0, 2])
        y, _ = g.ops(operator, rows, *weights, outputs=2, hidden_size=3, direction=direction)
        return g.op("ReduceMax", y, axes=[0], keepdims=0)

    return build


def _whole(g: Graph, x: str) -> str:
    return g.op("Cast", g.op("Mul", x, g.const(10.0)), to=TensorProto.INT64)


def _places(g: Graph, x: str) -> str:
    """0, 1, .. as many as there are rows."""
    return g.op("Range", g.const(0), g.op("Squeeze", _length(g, x), g.const([0])), g.const(1))


def _sizes(g: Graph, x: str, *behind: int) -> str:
    return g.op("Concat", g.const([1]), _length(g, x), g.const(list(behind)), axis=0)


def _behind(g: Graph, x: str, *others: str) -> str:
    return _weighted(
        g, g.op("Concat", *[g.op("Exp", name) if name == x else name for name in others], axis=1)
    )


def _chosen(g: Graph, x: str) -> str:
    """The first row or the last one, in turn."""
    turn = g.op("Mod", g.op("Add", "step", g.const(1)), g.const(2))
    return g.op("Gather", x, g.op("Neg", turn), axis=1)


def _triangle(g: Graph, x: str) -> str:
    square = g.op("MatMul", x, g.op("Transpose", x, perm=[0, 2, 1]))
    return g.op("ReduceSum", g.op("Trilu", square, g.const(-1), upper=0), keepdims=0)


def _one_hot(g: Graph, x: str) -> str:
    wide = g.op("OneHot", _whole(g, x), g.const([9]), g.const([0.5, 2.0]))
    return _weighted(g, g.op("ReduceSum", wide, g.const([3]), keepdims=0))


def _divided(g: Graph, x: str) -> str:
    by = g.op("Add", g.op("Abs", _whole(g, x)), g.const([1]))
    return g.op("ReduceSum", g.op("Div", g.const([100]), by), keepdims=0)


def _matrices(g: Graph, x: str) -> tuple[str, str]:
    return g.op("Flatten", g.op("Exp", x), axis=2), g.op("Squeeze", x, g.const([0]))


def _products(g: Graph, x: str) -> str:
    one, other = _matrices(g, x)
    return g.op("MatMul", g.op("Transpose", one, perm=[1, 0]), other)


def _either(g: Graph, x: str) -> str:
    even = g.op("Equal", g.op("Mod", "step", g.const(2)), g.const(0))
    return g.op("If", even, then_branch=_branch("Exp", x), else_branch=_branch("Sin", x))


def _looked_up(g: Graph, x: str) -> str:
    rows = g.op("Gather", g.weight(40, 4), _places(g, x))
    return _weighted(g, g.op("Unsqueeze", rows, g.const([0])))


Chain = Callable[[Graph, str], str]


def _reduced(operator: str, before: str = "Exp") -> Chain:
    return lambda g, x: g.op(operator, g.op(before, x), axes=[1], keepdims=0)


def _sliced(*bounds: int) -> Chain:
    return lambda g, x: _weighted(g, g.op("Slice", g.op("Exp", x), *_bounds(g, *bounds, 1)))


#: By name, what makes a tensor of a known shape of one [1,length,4], whose padding is not 0.
CHAINS: dict[str, Chain] = {
    **{op: _reduced(op) for op in ("ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2", "ReduceLogSumExp")},
    "ReduceProd": _reduced("ReduceProd", "Cos"),
    "all": lambda g, x: g.op("ReduceSum", g.op("Exp", x), keepdims=0),
    "softmax": lambda g, x: _weighted(g, g.op("Softmax", x, axis=1)),
    "log_softmax": lambda g, x: g.op("ReduceMin", g.op("LogSoftmax", x, axis=1), axes=[1]),
    "attention": _attention,
    "first": lambda g, x: g.op("ArgMax", g.op("Sub", g.op("Neg", x), g.const(9.0)), axis=1),
    "top": lambda g, x: g.ops("TopK", x, g.const([2]), axis=1, outputs=2)[0],
    "sums": lambda g, x: _weighted(g, g.op("CumSum", g.op("Exp", x), g.const(1))),
    "sums_behind": lambda g, x: _weighted(g, g.op("CumSum", g.op("Exp", x), g.const(1), reverse=1)),
    "last": lambda g, x: g.op("Gather", g.op("Exp", x), g.const([-1, 0, -2]), axis=1),
    "chosen": _chosen,
    "but_the_first": _sliced(1, 2**31),
    "but_the_last": _sliced(0, -1),
    "last_two": _sliced(-2, 2**31),
    "behind_itself": lambda g, x: _behind(g, x, x, "x_row", x),
    "behind_others": lambda g, x: _behind(g, x, g.weight(1, 3, 4), x),
    "before_others": lambda g, x: _behind(g, x, x, g.weight(1, 3, 4)),
    "counted": lambda g, x: g.op("ReduceSum", _places(g, x), g.const([0]), keepdims=0),
    "halves": lambda g, x: _weighted(g, g.ops("Split", x, g.const([2, 2]), axis=2, outputs=2)[1]),
    "expanded": lambda g, x: _weighted(g, g.op("Expand", g.weight(1, 1, 4), _sizes(g, x, 4))),
    "repeated": lambda g, x: _weighted(g, g.op("Tile", g.weight(1, 1, 4), _sizes(g, x, 1))),
    "filled": lambda g, x: _weighted(g, g.op("Exp", g.op("ConstantOfShape", _sizes(g, x, 1)))),
    "flat": lambda g, x: g.op("ReduceMax", g.op("Reshape", x, g.const([-1])), keepdims=0),
    "products": _products,
    "gemm": lambda g, x: g.op("Gemm", *_matrices(g, x), transA=1),
    "rows": lambda g, x: _weighted(g, g.layer_norm(g.linear(x, 4, 4), 4)),
    "triangle": _triangle,
    "one_hot": _one_hot,
    "divided": _divided,
    "looked_up": _looked_up,
    "gru": _layer("GRU", 3),
    "lstm_both_ways": _layer("LSTM", 4, "bidirectional"),
    "rnn_from_the_end": _layer("RNN", 1, "reverse"),
    "branch": _either,
}


def _branch(operator: str, x: str) -> onnx.GraphProto:
    g = Graph("branch")
    total = g.op("ReduceMean", g.op(operator, x), axes=[1], name=f"{operator}_of_branch")
    out = helper.make_tensor_value_info(total, TensorProto.FLOAT, None)
    return helper.make_graph(g.nodes, "branch", [], [out])


def growing(chains: dict[str, Chain], trips: int = 7, *, ends: bool = False) -> onnx.ModelProto:
    """A loop that appends a row to two [1,length,4] with each trip; its results are those of the last trip.

    Args:
        ends: behind the trip whose number is the input ``last``, if that comes earlier; all rows are an
            output then.
    """
    body = Graph("body", seed=1)
    row = body.op(
        "Mul", "x_row", body.op("Cast", body.op("Add", "step", body.const(1)), to=TensorProto.FLOAT)
    )
    whole = body.op("Concat", "x_before", body.op("Sin", row), axis=1)
    results = [body.op("Cast", chain(body, whole), to=TensorProto.FLOAT) for chain in chains.values()]
    results = [
        body.op("ReduceSum", body.op("Reshape", r, body.const([-1])), body.const([0])) for r in results
    ]
    going = body.op("Less", "step", "last") if ends else body.op("Identity", "going")

    def value(name: str, dtype: int, shape: list[int | None]) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, dtype, shape)

    number, truth, real = TensorProto.INT64, TensorProto.BOOL, TensorProto.FLOAT
    graph = helper.make_graph(
        body.nodes,
        "body",
        [value("step", number, []), value("going", truth, []), value("x_before", real, [1, None, 4]),
         *(value(f"{name}_before", real, [1]) for name in chains)],
        [value(going, truth, []), value(whole, real, [1, None, 4]), *(value(r, real, [1]) for r in results)],
        list(body.initializers.values()),
    )  # fmt: skip
    g = Graph("growing")
    g.input("x", [1, 2, 4])
    g.input("x_row", [1, 1, 4])
    if ends:
        g.input("last", [], "int64")
    count = g.const(trips)
    starts = [g.const(np.zeros(1, np.float32)) for _ in chains]
    names = g.ops("Loop", count, "", "x", *starts, outputs=1 + len(starts), name="looped", body=graph)
    if ends:
        g.output(names[0], shape=[1, "length", 4])
    for name in names[1:]:
        g.output(name, shape=[1])
    return g.model()

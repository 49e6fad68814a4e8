"""Small networks that enlarge rounding: right programs differ in more than the last bits."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

from workbench.models.builder import Graph

__all__ = ["chaotic", "loop", "recurrent", "variance"]


def variance(mean: float = 100.0, rows: int = 64, channels: int = 64, factor: float = 1.0) -> onnx.ModelProto:
    """A layer normalisation by E[x^2] - E[x]^2, as JAX's exports write it: of values near ``mean`` little but
    rounding is left.

    Args:
        factor: of the variance: another one than 1 is a defect.
    """
    g = Graph("variance", seed=1)
    x = g.op(
        "Add", g.op("MatMul", g.input("x", [rows, 32]), g.weight(32, channels)), g.const(np.float32(mean))
    )
    average = g.op("ReduceMean", x, axes=[1], keepdims=1)
    squares = g.op("ReduceMean", g.op("Mul", x, x), axes=[1], keepdims=1)
    apart = g.op("Max", g.op("Sub", squares, g.op("Mul", average, average)), g.const(np.float32(0)))
    wide = g.op("Mul", g.op("Add", apart, g.const(np.float32(1e-6))), g.const(np.float32(factor)))
    g.op("Div", g.op("Sub", x, average), g.op("Sqrt", wide), name="y")
    g.output("y")
    return g.model()


def chaotic(trips: int = 60) -> onnx.ModelProto:
    """The logistic map: whatever its input, after some trips rounding decides on all of it."""
    g = Graph("chaotic", seed=1)
    x = g.op("Sigmoid", g.input("x", [64]))
    for _ in range(trips):
        x = g.op("Mul", g.op("Mul", x, g.op("Sub", g.const(np.float32(1)), x)), g.const(np.float32(3.9)))
    g.output(g.op("Identity", x, name="y"))
    return g.model()


def recurrent(steps: int = 1000, gain: float = 3.0) -> onnx.ModelProto:
    """An RNN whose states run apart unless its inputs are large: those hold its units at their ends."""
    g = Graph("recurrent", seed=2)
    x, weights = g.input("x", [steps, 1, 8]), g.weight(1, 16, 8, std=0.5)
    g.op("RNN", x, weights, g.weight(1, 16, 16, std=gain / 4), name="y", hidden_size=16)
    g.output("y")
    return g.model()


def loop(trips: int, gain: float) -> onnx.ModelProto:
    """A product with weights and a sine in each trip."""
    g = Graph("loop", seed=3)
    weights, x = g.weight(8, 8, std=gain), g.input("x", [1, 8])
    values = [helper.make_tensor_value_info("number", TensorProto.INT64, [])]
    values += [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in ("going", "again")]
    values += [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("state", "next")]
    nodes = [helper.make_node("Identity", ["going"], ["again"])]
    nodes += [helper.make_node("MatMul", ["state", weights], ["product"])]
    nodes += [helper.make_node("Sin", ["product"], ["next"])]
    number, going, again, state, following = values
    body = helper.make_graph(nodes, "body", [number, going, state], [again, following])
    g.op("Loop", g.const(np.asarray(trips)), "", x, name="y", body=body)
    g.output("y")
    return g.model()

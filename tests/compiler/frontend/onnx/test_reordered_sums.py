"""Reversing the terms of products changes their order and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.reordered_sums import reorder_sums
from workbench.models.builder import Graph
from workbench.models.evaluate import run_onnxruntime

#: Writes a graph; the names of its outputs.
Write = Callable[[Graph], list[str]]

#: Multiples of 2**-6 from -1 to 1: float32 holds sums of 64 of their products in any order.
STEP = np.float32(2**-6)


def exact(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.integers(-64, 65, shape).astype(np.float32) * STEP


def conv(op: str, weights: tuple[int, ...], groups: int) -> Write:
    return lambda g: [
        g.op(op, g.input("x", [2, 6, 5, 5]), g.const(exact(g.rng, *weights)), group=groups, name="y")
    ]


def product(left: tuple[int, ...], right: tuple[int, ...], op: str = "MatMul", **flags: int) -> Write:
    def write(g: Graph) -> list[str]:
        bias = [g.const(exact(g.rng, 5))] if op == "Gemm" else []
        return [g.op(op, g.input("x", left), g.const(exact(g.rng, *right)), *bias, name="y", **flags)]

    return write


def of_activations(g: Graph) -> list[str]:
    return [g.op("MatMul", g.input("x", [3, 4, 7]), g.input("b", [7, 5]), name="y")]


def shared_weights(g: Graph) -> list[str]:
    w = g.const(exact(g.rng, 7, 7))
    return [g.op("MatMul", g.op("MatMul", g.input("x", [4, 7]), w, name="hidden"), w, name="y"), "hidden"]


CASES: dict[str, Write] = {
    "conv": conv("Conv", (4, 6, 3, 3), 1),
    "grouped conv": conv("Conv", (4, 3, 3, 3), 2),
    "transposed conv": conv("ConvTranspose", (6, 4, 3, 3), 1),
    "grouped transposed conv": conv("ConvTranspose", (6, 2, 3, 3), 2),
    "matmul": product((4, 7), (7, 5)),
    "matmul of stacks": product((3, 4, 7), (3, 7, 5)),
    "matmul with a vector": product((4, 7), (7,)),
    "vector with a matmul": product((7,), (3, 7, 5)),
    "gemm": product((4, 7), (7, 5), "Gemm"),
    "gemm of transposed operands": product((7, 4), (5, 7), "Gemm", transA=1, transB=1),
    "of activations": of_activations,
    "shared weights": shared_weights,
}


@pytest.mark.parametrize("name", sorted(CASES))
@pytest.mark.parametrize("opset", [9, 17])
def test_results_are_the_same_where_sums_are_exact(name: str, opset: int) -> None:
    g = Graph("g", opset=opset)
    for output in CASES[name](g):
        g.output(output)
    model = g.model()
    rng = np.random.default_rng(5)
    shapes = {v.name: [d.dim_value for d in v.type.tensor_type.shape.dim] for v in model.graph.input}
    inputs = {key: exact(rng, *shape) for key, shape in shapes.items()}
    wanted = run_onnxruntime(model, inputs)
    before = model.SerializeToString()
    model = reorder_sums(model)
    assert model.SerializeToString() != before
    for one, other in zip(run_onnxruntime(model, inputs), wanted, strict=True):
        np.testing.assert_array_equal(one, other, strict=True)


def test_weights_that_something_else_reads_stay_in_their_place() -> None:
    """Read in a branch too, and given out."""
    g = Graph("g")
    w = g.const(exact(g.rng, 7, 5), name="w")
    g.op("MatMul", g.input("x", [4, 7]), w, name="y")
    info = onnx.helper.make_tensor_value_info("inner", onnx.TensorProto.FLOAT, [7, 5])
    inner = onnx.helper.make_graph([onnx.helper.make_node("Neg", [w], ["inner"])], "branch", [], [info])
    yes = g.const(np.asarray(True), "bool")
    g.op("If", yes, name="z", then_branch=inner, else_branch=inner)
    for name in ("y", "z", "w"):
        g.output(name)
    model = g.model()
    inputs = {"x": exact(np.random.default_rng(5), 4, 7)}
    wanted = run_onnxruntime(model, inputs)
    for kept in (("y", "z", "w"), ("y", "z"), ("y", "w")):
        one = onnx.ModelProto()
        one.CopyFrom(model)
        del one.graph.output[:]
        one.graph.output.extend(value for value in model.graph.output if value.name in kept)
        if "z" not in kept:
            del one.graph.node[1]
        one = reorder_sums(one)
        assert any(node.op_type == "Gather" for node in one.graph.node)
        expected = [value for name, value in zip(("y", "z", "w"), wanted, strict=True) if name in kept]
        for got, value in zip(run_onnxruntime(one, inputs), expected, strict=True):
            np.testing.assert_array_equal(got, value, strict=True)


def test_the_order_is_another_one() -> None:
    g = Graph("g")
    x = g.op("Conv", g.input("x", [1, 64, 9, 9]), g.weight(64, 64, 3, 3), pads=[1] * 4)
    g.op("MatMul", x, g.weight(9, 9), name="y")
    g.output("y")
    model = g.model()
    inputs = {"x": np.random.default_rng(1).standard_normal((1, 64, 9, 9)).astype(np.float32)}
    (wanted,) = run_onnxruntime(model, inputs)
    model = reorder_sums(model)
    (result,) = run_onnxruntime(model, inputs)
    assert np.mean(result != wanted) > 0.2
    np.testing.assert_allclose(result, wanted, rtol=0, atol=1e-5 * np.abs(wanted).max())


def test_what_has_one_term_or_no_known_shape_stays() -> None:
    g = Graph("g")
    x = g.op("Conv", g.input("x", [1, 8, 9, 9]), g.weight(8, 1, 3, 3), group=8)
    g.op("MatMul", g.input("a", None), g.input("b", None), name="z")
    g.op("Relu", x, name="y")
    g.output("y")
    graph = onnx.helper.make_graph(
        g.nodes,
        "g",
        g.inputs,
        [onnx.ValueInfoProto(name=n) for n in ("y", "z")],
        list(g.initializers.values()),
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    before = model.SerializeToString()
    model = reorder_sums(model)
    assert model.SerializeToString() == before

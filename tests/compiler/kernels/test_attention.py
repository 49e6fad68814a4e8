"""Attention as one kernel: where its operands lie, its steps, odd sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.plan.target import CpuTarget
from workbench.compiled import REGISTER_FILES, Compiled, Library, on_register_files
from workbench.executor import host_target
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs

Step = Callable[[Graph, str], str]


def _scaled(g: Graph, scores: str) -> str:
    return g.op("Div", scores, g.const(5.0))


def _masked(*shape: int) -> Step:
    return lambda g, scores: g.op("Add", _scaled(g, scores), g.input("mask", shape))


def _chosen(*shape: int) -> Step:
    def step(g: Graph, scores: str) -> str:
        kept = g.op("Greater", g.input("mask", shape), g.const(-0.5))
        return g.op("Where", kept, g.op("Mul", g.const(0.3), scores), g.const(-1e4))

    return step


def _heads(g: Graph, name: str, batch: int, length: int, heads: int, width: int, perm: list[int]) -> str:
    x = g.op("Reshape", g.input(name, (batch, length, heads * width)), g.const([0, 0, heads, width]))
    return g.op("Transpose", x, perm=perm)


def separate(
    batch: int,
    heads: int,
    rows: int,
    keys: int,
    width: int,
    columns: int,
    step: Step = _scaled,
    *,
    zeroed: bool = False,
) -> onnx.ModelProto:
    """Queries, keys and values of their own, heads beside each other."""
    g = Graph("attention", seed=3)
    q = _heads(g, "q", batch, rows, heads, width, [0, 2, 1, 3])
    k = _heads(g, "k", batch, keys, heads, width, [0, 2, 3, 1])
    v = _heads(g, "v", batch, keys, heads, columns, [0, 2, 1, 3])
    return _finished(g, q, k, v, [batch, rows, heads * columns], step, zeroed=zeroed)


def fused(kind: str, rows: int, heads: int, width: int) -> onnx.ModelProto:
    """One tensor of queries, keys and values, taken apart in one of the ways of exporters."""
    g = Graph("attention", seed=3)
    x = g.input("x", (2, rows, 3 * heads * width))
    if kind == "split":
        parts = g.ops("Split", x, g.const([heads * width] * 3), outputs=3, axis=2)
        split = [g.op("Reshape", p, g.const([0, 0, heads, width])) for p in parts]
        q, k, v = (g.op("Transpose", p, perm=[0, 2, 1, 3]) for p in split)
    elif kind == "slice":
        ends = [(i * heads * width, (i + 1) * heads * width, 2) for i in range(3)]
        parts = [g.op("Slice", x, *(g.const([n]) for n in end)) for end in ends]
        split = [g.op("Reshape", p, g.const([0, 0, heads, width])) for p in parts]
        q, k, v = (g.op("Transpose", p, perm=[0, 2, 1, 3]) for p in split)
    else:
        x = g.op("Reshape", x, g.const([2, rows, 3, heads, width]))
        x = g.op("Transpose", x, perm=[2, 0, 3, 1, 4])
        q, k, v = (g.op("Gather", x, g.const(i), axis=0) for i in (0, 1, -1))
    if kind == "slice":  # as torch's scaled_dot_product_attention is exported
        q, k = (g.op("Mul", t, g.const(float(width**-0.25))) for t in (q, k))
    k = g.op("Transpose", k, perm=[0, 1, 3, 2])
    return _finished(g, q, k, v, [2, rows, heads * width], lambda g, scores: scores)


def projected(rows: int, heads: int, width: int, biased: bool) -> onnx.ModelProto:
    """Queries, keys and values are products of one tensor: one product, then the attention."""
    g = Graph("attention", seed=3)
    x, total = g.input("x", (2, rows, 20)), heads * width
    parts = []
    for i, perm in enumerate(([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])):
        y = g.op("MatMul", x, g.weight(20, total, std=0.3))
        y = g.op("Add", g.weight(total, std=0.5), y) if biased or i == 1 else y
        parts.append(g.op("Transpose", g.op("Reshape", y, g.const([0, 0, heads, width])), perm=perm))
    return _finished(g, *parts, [2, rows, total], _scaled)


def followed() -> onnx.ModelProto:
    """An elementwise operator behind it, whose kernel takes the rest of the group."""
    g = Graph("attention", seed=3)
    q, k, v = (
        _heads(g, name, 1, length, 3, 16, perm)
        for name, length, perm in (("q", 49, [0, 2, 1, 3]), ("k", 37, [0, 2, 3, 1]), ("v", 37, [0, 2, 1, 3]))
    )
    weights = g.op("Softmax", _masked(1, 1, 49, 37)(g, g.op("MatMul", q, k)), axis=-1)
    g.op("Tanh", g.op("MatMul", weights, v), name="y")
    g.output("y")
    return g.model()


def plain(shape: tuple[int, ...], keys: int, columns: int) -> onnx.ModelProto:
    """Operands that lie as a product wants them, and a result that is not merged."""
    *batch, _, depth = shape
    g = Graph("attention", seed=3)
    q, k, v = (
        g.input("q", shape),
        g.input("k", (*batch, depth, keys)),
        g.input("v", (*batch, keys, columns)),
    )
    weights = g.op("Softmax", g.op("MatMul", q, k), axis=-1)
    g.op("MatMul", weights, v, name="y")
    g.output("y")
    return g.model()


def _finished(
    g: Graph, q: str, k: str, v: str, shape: list[int], step: Step, *, zeroed: bool = False
) -> onnx.ModelProto:
    weights = g.op("Softmax", step(g, g.op("MatMul", q, k)), axis=-1)
    if zeroed:  # as torch 2.9 exports it
        weights = g.op("Where", g.op("IsNaN", weights), g.const(0.0), weights)
    merged = g.op("Transpose", g.op("MatMul", weights, v), perm=[0, 2, 1, 3])
    g.op("Reshape", merged, g.const(shape), name="y")
    g.output("y")
    return g.model()


MODELS = {
    "a mask of keys": separate(2, 3, 33, 29, 12, 20, _masked(2, 1, 1, 29)),
    "a mask of pairs": separate(1, 3, 49, 37, 16, 7, _masked(1, 1, 49, 37)),
    "NaN zeroed": separate(1, 3, 49, 37, 16, 7, _masked(1, 1, 49, 37), zeroed=True),
    "a choice": separate(2, 2, 70, 31, 9, 33, _chosen(2, 1, 1, 31)),
    "a remainder of one": separate(1, 1, 129, 17, 5, 1),
    "more keys than rows": separate(1, 2, 17, 203, 24, 40),
    "split": fused("split", 50, 3, 16),
    "slice": fused("slice", 19, 2, 10),
    "gather": fused("gather", 67, 2, 24),
    "projected": projected(18, 2, 12, biased=True),
    "projected, one biased": projected(23, 3, 8, biased=False),
    "without a batch": plain((35, 16), 16, 30),
    "followed by an operator": followed(),
}


VECTORS = ("128x32", "512x32")
SMALL_CACHES = "128x32"
ON_REGISTER_FILES = on_register_files(
    MODELS,
    ("a mask of pairs", "a remainder of one", "gather"),
    swept=VECTORS,
    others=("256x16",),
    both=("NaN zeroed", "more keys than rows"),
)


def _host_with(register_file: str) -> CpuTarget:
    """One of them with caches so small that the values of "more keys than rows" are done in runs of keys."""
    bits, registers = REGISTER_FILES[register_file]
    target = replace(host_target(), vector_bits=bits, vector_registers=registers)
    return replace(target, l1d_bytes=2048, l2_bytes=32 * 1024) if register_file == SMALL_CACHES else target


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    return Library(MODELS, ON_REGISTER_FILES, tmp_path_factory.mktemp("attention"), _host_with)


@pytest.mark.parametrize(("registers", "name"), ON_REGISTER_FILES)
def test_attention_is_one_step_and_right(library: Library, registers: str, name: str) -> None:
    compiled = library(registers)
    plan = compiled.plan(name)
    assert not plan.warnings
    rules = [kernel.rule for kernel in plan.kernels]
    assert rules.count("attention") == 1 and len(plan.steps) <= 2  # the condition of a choice
    compiled.check(name)


@pytest.mark.parametrize(("name", "rows"), [("a mask of pairs", 2), ("NaN zeroed", 0)])
@pytest.mark.parametrize("registers", VECTORS)
def test_infinite_scores_and_nan(library: Library, registers: str, name: str, rows: int) -> None:
    """A key that is masked with -inf has weight 0; NaN stays in its row, or makes it 0."""
    compiled = library(registers)
    inputs = random_inputs(MODELS[name], 5)
    mask = np.array(inputs["mask"])
    mask[..., 3:9] = -np.inf
    mask[0, 0, 4, 20] = np.nan
    mask[0, 0, 5, :] = -np.inf
    inputs["mask"] = mask
    got, expected = compiled.run(name, inputs)["y"], compiled.expected(name, inputs)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    assert np.isnan(expected).any(axis=-1).sum() == rows


@pytest.mark.parametrize("registers", VECTORS)
def test_scores_of_any_size(library: Library, registers: str) -> None:
    """A query whose keys are all masked, as exporters do it, weighs them evenly; large scores choose one."""
    compiled = library(registers)
    name = "a mask of pairs"
    inputs = random_inputs(MODELS[name], 5)
    mask = np.array(inputs["mask"])
    mask[0, 0, 4] = np.finfo(np.float32).min
    mask[0, 0, 5] = mask[0, 0, 5] * 1e10
    inputs["mask"] = mask
    got, expected = compiled.run(name, inputs)["y"], compiled.expected(name, inputs)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_weights_that_are_read_elsewhere_are_kept(tmp_path: Path) -> None:
    g = Graph("attention", seed=3)
    q, k, v = g.input("q", (2, 20, 8)), g.input("k", (2, 8, 24)), g.input("v", (2, 24, 16))
    g.op("Softmax", g.op("MatMul", q, k), axis=-1, name="weights")
    g.op("MatMul", "weights", v, name="y")
    g.output("y")
    g.output("weights")
    compiled = Compiled({"m": g.model()}, tmp_path)
    assert "attention" not in {kernel.rule for kernel in compiled.plan("m").kernels}
    compiled.check("m")

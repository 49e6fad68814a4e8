"""Fused groups that no fast rule serves as a whole: in parts, right, and only what is slow by itself slow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.kernels.cpu.emit.epilogue import Epilogue
from edgepack.compiler.kernels.cpu.emit.vector_math import UNARY
from edgepack.compiler.kernels.registry import RULES
from workbench.compiled import Compiled, plan_of, target_with
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs

SLOW = {"rowwise", "generic", "rows", "plain"}


def _conv(g: Graph, x: str, channels: int = 12) -> str:
    weights = g.weight(channels, channels, 3, 3)
    return g.op("Conv", x, weights, g.weight(channels, std=1.0), pads=(1, 1, 1, 1))


def _truth(g: Graph) -> None:
    """A result that is no number behind a convolution, whose rule writes numbers only."""
    y = g.op("Sigmoid", _conv(g, g.input("x", (1, 12, 7, 6))))
    g.op("Greater", y, g.const(0.5), name="y")
    g.output("y", "bool")


def _mask(g: Graph) -> None:
    """A mask is read behind a product that is used twice; the same group serves two calls."""
    x, mask = g.input("x", (1, 12, 7, 6)), g.input("mask", (1, 12, 7, 6), "bool")
    for _ in range(2):
        x = g.op("Relu", _conv(g, x))
        x = g.op("Where", mask, x, g.op("Mul", x, g.const(0.1)))
    g.op("Identity", x, name="y")
    g.output("y")


def _gate(g: Graph) -> None:
    """A gate of one number for each channel is computed beside the convolution that it is for."""
    x, gate = g.input("x", (1, 12, 7, 6)), g.input("gate", (1, 12, 1, 1))
    g.op("Mul", _conv(g, x), g.op("Sigmoid", g.op("Mul", gate, g.const(3.0))), name="y")
    g.output("y")


def _weights_computed(g: Graph) -> None:
    """Weights that are not constant."""
    x, w = g.input("x", (1, 12, 7, 6)), g.input("w", (12, 12, 3, 3))
    y = g.op("Conv", x, w, pads=(1, 1, 1, 1))
    g.op("Tanh", g.op("Mul", g.op("Sigmoid", y), g.op("Exp", y)), name="y")
    g.output("y")


def _area_tangent(g: Graph) -> None:
    """What stands before and behind a step that only a slow rule knows."""
    x = g.op("Tanh", g.op("Exp", g.op("Mul", g.input("x", (1, 24, 50)), g.const(0.5))))
    g.op("Sigmoid", g.op("Mul", g.op("Atanh", g.op("Mul", x, g.const(0.9))), g.const(0.5)), name="y")
    g.output("y")


def _snake(g: Graph) -> None:
    """Sines behind a convolution: with a call of libm for large angles they are not part of its kernel."""
    y = _conv(g, g.input("x", (1, 12, 7, 6)))
    scale = g.uniform(12, 1, 1, low=0.5, high=2)
    sine = g.op("Sin", g.op("Mul", y, scale))
    g.op("Relu", g.op("Add", y, g.op("Div", g.op("Mul", sine, sine), scale)), name="y")
    g.output("y")


def _concatenated(g: Graph) -> None:
    """Parts of a concatenation in place that have to be taken apart."""
    x, mask = g.input("x", (1, 12, 7, 6)), g.input("mask", (1, 12, 7, 6), "bool")
    parts = [g.op("Where", mask, _conv(g, x), x), g.op("Relu", _conv(g, x))]
    g.op("Concat", *parts, name="y", axis=1)
    g.output("y")


#: Each with what is slow: operators of its kernels by slow rules.
CASES: dict[str, tuple[Callable[[Graph], None], set[tuple[str, ...]]]] = {
    "truth": (_truth, set()),
    "mask": (_mask, set()),
    "gate": (_gate, set()),
    "weights computed": (_weights_computed, set()),
    "area tangent": (_area_tangent, {("tir_atanh",)}),
    "snake": (_snake, set()),
    "concatenated": (_concatenated, set()),
}


def _model(body: Callable[[Graph], None]) -> onnx.ModelProto:
    g = Graph("split", seed=2)
    body(g)
    return g.model()


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: _model(body) for name, (body, _) in CASES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(UNARY, "tirx.atanh")  # a function that only libm has
        return Compiled(models, tmp_path_factory.mktemp("split"))


@pytest.mark.parametrize("name", CASES)
def test_only_what_is_slow_by_itself_stays_slow(compiled: Compiled, name: str) -> None:
    slow = {kernel.ops for kernel in compiled.plan(name).kernels if kernel.rule in SLOW}
    assert slow == CASES[name][1]
    if name == "truth":  # of numbers next to the threshold ONNX Runtime's and these may differ
        inputs = random_inputs(compiled.models[name], 5)
        got, expected = compiled.run(name, inputs)["y"], compiled.expected(name, inputs)["y"]
        assert np.count_nonzero(got != expected) <= 1
    else:
        compiled.check(name)


def test_parts_are_shared_by_equal_groups_and_know_their_nodes() -> None:
    plan = plan_of(_model(_mask), target=target_with("512x32")).plan
    nodes: dict[str, list[list[str]]] = {}
    for step in plan.steps:
        names = [node.partition("_")[0] for node in step.nodes]
        nodes.setdefault(plan.kernel(step.kernel).ops[-1], []).append(names)
    assert nodes["relu"] == [["Conv", "Relu"]] * 2
    assert nodes["where"] == [["Mul"]] * 2
    assert len([kernel for kernel in plan.kernels if kernel.ops[-1] in {"relu", "where"}]) == 2


def test_choices_that_depend_on_choices_are_soon_planned() -> None:
    """In one block, TVM's simplifier would take hours for these."""
    g = Graph("choices")
    y = g.input("x", (3, 5), "int64")
    for i in range(12):
        y = g.op("Where", g.op("Greater", y, g.const(i)), g.op("Sub", y, g.const(2 * i)), y)
    g.op("Identity", y, name="y")
    g.output("y", "int64")
    given = dict.fromkeys(rule.name for rule in RULES if rule.kind != "fallback")
    assert {kernel.rule for kernel in plan_of(g.model(), given=given).plan.kernels} == {"generic"}


def test_a_rule_that_fails_is_told_though_the_group_is_taken_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The product alone, without what it failed at, is served by the same rule."""
    implemented = Epilogue.apply

    def failing(epilogue: Epilogue, *args: Any, **options: Any) -> Any:
        if epilogue.blocks:
            raise ValueError("not today")
        return implemented(epilogue, *args, **options)

    monkeypatch.setattr(Epilogue, "apply", failing)
    g = Graph("product")
    g.output(g.op("Sigmoid", g.op("MatMul", g.input("x", (24, 32)), g.weight(32, 48)), name="y"))
    plan = plan_of(g.model(), "m", target_with("512x32")).plan
    assert [kernel.rule for kernel in plan.kernels] == ["matmul.packed", "elementwise"]
    assert [warning for warning in plan.warnings if "rule matmul.packed failed (not today)" in warning]

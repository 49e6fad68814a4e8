"""Whether kernels believe numbers of the params, which the library then hashes when it opens them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.compiler.planner.places_in_params import has_places_in_params
from workbench.compiled import plan_of, target_with
from workbench.models.builder import Graph
from workbench.models.classical import forest, ml_model, old_ensemble
from workbench.models.single import conv

TARGET = target_with("256x16", threads=2)


def scattered(*, constant: bool, spread: bool = False) -> onnx.ModelProto:
    """Elements that are stored at positions of the model, or of the run."""
    g = Graph("scattered")
    where = np.random.default_rng(1).permuted(np.tile(np.arange(16)[:, None], (1, 8)), axis=0)[:5]
    indices = g.const(where.astype(np.int64)) if constant else g.input("i", (5, 8), "int64")
    if spread:  # what another kernel makes of them
        indices = g.op("Transpose", g.op("Transpose", indices, perm=[1, 0]), perm=[1, 0])
    x, u = g.input("x", (16, 8)), g.input("u", (5, 8))
    g.output(g.op("ScatterElements", x, indices, u, axis=0, name="y"))
    return g.model()


def gathered(operator: str) -> onnx.ModelProto:
    g = Graph("gathered")
    shape = {"Gather": (7,), "GatherElements": (4, 8), "GatherND": (3, 1)}[operator]
    indices = g.const(np.random.default_rng(2).integers(0, 4, shape).astype(np.int64))
    g.output(g.op(operator, g.input("x", (16, 8)), indices, name="y"))
    return g.model()


@pytest.mark.parametrize("spread", [False, True])
@pytest.mark.parametrize("constant", [False, True])
def test_positions_are_brought_into_range_whatever_the_params_say(constant: bool, spread: bool) -> None:
    model = scattered(constant=constant, spread=spread)
    assert not has_places_in_params(plan_of(model, target=TARGET))


@pytest.mark.parametrize("operator", ["Gather", "GatherElements", "GatherND"])
def test_gathers_bring_constants_into_range_too(operator: str) -> None:
    assert not has_places_in_params(plan_of(gathered(operator), target=TARGET))


def test_decision_trees_go_where_their_tables_say() -> None:
    trees = forest(3, 3, 4, seed=5)
    model = ml_model([old_ensemble("TreeEnsembleRegressor", trees, n_targets=1)], {"x": ("float32", (6, 4))})
    assert has_places_in_params(plan_of(model, target=TARGET))


def test_weights_are_no_places() -> None:
    model = conv((1, 16, 8, 8), 32, (3, 3), pads=(1, 1, 1, 1))
    assert not has_places_in_params(plan_of(model, target=TARGET))

"""Whether kernels believe numbers of the params, which the library then hashes when it opens them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from edgepack.compiler.planner.places_in_params import has_places_in_params
from workbench.compiled import plan_of, target_with
from workbench.models.builder import Graph
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
def test_positions_that_are_constants_are_believed(spread: bool) -> None:
    assert has_places_in_params(plan_of(scattered(constant=True, spread=spread), target=TARGET))


def test_positions_of_a_run_are_not() -> None:
    assert not has_places_in_params(plan_of(scattered(constant=False), target=TARGET))


def test_what_lies_between_two_numbers_of_the_kernels_is_no_place_of_the_params() -> None:
    """A Gather brings its positions into range, whatever they are."""
    assert not has_places_in_params(plan_of(gathered("Gather"), target=TARGET))


@pytest.mark.parametrize("operator", ["GatherElements", "GatherND"])
def test_constants_of_other_gathers_are_believed(operator: str) -> None:
    assert has_places_in_params(plan_of(gathered(operator), target=TARGET))


def test_weights_are_no_places() -> None:
    model = conv((1, 16, 8, 8), 32, (3, 3), pads=(1, 1, 1, 1))
    assert not has_places_in_params(plan_of(model, target=TARGET))

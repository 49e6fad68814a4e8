"""Ifs and loops that stay: branches of a plan, as ONNX Runtime runs them."""

from __future__ import annotations

import numpy as np
import pytest

from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.shapes import all_nodes
from edgepack.compiler.frontend.onnx.standard_regions import with_standard_regions
from workbench.compiled import Compiled, assert_close
from workbench.models.drawn_regions import Drawn
from workbench.models.evaluate import random_inputs, run_onnxruntime

#: Among them those that notice a trip's result computed too early in its place, or values that change places.
SEEDS = (*range(8), 21, 36, 37)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled({f"m{seed}": Drawn(seed).model for seed in SEEDS}, tmp_path_factory.mktemp("drawn"))


@pytest.mark.parametrize("seed", SEEDS)
def test_drawn_models(drawn: Compiled, seed: int) -> None:
    name = f"m{seed}"
    for trips in (0, 1, 2, 5):
        inputs = random_inputs(drawn.models[name], trips) | {"n": np.asarray(trips, np.int64)}
        expected = drawn.expected(name, inputs)
        assert_close(drawn.models[name], drawn.run(name, inputs, seed=trips), expected)


@pytest.mark.parametrize("seed", SEEDS)
def test_onnxruntime_runs_what_they_become(seed: int) -> None:
    """Ifs and Loops again, whose graphs have been normalised."""
    model = Drawn(seed).model
    standard = with_standard_regions(normalise(Drawn(seed).model))
    assert {"If", "Loop"} & {node.op_type for node in all_nodes(standard.graph)} or seed == 3
    for trips in (0, 3):
        inputs = random_inputs(model, trips) | {"n": np.asarray(trips, np.int64)}
        expected = run_onnxruntime(model, inputs)
        for value, reference in zip(run_onnxruntime(standard, inputs), expected, strict=True):
            np.testing.assert_allclose(value, reference, atol=1e-5)

"""Ifs and loops that stay: branches of a plan, as ONNX Runtime runs them."""

from __future__ import annotations

import numpy as np
import pytest

from workbench.compiled import Compiled, assert_close
from workbench.models.drawn_regions import Drawn
from workbench.models.evaluate import random_inputs

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

"""Random numbers with a seed are the same in every run; without one the node is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import prepare, record
from edgepack.errors import ModelError
from workbench.models import save
from workbench.models.builder import Graph


def noisy(**seed: float) -> Graph:
    """Noise of every kind, added to an input."""
    g = Graph("noisy")
    x = g.input("x", (3, 4))
    normal = g.op("RandomNormal", shape=[3, 4], mean=1.0, scale=2.0, **seed)
    more = g.op("RandomNormalLike", g.op("Relu", x), **seed)
    uniform = g.op("RandomUniform", shape=[4], low=-1.0, high=1.0, **seed)
    other = g.op("RandomUniformLike", x, **seed)
    coin = g.op("Bernoulli", g.op("Sigmoid", x), **seed)
    g.output(g.op("Sum", x, normal, more, uniform, other, coin, name="y"))
    return g


def test_numbers_with_a_seed_are_those_of_onnx(tmp_path: Path) -> None:
    model, folder = save(noisy(seed=7.0).model(), tmp_path), tmp_path / "prepared"
    folder.mkdir()
    prepare(model, ImportOptions(), folder)
    record(model, ImportOptions(), folder, seed=1, inputs={})
    recorded = json.loads((folder / "recorded" / "recorded.json").read_text())
    assert recorded["reference"].startswith("onnxruntime")
    x, y = (
        np.fromfile(folder / "recorded" / recorded[kind][0]["file"], np.float32).reshape(3, 4)
        for kind in ("inputs", "outputs")
    )

    def state() -> np.random.RandomState:
        return np.random.RandomState(7)

    noise = state().randn(3, 4) * 2 + 1 + state().randn(3, 4) + state().rand(4) * 2 - 1 + state().rand(3, 4)
    coin = y - x - noise
    np.testing.assert_allclose(coin, np.round(coin), atol=1e-5)
    np.testing.assert_array_equal(np.round(coin), state().rand(3, 4) < 1 / (1 + np.exp(-x)))


def test_numbers_without_a_seed_are_refused(tmp_path: Path) -> None:
    model, folder = save(noisy().model(), tmp_path), tmp_path / "prepared"
    folder.mkdir()
    with pytest.raises(ModelError, match="RandomNormalLike, RandomNormal") as error:
        prepare(model, ImportOptions(), folder)
    assert "Give the node a seed" in error.value.hint
    assert "without a seed" in error.value.detail


@pytest.mark.parametrize("seed", [{}, {"seed": 3.0}])
def test_numbers_as_many_as_the_data_say_are_not_told_to_want_a_seed(
    seed: dict[str, float], tmp_path: Path
) -> None:
    g = Graph("latent")
    x = g.input("x", (4,))
    places = g.op("Range", g.const(0.0), g.op("ReduceSum", x, keepdims=0), g.const(1.0), name="frames")
    g.output(g.op("Add", places, g.op("RandomNormalLike", places, **seed)))
    with pytest.raises(ModelError) as error:
        prepare(save(g.model(), tmp_path), ImportOptions(), tmp_path)
    assert error.value.refused[0]["reason"] == "random numbers, and the data decide how many"
    assert "Give the node a seed" not in error.value.hint
    assert "--outputs frames" in error.value.hint

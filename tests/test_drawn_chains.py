"""Chains of operators drawn by seeds compute the same behind all that rewrites models, and packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import compose, helper

import edgepack
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.normalise import normalise
from workbench.models.chains.drawn import INPUTS, Chain
from workbench.models.evaluate import run_onnxruntime

#: Inputs that are drawn of each range.
DRAWS = 3

Arrays = Mapping[str, np.ndarray]


def joined(chains: Mapping[int, Chain]) -> onnx.ModelProto:
    """One model of many, with an input and an output of each."""
    graphs = [compose.add_prefix(chain.model, f"chain{seed}_").graph for seed, chain in chains.items()]
    graph = helper.make_graph(
        [node for one in graphs for node in one.node],
        "chains",
        [one.input[0] for one in graphs],
        [one.output[0] for one in graphs],
        [tensor for one in graphs for tensor in one.initializer],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def differs(wanted: np.ndarray, found: np.ndarray) -> bool:
    """By more than the last bits: what is added up in another order, or multiplied by a factor before, is off
    by up to 1e-6 of the largest number inside a chain, which is less than a hundred times the result."""
    largest = np.abs(wanted[np.isfinite(wanted)]).max(initial=1)
    shape = wanted.shape == found.shape
    return not (shape and np.allclose(found, wanted, rtol=1e-3, atol=1e-4 * largest, equal_nan=True))


def wrong(
    chains: Mapping[int, Chain], model: onnx.ModelProto, run: Callable[[Arrays], Sequence[np.ndarray]]
) -> dict[int, tuple[str, list[str]]]:
    """By seed the chains of which ``run`` returns something else than ONNX Runtime without optimisations: the
    range of inputs, and what was drawn.

    By its last bit a number may become another integer; not so in each of three draws.
    """
    names = [value.name for value in model.graph.input]
    rng = np.random.default_rng(1)
    found = {}
    for about, (low, high) in INPUTS.items():
        suspects = dict(chains)
        for _ in range(DRAWS):
            inputs = {
                name: rng.uniform(low, high, chain.input_shape).astype(np.float32)
                for name, chain in zip(names, chains.values(), strict=True)
            }
            pairs = zip(chains, run_onnxruntime(model, inputs), run(inputs), strict=True)
            different = {seed for seed, wanted, result in pairs if differs(wanted, result)}
            suspects = {seed: chain for seed, chain in suspects.items() if seed in different}
        found |= {seed: (about, chain.links) for seed, chain in suspects.items()}
    return found


@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 300), *(pytest.param(n, 2000, marks=pytest.mark.slow) for n in range(300, 20_300, 2000))],
)
def test_chains_compute_the_same_normalised(first: int, count: int) -> None:
    for seed in range(first, first + count, 50):
        chains = {one: Chain(one) for one in range(seed, seed + 50)}
        model = joined(chains)
        bound = onnx.ModelProto()
        bound.CopyFrom(model)
        bind(bound, shapes={}, dims={})
        normal = normalise(bound)
        assert not wrong(chains, model, lambda inputs: run_onnxruntime(normal, inputs))  # noqa: B023


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"strict_math": True}, {"optimize": "size"}], ids=str)
@pytest.mark.parametrize("first", range(0, 500, 50))
def test_chains_compute_the_same_packed(first: int, options: dict[str, Any], tmp_path: Path) -> None:
    chains = {seed: Chain(seed) for seed in range(first, first + 50)}
    model = joined(chains)
    onnx.save(model, tmp_path / "chains.onnx")
    edgepack.pack(tmp_path / "chains.onnx", "host", tmp_path / "bundle", **options)
    with edgepack.load(tmp_path / "bundle") as session:
        assert not wrong(chains, model, lambda inputs: list(session.run(inputs).values()))

"""Indices of run time that are out of range stand for the nearest element, and nothing else is touched."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from workbench.compiled import Compiled, plan_of
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.indexed import INDEXED

FAR = (1 << 62, -(1 << 62), 1 << 31, -100_000_000, 100_000_000)


def _model(
    op: str, ids: tuple[int, ...], updates: tuple[int, ...] = (), **attributes: int
) -> onnx.ModelProto:
    g = Graph(op, opset=18)
    operands = [g.input("x", (6, 9, 4)), g.input("ids", ids, "int64")]
    operands += [g.input("updates", updates)] if updates else []
    g.op(op, *operands, name="y", **attributes)
    g.output("y")
    return g.model()


#: The model, and the extents that its indices are positions along.
MODELS = {
    "elements": (_model("GatherElements", (6, 5, 4), axis=1), (9,)),
    "rows": (_model("GatherND", (7, 2)), (6, 9)),
    "rows of a batch": (_model("GatherND", (6, 3, 1), batch_dims=1), (9,)),
    "one row": (_model("Gather", (7,), axis=1), (9,)),
    "scattered elements": (_model("ScatterElements", (6, 1, 4), (6, 1, 4), axis=1), (9,)),
    "scattered rows": (_model("ScatterND", (1, 2), (1, 4)), (6, 9)),
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder: Path = tmp_path_factory.mktemp("indices")
    return Compiled({name: model for name, (model, _) in MODELS.items()}, folder)


@pytest.mark.parametrize("name", MODELS)
def test_indices_out_of_range_are_the_nearest(compiled: Compiled, name: str) -> None:
    model, extents = MODELS[name]
    inputs = random_inputs(model, 3)
    rng = np.random.default_rng(4)
    ends = np.array(extents if inputs["ids"].shape[-1] == len(extents) > 1 else extents[0])
    right = rng.integers(-ends, ends, inputs["ids"].shape)
    far = np.where(rng.random(right.shape) < 0.5, rng.choice(FAR, right.shape), right)
    for ids in (right, far):
        near = np.clip(np.where(ids < 0, ids + ends, ids), 0, ends - 1)
        (wanted,) = run_onnxruntime(model, {**inputs, "ids": near})
        np.testing.assert_array_equal(compiled.run(name, {**inputs, "ids": ids}, seed=1)["y"], wanted)


@pytest.mark.parametrize(("before", "kernels"), [("", 1), ("Exp", 2)])
def test_elements_are_gathered_by_one_kernel_from_what_is_computed_once(before: str, kernels: int) -> None:
    """With their indices, but not with what they are read from, of which each may be read many times."""
    g = Graph("gather")
    x = g.input("x", (6, 9, 4))
    x = g.op(before, x) if before else x
    g.op("GatherElements", x, g.input("ids", (6, 5, 4), "int64"), axis=1, name="y")
    g.output("y")
    assert len(plan_of(g.model()).plan.steps) == kernels


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder: Path = tmp_path_factory.mktemp("indexed")
    return Compiled({name: one.model() for name, one in INDEXED.items()}, folder)


@pytest.mark.parametrize("name", INDEXED)
def test_every_operator_stays_in_its_tensors_whatever_the_indices_are(indexed: Compiled, name: str) -> None:
    """At both ends, one behind them and at those of the type: all memories have guards and poison around
    them, so what is read or written elsewhere is seen."""
    one = INDEXED[name]
    kind, shape = np.iinfo(one.indices.dtype), one.indices.shape
    ends = np.broadcast_to(one.ends, shape)
    tried = [np.full(shape, kind.min), -1 - ends, -ends, ends - 1, ends, np.full(shape, kind.max)]
    for number, ids in enumerate(tried):
        near = one.nearest(ids)
        (wanted, *_) = run_onnxruntime(indexed.models[name], one.inputs(near))
        got = indexed.run(name, one.inputs(ids), seed=number)
        close = {"rtol": 1e-5, "atol": 1e-5} if wanted.dtype.kind == "f" else {"rtol": 0}
        np.testing.assert_allclose(got["y"], wanted, **close, err_msg=f"{ids.reshape(-1)[:3]}")

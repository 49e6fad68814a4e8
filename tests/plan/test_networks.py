"""Whole networks as plans: right on fresh inputs, and an arena as small as can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.frontend.binding import bind
from edgepack.plan.arena import Request, lower_bound
from tests.models import DIMS, NETWORKS, build
from tests.models.evaluate import random_inputs, run_onnxruntime
from tests.support.compiled import assert_close, plan_of
from tests.support.executor import Executor


def _bound(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    bind(model, shapes={}, dims=DIMS.get(name, {}))
    return model


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_network_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    model = _bound(build(name), name)
    built = plan_of(model)
    plan = built.plan
    assert not plan.warnings
    arena = plan.arena
    requests = [Request(b.name, b.nbytes, b.first_step, b.last_step) for b in arena.buffers]
    assert (arena.lower_bound, arena.peak_step) == lower_bound(requests)
    assert arena.nbytes <= 1.05 * arena.lower_bound  # scratch is part of both
    inputs = random_inputs(model, 11)
    expected = dict(zip((o.name for o in model.graph.output), run_onnxruntime(model, inputs), strict=True))
    executor = Executor({name: built}, tmp_path)
    results = executor.run(name, [np.asarray(inputs[spec.name]) for spec in plan.inputs])
    assert_close(model, dict(zip((spec.name for spec in plan.outputs), results, strict=True)), expected)

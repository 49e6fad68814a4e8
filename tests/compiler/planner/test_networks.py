"""Whole networks as plans: right on fresh inputs, and an arena as small as can be."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest

from edgepack.compiler.frontend.binding import bind
from edgepack.compiler.planner.arena import Request, lower_bound
from tests.models import DIMS, NETWORKS, build
from tests.support.compiled import Compiled


def _bound(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    bind(model, shapes={}, dims=DIMS.get(name, {}))
    return model


@pytest.mark.parametrize("name", sorted(NETWORKS))
def test_network_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    compiled = Compiled({name: _bound(build(name), name)}, tmp_path)
    plan = compiled.plan(name)
    assert not plan.warnings
    arena = plan.arena
    requests = [Request(b.name, b.nbytes, b.first_step, b.last_step) for b in arena.buffers]
    assert (arena.lower_bound, arena.peak_step) == lower_bound(requests)
    assert arena.nbytes <= 1.05 * arena.lower_bound  # scratch is part of both
    compiled.check(name, seed=11)

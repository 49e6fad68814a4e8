"""Whole networks as plans: right on fresh inputs, and an arena as small as can be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.planner.arena import Request, lower_bound
from workbench.compiled import Compiled
from workbench.models import DIMS, LARGE, NETWORKS, build
from workbench.models.evaluate import random_inputs


def _bound(model: onnx.ModelProto, name: str) -> onnx.ModelProto:
    bind(model, shapes={}, dims=DIMS.get(name, {}))
    return model


#: Whose kinds of layers others have too.
LIKE_OTHERS = {
    *("light_shufflenet", "light_squeezenet", "mobilenetv2", "small_inception", "whisper_stem"),
    *("resnet18", "small_alexnet", "unet_resize", "regnet", "efficientnet"),
    *("small_densenet", "convnext", "hifigan", "segformer"),
}
#: What ``tests/test_end_to_end.py`` packs for this machine and compares, the last one as a slow test too.
PACKED = {"bert", "small_vgg", "unet_transpose"}
SLOW = {*LARGE, *LIKE_OTHERS, *PACKED, "yolo"}


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.slow) if n in SLOW else n for n in sorted(NETWORKS)],
)
def test_network_agrees_with_onnxruntime(name: str, tmp_path: Path) -> None:
    compiled = Compiled({name: _bound(build(name), name)}, tmp_path, optimised=True)
    plan = compiled.plan(name)
    assert not plan.warnings
    arena = plan.arena
    requests = [Request(b.name, b.nbytes, b.first_step, b.last_step) for b in arena.buffers]
    assert (arena.lower_bound, arena.peak_step) == lower_bound(requests)
    assert arena.nbytes <= 1.05 * arena.lower_bound  # scratch is part of both
    compiled.check(name, seed=11)
    # Numbers that could not be wrong would prove nothing.
    first, second = (compiled.expected(name, random_inputs(compiled.models[name], seed)) for seed in (1, 2))
    for output, a in first.items():
        assert 1e-4 < np.abs(a).max() < 1e3
        assert np.abs(a - second[output]).max() > 1e-3 * np.abs(a).max()

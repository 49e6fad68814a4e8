"""Every small model, compiled with edgepack's own kernels, against ONNX Runtime on fresh random inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench.compiled import Compiled
from workbench.models.builder import Graph
from workbench.models.odd import ODD
from workbench.models.operators import CASES

SMALL = {**CASES, **ODD}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: make() for name, make in sorted(SMALL.items())}
    return Compiled(models, tmp_path_factory.mktemp("operators"))


@pytest.mark.parametrize("name", sorted(SMALL))
def test_operator_agrees_with_onnxruntime(compiled: Compiled, name: str) -> None:
    plan = compiled.plan(name)
    assert not plan.warnings
    compiled.check(name, seed=1)
    compiled.check(name, seed=2, poison=0x7B)


def test_samples_far_outside_of_an_image_read_nothing(tmp_path: Path) -> None:
    g = Graph("outside", seed=2)
    far = np.where(np.arange(24) % 2, 1e6, 1).astype("float32").reshape(1, 1, 24, 1)
    grid = g.op("Mul", g.input("grid", (1, 4, 24, 2)), g.const(far))
    g.output(g.op("GridSample", g.input("x", (1, 2, 9, 9)), grid))
    Compiled({"m": g.model()}, tmp_path).check("m")

"""Values beyond float16 in the recorded run: found by node, kept as float32, and said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.frontend.tolerances import TOLERANCES
from edgepack.plan.gpu_target import Precision
from workbench.models import save
from workbench.models.builder import Graph


def recorded(tmp_path: Path, factor: float, precision: Precision | None) -> tuple[str, ...]:
    """Warnings of recording a model that multiplies by ``factor`` and divides by it."""
    g = Graph("large", seed=1)
    x = g.op("Mul", g.input("x", (4, 64)), g.const(np.float32(factor)))
    g.op("Div", g.op("Relu", x), g.const(np.float32(factor)), name="y")
    g.output("y")
    file = save(g.model(), tmp_path, "large.onnx")
    options = ImportOptions(precision=precision)
    frontend.prepare(file, options, tmp_path)
    return frontend.record(file, options, tmp_path, seed=0, inputs={})


def test_nodes_whose_results_exceed_float16_are_named(tmp_path: Path) -> None:
    (text,) = recorded(tmp_path, 1e6, "fp16")
    assert "beyond float16 (65504), so it stays float32, and so do 1 more" in text
    found = frontend.load(tmp_path).calibration
    large = found.large
    # What the first one reads is an input of the model, the others read what it computes.
    assert sorted(value > 65504 for value in found.read.values()) == [False, True, True]
    assert min(found.read.values()) > 1
    assert len(large) == 2
    assert any(repr(name) in text for name in large)


@pytest.mark.parametrize(("factor", "precision"), [(10.0, "fp16"), (1e6, None)])
def test_nothing_is_said_of_others(factor: float, precision: Precision | None, tmp_path: Path) -> None:
    assert recorded(tmp_path, factor, precision) == ()
    assert frontend.load(tmp_path).calibration.large == frozenset()
    (entry,) = json.loads((tmp_path / "recorded" / "recorded.json").read_text())["outputs"]
    assert entry["rtol"] == TOLERANCES["float32" if precision is None else "float16"].relative_each

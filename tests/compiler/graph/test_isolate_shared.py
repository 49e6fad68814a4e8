from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.graph import isolate_shared
from edgepack.compiler.graph.lower import lower
from workbench.compiled import Compiled
from workbench.models.builder import Graph


def unrolled(steps: int, width: int) -> onnx.ModelProto:
    """A decaying sum over the rows of a table, whose every step is a result."""
    g = Graph("unrolled", seed=1)
    x, state, results = g.input("x", [steps, width]), g.input("state", [1, width]), []
    decay = g.const(np.full((1, width), 0.5, np.float32))
    for step in range(steps):
        row = g.op("Slice", x, *(g.const(np.array([n])) for n in (step, step + 1, 0)))
        state = g.op("Add", g.op("Mul", state, decay), row)
        results.append(g.op("Tanh", state))
    g.op("Concat", *results, axis=0, name="y")
    g.output("y")
    return g.model()


def _multiplied(steps: int) -> int:
    """Multiplications in the group of the concatenation."""
    groups = lower(import_model(unrolled(steps, 64)).module).groups.values()
    (found,) = [group for group in groups if "concatenate" in group.operators]
    return found.operators.count("multiply")


def test_steps_of_a_recurrence_are_computed_once() -> None:
    assert _multiplied(60) == 1, "the last one, which nothing shares"


def test_a_few_steps_stay_one_kernel() -> None:
    assert _multiplied(6) == 6


def test_results_are_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolate_shared, "LEAST_SAVED", 0)
    compiled = Compiled({"unrolled": unrolled(10, 5)}, tmp_path)
    assert len(compiled.plan("unrolled").kernels) > 1
    compiled.check("unrolled")

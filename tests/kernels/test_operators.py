"""Every operator model, compiled with edgepack's own kernels, against ONNX Runtime on fresh random inputs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.errors import EdgepackError
from edgepack.plan.build import Built
from tests.models.evaluate import random_inputs, run_onnxruntime
from tests.models.operators import CASES
from tests.support.compiled import assert_close, plan_of
from tests.support.executor import Executor

#: Operators that no schedule serves; packing them says so.
UNSCHEDULED = {"scatter_elements", "scatter_elements_add"}


class _All:
    """All models compiled into one library: one link instead of hundreds."""

    def __init__(self, folder: Path) -> None:
        self.models: dict[str, onnx.ModelProto] = {}
        self.errors: dict[str, EdgepackError] = {}
        built: dict[str, Built] = {}
        for number, (name, make) in enumerate(sorted(CASES.items())):
            self.models[name] = make()
            try:
                built[name] = plan_of(self.models[name], f"m{number}")
            except EdgepackError as error:
                self.errors[name] = error
        self.executor = Executor(built, folder)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> _All:
    return _All(tmp_path_factory.mktemp("operators"))


@pytest.mark.parametrize("name", sorted(CASES))
def test_operator_agrees_with_onnxruntime(compiled: _All, name: str) -> None:
    if name in compiled.errors:
        raise compiled.errors[name]
    model = compiled.models[name]
    plan = compiled.executor.built[name].plan
    assert bool(plan.warnings) == (name in UNSCHEDULED), plan.warnings
    for seed in (1, 2):
        inputs = random_inputs(model, seed)
        expected = dict(
            zip((o.name for o in model.graph.output), run_onnxruntime(model, inputs), strict=True)
        )
        arrays = [np.asarray(inputs[spec.name]) for spec in plan.inputs]
        results = compiled.executor.run(name, arrays, seed=seed, poison=(0xFF, 0x7B)[seed - 1])
        got = dict(zip((spec.name for spec in plan.outputs), results, strict=True))
        assert_close(model, got, expected)

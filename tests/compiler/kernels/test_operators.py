"""Every small model, compiled with edgepack's own kernels, against ONNX Runtime on fresh random inputs."""

from __future__ import annotations

import pytest

from tests.models.odd import ODD
from tests.models.operators import CASES
from tests.support.compiled import Compiled

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

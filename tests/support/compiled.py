"""Compile models of the tests to plans for this machine."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from edgepack.frontend.onnx import import_model
from edgepack.frontend.reference import tolerances
from edgepack.graph.lower import lower
from edgepack.plan.build import Built, build_plan
from edgepack.target import CpuTarget
from tests.support.executor import host_target

__all__ = ["assert_close", "plan_of"]


def plan_of(model: onnx.ModelProto, name: str = "m", target: CpuTarget | None = None) -> Built:
    """The plan of a model whose shapes are static."""
    imported = import_model(model)
    return build_plan(
        lower(imported.module),
        name=name,
        inputs=imported.inputs,
        outputs=imported.outputs,
        target=target or host_target(),
        symbol_prefix=f"{name}_",
        nodes=imported.nodes,
    )


def assert_close(
    model: onnx.ModelProto, got: Mapping[str, np.ndarray], expected: Mapping[str, np.ndarray]
) -> None:
    """Compares outputs under the tolerance that a bundle of this model records."""
    allowed = tolerances(model)
    for name, reference in expected.items():
        value, limit = got[name], allowed[name]
        assert (value.shape, value.dtype) == (reference.shape, reference.dtype), name
        if isinstance(limit, int):
            assert np.abs(value.astype(np.int64) - reference.astype(np.int64)).max(initial=0) <= limit, name
            continue
        finite = np.isfinite(reference)
        scale = np.abs(reference[finite]).max(initial=0)
        np.testing.assert_allclose(
            value,
            reference,
            rtol=limit.relative_each,
            atol=max(limit.relative * scale, limit.floor),
            err_msg=name,
        )

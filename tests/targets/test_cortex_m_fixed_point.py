"""Fixed-point operators by Helium's instructions: every bit of what they compute on a Cortex-M55's board."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import edgepack
from tests.compiler.frontend.onnx.test_fixed_point import CASES, SHAPE
from workbench.models import save


def test_operators_compute_their_definitions_on_the_board(tmp_path: Path) -> None:
    """All in one image, none connected with another."""
    whole: onnx.ModelProto | None = None
    inputs = {}
    for number, case in enumerate(CASES.values()):
        part = onnx.compose.add_prefix(case.model, f"m{number}_")
        whole = part if whole is None else onnx.compose.merge_models(whole, part, io_map=[])
        for name, value in case.inputs.items():
            inputs[f"m{number}_{name}"] = tmp_path / f"{number}-{name}.npy"
            np.save(inputs[f"m{number}_{name}"], value)
    assert whole is not None
    path = save(whole, tmp_path, "operators.onnx")
    bundle = edgepack.pack(path, "cortex-m55", tmp_path / "bundle", inputs=inputs)
    assert {tuple(output.shape) for output in bundle.manifest.outputs} == {SHAPE}
    found = bundle.verify()
    assert found.ok, found

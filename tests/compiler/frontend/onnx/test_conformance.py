"""The imported module, built by TVM itself, computes what ONNX Runtime computes from the original file.

tests/compiler/kernels/test_operators.py compares the same models behind every step of the compiler; where it
fails, this says whether the frontend is to blame.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportedModel
from edgepack.compiler.frontend.onnx import import_file, import_model
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.output_facts import tolerances
from edgepack.compiler.frontend.tolerances import Tolerance
from workbench.models import DIMS, NETWORKS, build, save
from workbench.models.evaluate import random_inputs, run_onnxruntime, run_relax
from workbench.models.odd import ODD
from workbench.models.operators import CASES

pytestmark = pytest.mark.slow

SMALL = {**CASES, **ODD}


@pytest.mark.parametrize("name", SMALL)
def test_operator(name: str) -> None:
    model = SMALL[name]()
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    bind(bound, shapes={}, dims={})
    compare(model, import_model(bound), {})


#: TVM has no operator for their layers: what they are imported as only a rule computes.
RECURRENT = {"gru", "lstm"}


@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in RECURRENT])
def test_network(name: str, tmp_path: Path) -> None:
    dims = DIMS.get(name, {})
    model = build(name)
    compare(model, import_file(save(model, tmp_path), shapes={}, dims=dims), dims)


def compare(model: onnx.ModelProto, imported: ImportedModel, dims: dict[str, int]) -> None:
    inputs = random_inputs(model, seed=3, dims=dims)
    expected = run_onnxruntime(model, inputs)
    actual = run_relax(imported.module, [inputs[spec.name] for spec in imported.signature.inputs])
    assert [spec.name for spec in imported.signature.outputs] == [value.name for value in model.graph.output]
    allowed = tolerances(model)
    for spec, wanted, found in zip(imported.signature.outputs, expected, actual, strict=True):
        assert (spec.dtype, spec.shape) == (str(wanted.dtype), wanted.shape)
        assert (str(found.dtype), found.shape) == (str(wanted.dtype), wanted.shape)
        check(spec.name, wanted, found, allowed[spec.name])


def check(name: str, wanted: np.ndarray, found: np.ndarray, allowed: Tolerance | int) -> None:
    if isinstance(allowed, int):
        np.testing.assert_allclose(found.astype(np.int64), wanted.astype(np.int64), rtol=0, atol=allowed)
        return
    largest = np.abs(wanted[np.isfinite(wanted)].astype(np.float64)).max(initial=0.0)
    np.testing.assert_allclose(
        found.astype(np.float64),
        wanted.astype(np.float64),
        rtol=0,
        atol=max(allowed.floor, allowed.relative * largest),
        err_msg=name,
    )

"""The imported module computes what ONNX Runtime computes from the original file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportedModel
from edgepack.compiler.frontend.binding import bind
from edgepack.compiler.frontend.onnx import import_file, import_model
from edgepack.compiler.frontend.reference import Tolerance, tolerances
from tests.models import DIMS, NETWORKS, build, save
from tests.models.evaluate import random_inputs, run_onnxruntime, run_relax
from tests.models.odd import ODD
from tests.models.operators import CASES

SMALL = {**CASES, **ODD}

#: Networks that compile within a few seconds; the others run with ``-m slow``.
QUICK = ("resnet18", "mobilenetv3", "ds_cnn", "unet_transpose", "unet_resize", "mlp", "bert", "vit")


@pytest.mark.parametrize("name", SMALL)
def test_operator(name: str) -> None:
    model = SMALL[name]()
    bound = onnx.ModelProto()
    bound.CopyFrom(model)
    bind(bound, shapes={}, dims={})
    compare(model, import_model(bound), {})


@pytest.mark.parametrize("name", QUICK)
def test_network(name: str, tmp_path: Path) -> None:
    compare_network(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETWORKS if name not in QUICK])
def test_large_network(name: str, tmp_path: Path) -> None:
    compare_network(name, tmp_path)


def compare_network(name: str, folder: Path) -> None:
    dims = DIMS.get(name, {})
    model = build(name)
    compare(model, import_file(save(model, folder), shapes={}, dims=dims), dims)


def compare(model: onnx.ModelProto, imported: ImportedModel, dims: dict[str, int]) -> None:
    inputs = random_inputs(model, seed=3, dims=dims)
    expected = run_onnxruntime(model, inputs)
    actual = run_relax(imported.module, [inputs[spec.name] for spec in imported.inputs])
    assert [spec.name for spec in imported.outputs] == [value.name for value in model.graph.output]
    allowed = tolerances(model)
    for spec, wanted, found in zip(imported.outputs, expected, actual, strict=True):
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


@pytest.mark.parametrize("name", SMALL)
def test_operator_needs_no_function_of_tvms_runtime(name: str) -> None:
    """Only kernels and reshapes are left: no sort, no scan, nothing that a bundle lacks."""
    import tvm
    from tvm import relax

    model = SMALL[name]()
    bind(model, shapes={}, dims={})
    passes = [
        relax.transform.DecomposeOpsForInference(),
        relax.transform.LegalizeOps(),
        relax.transform.DeadCodeElimination(),
    ]
    with tvm.target.Target("llvm"):
        module = tvm.transform.Sequential(passes)(import_model(model).module)
    calls = {
        binding.value.op.name
        for block in module["main"].body.blocks
        for binding in block.bindings
        if isinstance(binding.value, relax.Call)
    }
    assert calls <= {"relax.call_tir", "relax.reshape"}
    assert "call_packed" not in module.script()

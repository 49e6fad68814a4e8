"""What TF32 rounds, in the reference: factors to 11 bits; and how far off a bundle may be then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_file
from edgepack.compiler.frontend.onnx.reference import record
from edgepack.compiler.frontend.onnx.rounded_factors import round_factors
from edgepack.compiler.frontend.tolerances import ROUNDING_FACTOR, TOLERANCES
from workbench.models import build, save
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime


def tf32(x: np.ndarray) -> np.ndarray:
    """To nearest, as the instruction does: half of the last bit is added to the number's bits."""
    return ((x.view(np.uint32) + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).view(np.float32)


def test_both_factors_are_rounded_to_eleven_bits() -> None:
    """One factor is read by another operator too, which gets it as it is."""
    g = Graph("g")
    x = g.input("x", (40, 32))
    w = g.weight(32, 24)
    g.op("MatMul", x, w, name="y")
    g.op("Neg", x, name="z")
    g.output("y")
    g.output("z")
    model = g.model()
    a = np.random.default_rng(1).standard_normal((40, 32)).astype(np.float32)
    b = onnx.numpy_helper.to_array(next(t for t in model.graph.initializer if t.name == w))
    y, z = run_onnxruntime(round_factors(model), {"x": a})
    exact = tf32(a).astype(np.float64) @ tf32(b).astype(np.float64)
    np.testing.assert_allclose(y, exact, atol=1e-6 * np.abs(exact).max())
    assert np.abs(exact - a.astype(np.float64) @ b).max() > 1e-4 * np.abs(exact).max()
    np.testing.assert_array_equal(z, -a)


def test_what_is_no_float32_product_stays() -> None:
    g = Graph("g")
    g.op("MatMul", g.input("x", (4, 8), "float64"), g.weight(8, 8, dtype="float64"), name="y")
    g.op("Mul", g.input("v", (4, 8)), g.weight(4, 8), name="z")
    g.output("y", "float64")
    g.output("z")
    model = g.model()
    assert list(round_factors(model).graph.node) == list(model.graph.node)


def limits(model: onnx.ModelProto, folder: Path, precision: Any) -> dict[str, float]:
    """Of the only output."""
    folder.mkdir()
    path = save(model, folder)
    specs = import_file(path, shapes={}, dims={}).signature.inputs
    record(path, specs, ImportOptions(precision=precision), seed=0, inputs={}, directory=folder / "recorded")
    (entry,) = json.loads((folder / "recorded" / "recorded.json").read_text(encoding="utf-8"))["outputs"]
    return {key: float(entry[key]) for key in ("atol", "rtol", "max_abs")}


@pytest.mark.parametrize(("name", "amplifies"), [("mlp", False), ("unet_transpose", True)])
def test_a_bundle_may_be_off_by_a_multiple_of_what_rounding_changes(
    name: str, amplifies: bool, tmp_path: Path
) -> None:
    found = limits(build(name), tmp_path / "tf32", "tf32")
    least = TOLERANCES["tf32"].relative * found["max_abs"]
    assert found["rtol"] == TOLERANCES["tf32"].relative_each
    assert found["atol"] > 10 * limits(build(name), tmp_path / "fp32", "fp32")["atol"]
    assert (found["atol"] > 1.5 * least) == amplifies
    assert found["atol"] < ROUNDING_FACTOR * 3 * least


NETWORKS = (
    *("mlp", "ds_cnn", "mobilenetv2", "mobilenetv3", "resnet18", "regnet", "convnext", "yolo", "unet_resize"),
    *("unet_transpose", "vit", "segformer", "hifigan", "tcn", "wav2vec2", "whisper_stem", "r3d"),
    *("small_alexnet", "small_densenet", "small_inception", "small_vgg"),
    *("light_densenet121", "light_inception_v2"),
)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_what_rounding_changes_is_alike_for_other_inputs(name: str) -> None:
    """Prints (``-s``) the most that an output is off by, of its range, for five random inputs."""
    model = build(name)
    exact, changed = model, round_factors(model)
    found = []
    for seed in range(5):
        inputs = random_inputs(model, seed)
        pairs = zip(run_onnxruntime(exact, inputs), run_onnxruntime(changed, inputs), strict=True)
        found.append([np.abs(y - x).max() / np.abs(x).max() for x, y in pairs if x.dtype == np.float32])
    print(name, " ".join(f"{100 * max(parts):.3f} %" for parts in found))
    for outputs in zip(*found, strict=True):
        least = TOLERANCES["tf32"].relative
        assert all(max(outputs) <= max(least, ROUNDING_FACTOR * one) for one in outputs)

"""``--weights float16``: which constants are rounded, what the reference then is, and what is left alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.frontend.onnx.weights import round_weights
from edgepack.compiler.frontend.tolerances import TOLERANCES
from edgepack.plan.types import WeightsDtype
from workbench.models import save
from workbench.models.builder import Graph
from workbench.models.evaluate import run_onnxruntime
from workbench.models.half import halved


def _network(scale: float = 1.0) -> onnx.ModelProto:
    """Depthwise and pointwise convolution with batch normalisation, product through a transpose."""
    g = Graph("rounded", seed=3)
    x = g.op(
        "Conv", g.input("x", [1, 32, 6, 6]), g.weight(32, 1, 5, 5), group=32, pads=[2] * 4, name="depthwise"
    )
    x = g.op("Conv", x, g.weight(40, 32, 1, 1, std=0.2 * scale), g.weight(40, std=0.1), name="pointwise")
    norm = [g.uniform(40, low=0.5, high=1.5) for _ in range(4)]
    x = g.op("Flatten", g.op("GlobalAveragePool", g.op("BatchNormalization", x, *norm)))
    x = g.op("MatMul", x, g.op("Transpose", g.weight(20, 40, std=0.2), perm=[1, 0]), name="product")
    g.op("Softmax", x, name="y")
    g.output("y")
    return g.model()


def _is_half(array: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((array.astype(np.float16) == array).all())


def _prepared(model: onnx.ModelProto, folder: Path, weights: WeightsDtype | None) -> list[str]:
    """Imports and records the model as ``pack`` does; returns the warnings."""
    options = ImportOptions(weights=weights)
    path = save(model, folder, "original.onnx")
    frontend.prepare(path, options, folder)
    return list(frontend.record(path, options, folder, seed=0, inputs={}))


def test_weights_of_products_are_rounded_and_nothing_else() -> None:
    g = Graph("operands")
    x, ids = g.input("x", [1, 40, 6, 6]), g.input("ids", [3], "int64")
    kinds = {
        "table": g.op("Gather", g.weight(64, 16, std=0.2), ids),
        "conv": g.op("Conv", x, g.weight(16, 40, 1, 1, std=0.2), g.weight(16)),
        "depthwise": g.op("Conv", x, g.weight(40, 1, 5, 5), group=40, pads=[2] * 4),
        "product": g.op("MatMul", x, g.op("Reshape", g.weight(6, 96), g.const(np.array([6, 96])))),
        "small": g.op("MatMul", x, g.weight(6, 8)),
        "sum": g.op("Add", x, g.weight(40, 6, 6)),
    }
    for name in kinds.values():
        g.output(name)
    model = g.model()
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    floats = {name for name, array in constants.items() if array.dtype == np.float32}
    assert not any(_is_half(constants[name]) for name in floats)
    assert round_weights(model) == ()
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        rounded = (
            tensor.name in floats and array.size >= 512 and array.shape not in {(40, 1, 5, 5), (40, 6, 6)}
        )
        assert _is_half(array) == (rounded or tensor.name not in floats)
        np.testing.assert_allclose(array, constants[tensor.name], rtol=2**-11, atol=2**-24)


@pytest.mark.parametrize(
    ("value", "why"), [(70000.0, "reaches 7e+04"), (1e-6, "is at most 1e-06"), (np.inf, "is not finite")]
)
def test_what_float16_cannot_hold_stays_float32_and_is_named(value: float, why: str) -> None:
    array = np.full((32, 32), value, np.float32)
    g = Graph("range")
    g.op("MatMul", g.input("x", [2, 32]), g.const(array), name="y")
    g.output("y")
    model = g.model()
    (text,) = round_weights(model)
    assert why in text
    assert "MatMul" in text
    np.testing.assert_array_equal(numpy_helper.to_array(model.graph.initializer[0]), array)


def test_the_reference_has_the_rounded_weights_so_the_tolerance_stays_that_of_float32(
    tmp_path: Path,
) -> None:
    """Batch normalisation is folded into the weights before they are rounded."""
    folders = {}
    for weights in ("float32", "float16"):
        folders[weights] = tmp_path / weights
        folders[weights].mkdir()
        assert _prepared(_network(), folders[weights], weights) == []
    read = {
        kind: np.fromfile(folder / "recorded" / "output_0.bin", np.float32)
        for kind, folder in folders.items()
    }
    assert 0 < np.abs(read["float32"] - read["float16"]).max() < 1e-3
    (entry,) = json.loads((folders["float16"] / "recorded" / "recorded.json").read_text())["outputs"]
    assert entry["atol"] <= 2 * TOLERANCES["float32"].relative * entry["max_abs"]
    normal = onnx.load(str(folders["float16"] / "model.onnx"))
    large = [a for t in normal.graph.initializer if (a := numpy_helper.to_array(t)).size == 1280]
    assert len(large) == 1
    assert all(_is_half(array) for array in large)
    x = np.fromfile(folders["float16"] / "recorded" / "input_0.bin", np.float32).reshape(1, 32, 6, 6)
    np.testing.assert_allclose(run_onnxruntime(normal, {"x": x})[0].ravel(), read["float16"], atol=1e-6)


def test_weights_whose_rounding_moves_the_result_are_warned_of(tmp_path: Path) -> None:
    """The difference of two products whose weights differ by less than float16 tells apart."""
    g = Graph("difference", seed=0)
    x, weight = g.input("x", [2, 64]), np.random.default_rng(0).normal(size=(64, 32)).astype(np.float32)
    g.op("Sub", g.op("MatMul", x, g.const(weight)), g.op("MatMul", x, g.const(weight * 1.0001)), name="y")
    g.output("y")
    (text,) = _prepared(g.model(), tmp_path, "float16")
    assert "move output 'y' by" in text


@pytest.mark.parametrize(
    ("dtype", "weights", "stored"),
    [
        ("float32", None, "never"),
        ("float32", "float16", "always"),
        ("float16", None, "where it is fast"),
        ("float16", "float16", "always"),
        ("float16", "float32", "never"),
    ],
)
def test_a_float16_model_keeps_its_weights_unless_told_otherwise(
    dtype: str, weights: WeightsDtype | None, stored: str, tmp_path: Path
) -> None:
    g = Graph("product")
    g.op("MatMul", g.input("x", [2, 32]), g.weight(32, 32), name="y")
    g.output("y")
    _prepared(g.model() if dtype == "float32" else halved(g.model()), tmp_path, weights)
    assert frontend.load(tmp_path).float16_weights == stored

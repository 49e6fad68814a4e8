"""What a quantised model's outputs may be off by is seen by rounding some values to the other step."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_file
from edgepack.compiler.frontend.onnx.flipped_steps import FACTORS, FLOAT_ERROR, draws, flip_steps
from edgepack.compiler.frontend.onnx.onnxruntime_session import create_session
from edgepack.compiler.frontend.onnx.reference import record
from workbench.models import save
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.quantised import QUANTISED

SCALE = np.float32(0.05)


def flipped(model: onnx.ModelProto, inputs: dict[str, np.ndarray]) -> list[list[np.ndarray]]:
    moved = flip_steps(model)
    assert moved is not None
    session = create_session(moved)
    return [[np.asarray(array) for array in session.run(None, run)] for run in draws(inputs)]


def quantised(shape: tuple[int, ...], zero: int = 128, **options: int) -> onnx.ModelProto:
    g = Graph("quantised", **options)
    g.op("QuantizeLinear", g.input("x", shape), g.const(SCALE), g.const(np.uint8(zero)), name="y")
    g.output("y", "uint8")
    return g.model()


def test_a_few_elements_are_one_step_off_in_each_run() -> None:
    """The nearest to the middle of two steps, and those within the error of float32: of 60,000 elements in 90
    steps on each side, one in 2 / (90 * FLOAT_ERROR * 2) = 430."""
    model = quantised((200, 300))
    inputs = random_inputs(model, 3)
    (wanted,) = run_onnxruntime(model, inputs)
    runs = [run[0].astype(int) - wanted for run in flipped(model, inputs)]
    assert all(set(np.unique(run)) == {-1, 0, 1} for run in runs)
    largest = float(np.abs(inputs["x"]).max()) / float(SCALE)  # in steps
    likely = wanted.size * largest * FLOAT_ERROR / 2  # the error's mean magnitude, on both sides
    for run in runs:
        assert likely / 3 < (run != 0).sum() < 3 * likely + 2
    assert len({run.tobytes() for run in runs}) == len(FACTORS)


def test_in_a_small_tensor_the_nearest_element_is_flipped() -> None:
    x = np.float32([0.2, 0.33, 0.449, 5.0, -5.0])
    model = quantised((5,))
    (wanted,) = run_onnxruntime(model, {"x": x})
    nearest = np.argmin(np.abs(np.abs(x / SCALE - np.rint(x / SCALE)) - 0.5))
    for (run,) in flipped(model, {"x": x}):
        assert np.flatnonzero(run.astype(int) - wanted).tolist() == [nearest]


def test_values_on_the_steps_and_beyond_the_last_one_stay() -> None:
    """Masks, what was rounded before; what saturates is no nearer to another step."""
    x = np.float32([0, 1, -3, 100, 127, 5000, -7000, 6.4e3]) * SCALE
    model = quantised((8,))
    (wanted,) = run_onnxruntime(model, {"x": x})
    for (run,) in flipped(model, {"x": x}):
        np.testing.assert_array_equal(run, wanted)


def test_dynamic_quantisation_keeps_its_range() -> None:
    model = QUANTISED["q_dynamic"]()
    inputs = random_inputs(model, 3)
    wanted, scale, zero = run_onnxruntime(model, inputs)
    for run in flipped(model, inputs):
        np.testing.assert_allclose(run[1], scale, rtol=2 * FLOAT_ERROR)
        assert run[2] == zero
        assert np.abs(run[0].astype(int) - wanted).max() == 1


@pytest.mark.parametrize(
    "name", ["q_add_uint8", "q_conv_int8_int8", "q_gemm_uint8_int8", "q_matmul_uint8_uint8"]
)
def test_operators_that_round_inside_are_opened(name: str) -> None:
    model = QUANTISED[name]()
    before = model.SerializeToString()
    inputs = random_inputs(model, 3)
    (wanted,) = run_onnxruntime(model, inputs)
    for (run,) in flipped(model, inputs):
        assert run.dtype == wanted.dtype
        assert np.abs(run.astype(int) - wanted).max() == 1
    assert model.SerializeToString() == before


def test_models_that_round_nothing_have_no_such_run() -> None:
    g = Graph("plain")
    g.op("Relu", g.input("x", [3]), name="y")
    g.output("y")
    assert flip_steps(g.model()) is None
    g = Graph("weights")  # quantised in the model: folded before anything is compiled
    step, zero = g.const(SCALE), g.const(np.int8(0))
    w = g.op("DequantizeLinear", g.op("QuantizeLinear", g.weight(4, 4), step, zero), step, zero)
    g.op("MatMul", g.input("x", [3, 4]), w, name="y")
    g.output("y")
    assert flip_steps(g.model()) is None


def test_models_that_resize_integers_have_no_such_run() -> None:
    """ONNX Runtime rounds there in its own way."""
    g = Graph("resized")
    x = g.op("QuantizeLinear", g.input("x", [1, 1, 4, 4]), g.const(SCALE), g.const(np.uint8(9)))
    g.op("Resize", x, "", g.const(np.float32([1, 1, 2, 2])), name="y")
    g.output("y", "uint8")
    assert flip_steps(g.model()) is None


def limits(model: onnx.ModelProto, folder: Path) -> dict[str, float]:
    path = save(model, folder)
    specs = import_file(path, shapes={}, dims={}).signature.inputs
    record(path, specs, ImportOptions(), seed=1, inputs={}, directory=folder / "recorded")
    recorded = json.loads((folder / "recorded" / "recorded.json").read_text(encoding="utf-8"))
    (output,) = recorded["outputs"]
    return {key: output[key] for key in ("atol", "max_abs")}


@pytest.mark.parametrize(("dtype", "steps"), [("uint8", 255), ("uint16", 65535)])
def test_recorded_tolerance_is_measured_in_the_steps_that_there_are(
    dtype: str, steps: int, tmp_path: Path
) -> None:
    """It was 2/127 of the range, whatever the type."""
    g = Graph("steps", opset=21, ir_version=10)
    scale, zero = g.const(np.float32(8 / steps)), g.const(np.asarray(steps // 2, dtype))
    x = g.op("QuantizeLinear", g.input("x", [4, 100]), scale, zero)
    g.op("DequantizeLinear", x, scale, zero, name="y")
    g.output("y")
    found = limits(g.model(), tmp_path)
    assert found["atol"] == pytest.approx(max(2 * 8 / steps, 1e-4 * found["max_abs"]), rel=0.05)

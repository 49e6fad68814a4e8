"""SVDF layers whose state is int8: TensorFlow Lite Micro's, which LiteRT reads out of bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.fixed_point_reference import multiply
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.recorded import RECORDED, read_inputs
from edgepack.compiler.frontend.tflite import interpreter
from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.fixed_point import quantize_multiplier
from edgepack.compiler.frontend.tflite.model_file import read_model
from workbench.compiled import Compiled, target_with
from workbench.models.tflite import Writer

FILTERS, STEPS, INPUTS, RANK = 4, 3, 6, 2
RANDOM = np.random.default_rng(2)
FEATURES = RANDOM.integers(-127, 128, (FILTERS, INPUTS), np.int8)
TIME = RANDOM.integers(-127, 128, (FILTERS, STEPS), np.int8)
BIAS = RANDOM.integers(-500, 500, FILTERS // RANK, np.int32)
X, W, STATE, T, Y = (np.float32(scale) for scale in (0.05, 0.01, 0.03, 0.02, 0.1))


def written(zero: int, folder: Path) -> Path:
    writer = Writer()
    x = writer.tensor([1, INPUTS], "int8", X, 3, name="x")
    features = writer.tensor(FEATURES.shape, "int8", W, data=FEATURES)
    time = writer.tensor(TIME.shape, "int8", T, data=TIME)
    bias = writer.tensor(BIAS.shape, "int32", STATE * T, data=BIAS)
    state = writer.tensor([1, FILTERS * STEPS], "int8", STATE, zero, variable=True, name="state")
    y = writer.tensor([1, FILTERS // RANK], "int8", Y, -4, name="y")
    writer.operator("SVDF", [x, features, time, bias, state], [y], 3, "SVDF", rank=RANK)
    path = folder / "svdf.tflite"
    path.write_bytes(writer.finished([x], [y]))
    return path


def _times(x: Any, factor: np.float32) -> Any:
    return multiply(x, *(np.asarray(value) for value in quantize_multiplier(float(factor))))


def kernel(x: Any, state: Any, zero: int) -> tuple[Any, Any]:
    """``EvalIntegerSvdfReference`` of ``tensorflow/lite/micro/kernels/svdf_common.cc``: result and state."""
    rows = np.roll(state.reshape(FILTERS, STEPS), -1, 1)
    sums = FEATURES.astype(np.int32) @ (x[0].astype(np.int32) - 3)
    rows[:, -1] = (np.clip(_times(sums, X * W / STATE), -128, 127) + zero).astype(np.int8)  # carries around
    terms = (TIME.astype(np.int32) * (rows.astype(np.int32) - zero)).sum(1, dtype=np.int32)
    total = terms.reshape(-1, RANK).sum(1, dtype=np.int32) + BIAS
    made = np.clip(_times(total, STATE * T / Y) - 4, -128, 127).astype(np.int8)
    return made.reshape(1, -1), rows.reshape(1, -1)


@pytest.mark.parametrize("zero", [0, 5, -90])
def test_a_state_of_bytes_is_that_of_the_micro_kernel(zero: int, tmp_path: Path) -> None:
    converted = convert(read_model(written(zero, tmp_path)))
    state = converted.states[0].initial
    made = Compiled({"svdf": converted.model}, tmp_path, target_with("128x16")) if zero == 5 else None
    random = np.random.default_rng(7)
    np.testing.assert_array_equal(state, np.full((1, FILTERS * STEPS), zero, np.int8))
    for _ in range(6):
        inputs = {"x": random.integers(-128, 128, (1, INPUTS), np.int8), "state": state}
        wanted, left = kernel(inputs["x"], state, zero)
        found = dict(zip(("y", "state_next"), evaluate(converted.model, inputs), strict=True))
        if made is not None:
            found = made.run("svdf", inputs, poison=0xFF)
        np.testing.assert_array_equal(found["y"], wanted)
        np.testing.assert_array_equal(found["state_next"], left)
        state = left


def test_it_is_recorded_without_litert_from_a_state_of_earlier_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(interpreter, "_opened", lambda *_: pytest.fail("LiteRT is asked"))
    path = written(5, tmp_path)
    tflite.prepare(path, ImportOptions(), tmp_path)
    tflite.record(path, ImportOptions(), tmp_path, seed=1, inputs={})
    recorded = read_inputs(tmp_path / RECORDED)
    assert (recorded["state"].reshape(FILTERS, STEPS)[:, 1:] != 5).any()

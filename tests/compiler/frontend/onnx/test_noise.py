"""A network that enlarges rounding passes where it is right, and a defect of it is found all the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.double_precision import DRAWS, in_double, with_draw
from edgepack.compiler.frontend.onnx.noise import measure
from edgepack.compiler.frontend.onnx.reference import record
from edgepack.compiler.frontend.onnx.reference_run import run_each
from edgepack.compiler.frontend.tolerances import LITTLE, NOISE_FACTOR, TOLERANCES, limits_of, share_of
from edgepack.plan.types import TensorSpec
from workbench.compiled import Compiled
from workbench.models import build, save
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime
from workbench.models.operators import CASES
from workbench.models.unsteady import chaotic, loop, recurrent, variance


class Recording:
    """What is recorded of a model, with one output.

    Attributes:
        said: of the output.
        data: of all of them.
    """

    def __init__(self, model: onnx.ModelProto, folder: Path, **inputs: Path) -> None:
        specs = [TensorSpec(i.name, i.dtype, tuple(map(int, i.shape or ()))) for i in model_inputs(model)]
        path, out = save(model, folder), folder / "recorded"
        self.warnings = record(path, specs, ImportOptions(), seed=0, inputs=inputs, directory=out)
        self.data: dict[str, Any] = json.loads((out / "recorded.json").read_text())
        (self.said,) = self.data["outputs"]
        self.inputs = {one["name"]: self._array(out, one) for one in self.data["inputs"]}
        self.reference = self._array(out, self.said)

    @staticmethod
    def _array(folder: Path, one: dict[str, Any]) -> np.ndarray:
        return np.frombuffer((folder / one["file"]).read_bytes(), one["dtype"]).reshape(one["shape"])

    def wrong(self, results: np.ndarray) -> int:
        """How many elements of an output are beyond the tolerance."""
        reference = self.reference.astype(np.float64)
        allowed = self.said["atol"] + self.said["rtol"] * np.abs(reference)
        return int((np.abs(results - reference) > allowed).sum())


def test_a_right_program_passes_where_rounding_is_enlarged_and_defects_do_not(tmp_path: Path) -> None:
    good, bad = variance(), variance(factor=1.25)
    found = Recording(good, tmp_path)
    assert found.said["noisy"] and found.data["noise_of"] == "runs in float64"
    assert found.warnings == ()
    compiled = Compiled({"good": good, "bad": bad}, tmp_path)
    results = {name: compiled.run(name, found.inputs)["y"] for name in ("good", "bad")}
    before = limits_of(found.reference, TOLERANCES["float32"], None)
    off = np.abs(results["good"] - found.reference)
    assert (off > before["atol"] + before["rtol"] * np.abs(found.reference)).any()
    assert found.wrong(results["good"]) == 0
    assert found.wrong(results["bad"]) > found.reference.size / 4, "a wrong constant"
    swapped = results["good"].copy()
    swapped[3, [5, 6]] = swapped[3, [6, 5]]
    assert found.wrong(swapped) > 0, "two elements in each other's places"
    assert found.wrong(np.roll(results["good"], 1, 0)) > found.reference.size / 4, "rows in others' places"


def test_noise_is_what_float64_differs_by(tmp_path: Path) -> None:
    found = Recording(variance(), tmp_path)
    x = found.inputs["x"].astype(np.float64)
    weights, *_ = (onnx.numpy_helper.to_array(t).astype(np.float64) for t in variance().graph.initializer)
    x = x @ weights + 100
    exact = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-6)
    off = np.abs(found.reference - exact).max()
    assert off <= 1.001 * found.said["noise"] <= 3 * off


def test_other_inputs_are_recorded_where_rounding_decides_on_the_first(tmp_path: Path) -> None:
    """Ten times as large ones hold the units of this recurrence at their ends."""
    found = Recording(recurrent(), tmp_path)
    assert found.data["drawn"] == "seed 0 and floats 10 times as large as usual"
    assert 7 < found.inputs["x"].std() < 13
    assert found.said["noise"] < 1e-4 and found.warnings == ()


def test_it_is_said_plainly_where_no_inputs_help(tmp_path: Path) -> None:
    found = Recording(chaotic(trips=30), tmp_path)
    (text,) = found.warnings
    assert "'y'" in text and "it proves little" in text and "float64" in text


def test_where_rounding_decides_whether_it_is_a_number_that_is_said_too(tmp_path: Path) -> None:
    """The root of a variance of equal values, which rounding makes more or less than 0."""
    g = Graph("root", seed=2)
    x = g.op("Expand", g.input("x", [300, 1]), g.const([300, 50]))
    average, squares = (g.op("ReduceMean", v, axes=[1], keepdims=0) for v in (x, g.op("Mul", x, x)))
    g.output(g.op("Sqrt", g.op("Sub", squares, g.op("Mul", average, average)), name="y"))
    found = Recording(g.model(), tmp_path)
    assert any("own rounding" in text and "it proves little" in text for text in found.warnings)


def test_inputs_that_are_given_stay(tmp_path: Path) -> None:
    x = np.random.default_rng(5).standard_normal((1000, 1, 8)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    found = Recording(recurrent(), tmp_path, x=tmp_path / "x.npy")
    np.testing.assert_array_equal(found.inputs["x"], x)
    assert "it proves little" in found.warnings[0]


@pytest.mark.parametrize("name", ["mlp", "vit", "convnext", "gru", "segformer"])
def test_the_tolerance_of_other_networks_stays(name: str) -> None:
    model = build(name)
    inputs = random_inputs(model, 0)
    wanted = dict(zip((o.name for o in model.graph.output), run_onnxruntime(model, inputs), strict=True))
    noise = measure(model, inputs, wanted)
    assert noise.source == "a run in float64"
    for output, array in wanted.items():
        (run,) = noise.runs
        limits = limits_of(array, TOLERANCES["float32"], None, noise=[run[output]])
        assert 0 < limits["noise"] < 0.05 * limits["atol"]
        before = limits_of(array, TOLERANCES["float32"], None)
        assert {**before, "noise": limits["noise"], "noisy": False} == limits


def test_what_has_no_float64_is_run_on_inputs_moved_by_a_bit() -> None:
    model = CASES["erf"]()
    inputs = random_inputs(model, 0)
    wanted = dict(zip((o.name for o in model.graph.output), run_onnxruntime(model, inputs), strict=True))
    noise = measure(model, inputs, wanted)
    assert noise.source == "runs on inputs moved by a unit in the last place"
    off = [np.abs(run[name] - wanted[name]).max() for run in noise.runs for name in wanted]
    assert 0 < max(off) < 1e-6


def test_models_that_round_to_steps_are_left_to_other_steps() -> None:
    model = CASES["qdq_conv"]()
    assert measure(model, random_inputs(model, 0), {}).runs == ()


def test_loops_are_computed_in_float64() -> None:
    model = loop(trips=12, gain=1.0)
    inputs = random_inputs(model, 0)
    x, weights = inputs["x"].astype(np.float64), onnx.numpy_helper.to_array(model.graph.initializer[0])
    for _ in range(12):
        x = np.sin(x @ weights.astype(np.float64))
    doubled = in_double(model)
    assert doubled is not None
    np.testing.assert_allclose(run_each(doubled, [with_draw(inputs, 0)])[0]["y"], x, rtol=1e-9)


def test_what_depends_on_constants_alone_stays_as_it_is() -> None:
    """It is folded, in float32, by whoever compiles the model: 7 * (1/7) is 1 there, and its floor too."""
    g = Graph("folded")
    place = g.op("Floor", g.op("Mul", g.const(np.float32(7)), g.const(np.float32(1) / np.float32(7))))
    g.output(g.op("Mul", g.op("Sin", g.input("x", [4])), place, name="y"))
    doubled = in_double(g.model())
    assert doubled is not None
    x = np.ones(4, np.float32)
    np.testing.assert_allclose(run_each(doubled, [with_draw({"x": x}, 0)])[0]["y"], np.sin(1.0), rtol=1e-15)


def test_moved_everywhere_runs_differ_by_rounding() -> None:
    model = build("mlp")
    inputs = random_inputs(model, 0)
    doubled = in_double(model, everywhere=True)
    assert doubled is not None
    runs = [one["probabilities"] for one in run_each(doubled, [with_draw(inputs, i) for i in range(DRAWS)])]
    off = [np.abs(run - runs[0]).max() / np.abs(runs[0]).max() for run in runs[1:]]
    assert all(1e-9 < one < 1e-6 for one in off)


def test_infinities_pass_through_what_is_moved() -> None:
    g = Graph("masked")
    x = g.op(
        "Where", g.op("Less", g.input("x", [6]), g.const(np.float32(0))), g.const(np.float32(-np.inf)), "x"
    )
    g.output(g.op("Softmax", g.op("Erf", g.op("Add", x, g.const(np.float32(1)))), name="y"))
    doubled = in_double(g.model(), everywhere=True)
    assert doubled is not None
    x = np.float32([-1, 2, -3, 4, 5, -6])
    (wanted,) = run_onnxruntime(g.model(), {"x": x})
    np.testing.assert_allclose(run_each(doubled, [with_draw({"x": x}, 0)])[0]["y"], wanted, rtol=1e-5)


REFERENCE = np.float32([100.0, 1.0, 0.01, -10.0])


@pytest.mark.parametrize(
    ("off", "wider"),
    [
        (lambda x: 1e-6 * x, None),
        (lambda x: 0.02 * x, "rtol"),  # in proportion: a logarithm's error behind an exponential
        (lambda x: 0.3 + 0 * x, "atol"),
    ],
)
def test_noise_widens_what_allows_less(off: Callable[[np.ndarray], np.ndarray], wider: str | None) -> None:
    base = limits_of(REFERENCE, TOLERANCES["float32"], None)
    limits = limits_of(REFERENCE, TOLERANCES["float32"], None, noise=[REFERENCE + off(REFERENCE)])
    assert [key for key in ("atol", "rtol") if limits[key] > base[key]] == ([wider] if wider else [])
    assert limits["noisy"] == (wider is not None)
    allowed = limits["atol"] + limits["rtol"] * np.abs(REFERENCE)
    assert (allowed >= NOISE_FACTOR * np.abs(off(REFERENCE)) - 1e-6).all()


def test_an_element_that_is_zero_is_allowed_what_it_is_off_by() -> None:
    reference = np.float32([0.0, 5.0])
    limits = limits_of(reference, TOLERANCES["float32"], None, noise=[reference + np.float32([0.01, 0])])
    assert limits["atol"] >= NOISE_FACTOR * 0.01


def test_the_share_says_what_a_tolerance_lets_pass() -> None:
    values = np.float32([1, 2, 3, 4])
    assert share_of(values, {"atol": 0.01, "rtol": 0.0}) < LITTLE
    assert share_of(values, {"atol": 1.0, "rtol": 0.0}) == 1
    assert share_of(np.float32([5]), {"atol": 1.0, "rtol": 0.0}) == pytest.approx(0.2)
    assert share_of(np.float32([np.nan]), {"atol": 1.0, "rtol": 0.0}) == 0

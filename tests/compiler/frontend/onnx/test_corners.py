"""What is recorded of corner data: as much as is well defined, and what is not is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.corner_inputs import corner_inputs
from edgepack.compiler.frontend.onnx.corners import Corners, record_corners
from edgepack.compiler.frontend.onnx.output_facts import tolerances
from edgepack.compiler.frontend.onnx.reference import record
from edgepack.compiler.frontend.onnx.reference_run import run_whatever_serves
from edgepack.compiler.frontend.onnx.sampling import random_inputs
from edgepack.compiler.frontend.recorded import read_inputs
from edgepack.plan.types import TensorSpec
from workbench.compiled import Compiled
from workbench.models import build, save
from workbench.models.builder import Graph
from workbench.models.operators import CASES
from workbench.models.unsteady import variance


def corners_of(model: onnx.ModelProto, *, exact: bool = False) -> Corners:
    arrays = random_inputs(model, 0)
    prepared = run_whatever_serves(model, arrays)[1]
    assert prepared is not None
    return record_corners(prepared, arrays, tolerances(model), (), exact=exact)


def network(kind: str = "Tanh") -> onnx.ModelProto:
    """Of 40 rows, each on its own."""
    g = Graph("rows", seed=4)
    x = g.op(kind, g.op("MatMul", g.input("x", [40, 12]), g.weight(12, 12)))
    g.output(g.op("Softmax", g.op("Add", x, g.const(np.float32(0.5))), name="y"))
    return g.model()


def test_rows_without_special_values_stay_numbers_beside_those_that_have_some() -> None:
    found = corners_of(network())
    assert list(found.runs) == ["special", "large", "ends"] and not found.left_out
    special = found.runs["special"]
    assert np.isnan(special.inputs["x"]).any() and np.isinf(special.inputs["x"]).any()
    odd = np.isnan(special.outputs["y"]).any(1)
    assert 0 < odd.sum() < 20 and not odd[:20].any()
    assert np.abs(found.runs["large"].inputs["x"]).max() == np.float32(1e12)
    ends = found.runs["ends"].inputs["x"]
    assert {0.0, 100.0, -100.0} <= set(ends.ravel().tolist()) and np.isfinite(ends).all()


def test_what_edgepack_computes_of_corners_is_what_is_recorded(tmp_path: Path) -> None:
    models = {"rows": network(), "where": CASES["where"](), "gather": _gather()}
    compiled = Compiled(models, tmp_path)
    for name, model in models.items():
        runs = corners_of(model).runs
        assert "ends" in runs
        for corner in runs.values():
            got = compiled.run(name, corner.inputs)
            for output, reference in corner.outputs.items():
                limits = corner.limits[output]
                np.testing.assert_allclose(
                    got[output], reference, rtol=limits["rtol"], atol=limits["atol"], equal_nan=True
                )


def _gather() -> onnx.ModelProto:
    g = Graph("gather", seed=1)
    g.output(g.op("Gather", g.weight(11, 3), g.input("ids", [20], "int64"), name="y"))
    return g.model()


def test_indices_are_at_both_ends_and_count_from_the_end() -> None:
    ids = corners_of(_gather()).runs["ends"].inputs["ids"]
    assert {-11, 10} <= set(ids.tolist())
    g = Graph("shifted", seed=1)
    shifted = g.op("Sub", g.input("ids", [20], "int64"), g.const(5))
    g.output(g.op("Gather", g.weight(11, 3), shifted))
    assert {5, 15} <= set(corners_of(g.model()).runs["ends"].inputs["ids"].tolist())


def test_integers_that_index_nothing_are_at_the_ends_of_their_type() -> None:
    g = Graph("sum")
    g.output(g.op("Add", g.input("a", [16], "int32"), g.const(np.int32(3))), "int32")
    drawn = corners_of(g.model()).runs["ends"].inputs["a"]
    assert {-(2**31), 2**31 - 1} <= set(drawn.tolist())


def test_no_integer_is_drawn_that_ends_onnxruntime() -> None:
    """The least integer by -1, which the processor has no quotient of."""
    g = Graph("quotient")
    g.output(g.op("Div", g.input("a", [16], "int32"), g.const(np.int32(-1))), "int32")
    assert corners_of(g.model()).runs["ends"].inputs["a"].min() > -(2**31)


def test_denormal_numbers_are_drawn_where_they_are_numbers() -> None:
    g = Graph("scaled")
    g.output(g.op("Mul", g.input("x", [64]), g.const(np.float32(2.0))))
    model = g.model()
    for exact in (False, True):
        (first, *_) = corner_inputs(model, random_inputs(model, 0), (), "ends", denormal=exact)
        tiny = (first["x"] != 0) & (np.abs(first["x"]) < np.finfo(np.float32).tiny)
        assert tiny.any() == exact


def test_most_of_an_input_stays_and_given_ones_stay_whole() -> None:
    model = network()
    arrays = random_inputs(model, 0)
    for name in ("special", "large", "ends"):
        for changed in corner_inputs(model, arrays, (), name):
            assert 0.6 < (changed["x"] == arrays["x"]).mean() < 1
        assert list(corner_inputs(model, arrays, ("x",), name)) == []


@pytest.mark.parametrize(
    ("make", "name", "reason"),
    [
        (CASES["topk"], "special", "TopK makes of NaN"),
        (lambda: build("ds_cnn"), "special", "convolutions"),
        (lambda: build("mlp"), "special", "all outputs are NaN"),
        (variance, "ends", "rounding"),
        (CASES["qdq_conv"], "large", "steps"),
    ],
)
def test_what_is_not_well_defined_is_left_out_and_said(make: Any, name: str, reason: str) -> None:
    assert reason in corners_of(make()).left_out[name]


def test_they_are_written_beside_the_usual_run(tmp_path: Path) -> None:
    model, out = network(), tmp_path / "recorded"
    specs = [TensorSpec(i.name, i.dtype, (40, 12)) for i in model_inputs(model)]
    record(save(model, tmp_path), specs, ImportOptions(), seed=0, inputs={}, directory=out)
    said = json.loads((out / "recorded.json").read_text())
    assert said["corners"] == ["special", "large", "ends"] and said["corners_left_out"] == {}
    for name in said["corners"]:
        own = json.loads((out / name / "recorded.json").read_text())
        assert [one["name"] for one in own["outputs"]] == ["y"]
        assert not np.array_equal(read_inputs(out / name)["x"], read_inputs(out)["x"])


def test_none_are_made_up_where_the_outputs_are_given(tmp_path: Path) -> None:
    model, out = network(), tmp_path / "recorded"
    np.save(tmp_path / "x.npy", np.zeros((40, 12), np.float32))
    np.save(tmp_path / "y.npy", np.ones((40, 12), np.float32))
    specs = [TensorSpec("x", "float32", (40, 12))]
    options = ImportOptions(expected={"y": tmp_path / "y.npy"})
    record(save(model, tmp_path), specs, options, seed=0, inputs={"x": tmp_path / "x.npy"}, directory=out)
    said = json.loads((out / "recorded.json").read_text())
    assert said["corners"] == [] and "given" in said["corners_left_out"]["ends"]


def test_of_a_large_model_it_is_said_that_it_is_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgepack.compiler.frontend.onnx.corners.LARGEST_WEIGHTS", 100)
    out, specs = tmp_path / "recorded", [TensorSpec("x", "float32", (40, 12))]
    record(save(network(), tmp_path), specs, ImportOptions(), seed=0, inputs={}, directory=out)
    said = json.loads((out / "recorded.json").read_text())["corners_left_out"]
    assert {"MiB of weights" in said[name] for name in ("special", "large", "ends")} == {True}

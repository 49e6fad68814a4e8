from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_file
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.output_facts import tolerances
from edgepack.compiler.frontend.onnx.reference import record
from edgepack.compiler.frontend.tolerances import CONDITION_LIMIT, TOLERANCES
from edgepack.errors import ConfigError, ModelError
from edgepack.plan.types import TensorSpec
from workbench.models import DIMS, build, save
from workbench.models.builder import Graph
from workbench.models.contrib import CONTRIB
from workbench.models.evaluate import run_onnxruntime
from workbench.models.odd import ODD
from workbench.models.operators import CASES


def recorded(
    model: onnx.ModelProto, folder: Path, *, seed: int = 0, inputs: dict[str, Path] | None = None, **dims: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    path = save(model, folder)
    specs = import_file(path, shapes={}, dims=dims).signature.inputs
    out = folder / "job" / "recorded"
    warnings = record(path, specs, ImportOptions(dims=dims), seed=seed, inputs=inputs or {}, directory=out)
    return json.loads((out / "recorded.json").read_text(encoding="utf-8")), warnings


def array(folder: Path, entry: dict[str, Any]) -> np.ndarray:
    data = (folder / "job" / "recorded" / entry["file"]).read_bytes()
    return np.frombuffer(data, np.dtype(entry["dtype"])).reshape(entry["shape"])


def test_outputs_are_those_of_onnxruntime_on_the_recorded_inputs(tmp_path: Path) -> None:
    model = build("bert")
    data, warnings = recorded(model, tmp_path, **DIMS["bert"])
    assert [(i["name"], i["dtype"], i["shape"], i["file"]) for i in data["inputs"]] == [
        ("input_ids", "int64", [1, 16], "input_0.bin"),
        ("attention_mask", "int64", [1, 16], "input_1.bin"),
    ]
    assert [entry["file"] for entry in data["outputs"]] == ["output_0.bin", "output_1.bin"]
    assert data["reference"].startswith("onnxruntime ")
    inputs = {entry["name"]: array(tmp_path, entry) for entry in data["inputs"]}
    for entry, wanted in zip(data["outputs"], run_onnxruntime(model, inputs), strict=True):
        np.testing.assert_array_equal(array(tmp_path, entry), wanted)
        assert entry["max_abs"] == pytest.approx(np.abs(wanted).max())
        assert 0 < entry["atol"] < 1e-3 * entry["max_abs"]
    assert warnings == ()


def test_what_a_kernel_of_onnxruntime_refuses_is_what_onnx_says(tmp_path: Path) -> None:
    """Of ConvInteger ONNX Runtime has only zero points of whole tensors, which it says when it runs."""
    g = Graph("integers", seed=5)
    x, weights = g.input("x", (1, 1, 5, 5), "uint8"), g.const(np.arange(18, dtype=np.uint8))
    weights = g.op("Reshape", weights, g.const(np.array([2, 1, 3, 3])))
    points = [g.const(np.array(3, np.uint8)), g.const(np.array([1, 7], np.uint8))]
    g.op("ConvInteger", x, weights, *points, name="y")
    g.output("y", "int32")
    data, _ = recorded(g.model(), tmp_path)
    assert data["reference"].startswith("onnx ")
    image = array(tmp_path, data["inputs"][0]).astype(int) - 3
    kernels = np.arange(18).reshape(2, 9) - np.array([[1], [7]])
    windows = np.lib.stride_tricks.sliding_window_view(image[0, 0], (3, 3)).reshape(3, 3, 9)
    expected = np.moveaxis(windows @ kernels.T, 2, 0)
    np.testing.assert_array_equal(array(tmp_path, data["outputs"][0])[0], expected)


@pytest.mark.parametrize(
    "name", ["scalars", "many_inputs_outputs", "float16_conv", "bool_logic", "output_is_input"]
)
def test_every_dtype_and_rank_is_written_as_it_is(name: str, tmp_path: Path) -> None:
    model = ODD[name]()
    data, _ = recorded(model, tmp_path)
    inputs = {entry["name"]: array(tmp_path, entry) for entry in data["inputs"]}
    for entry, wanted in zip(data["outputs"], run_onnxruntime(model, inputs), strict=True):
        assert (entry["dtype"], tuple(entry["shape"])) == (str(wanted.dtype), wanted.shape)
        np.testing.assert_array_equal(array(tmp_path, entry), wanted)


def test_outputs_whose_type_only_a_run_says_have_a_tolerance_too(tmp_path: Path) -> None:
    """Of ONNX Runtime's own operators ONNX infers no types, and outputs need not have any."""
    model = CONTRIB["ms_skipln"]()
    assert not any(value.type.tensor_type.elem_type for value in model.graph.output)
    path, out = save(model, tmp_path), tmp_path / "recorded"
    specs = [TensorSpec(i.name, i.dtype, tuple(map(int, i.shape or ()))) for i in model_inputs(model)]
    record(path, specs, ImportOptions(), seed=0, inputs={}, directory=out)
    data = json.loads((out / "recorded.json").read_text())
    assert all(one["atol"] > 0 and not one["noisy"] for one in data["outputs"])


def test_the_same_seed_writes_the_same_bytes(tmp_path: Path) -> None:
    contents = []
    for name, seed in (("a", 5), ("b", 5), ("c", 6)):
        folder = tmp_path / name
        folder.mkdir()
        recorded(build("mlp"), folder, seed=seed)
        made = folder / "job" / "recorded"
        files = [file for file in made.rglob("*") if file.is_file()]
        contents.append({file.relative_to(made).as_posix(): file.read_bytes() for file in files})
    assert contents[0] == contents[1]
    assert {"input_0.bin", "ends/input_0.bin"} <= contents[0].keys()
    assert contents[0]["input_0.bin"] != contents[2]["input_0.bin"]


def test_integers_and_bools_must_be_exact(tmp_path: Path) -> None:
    data, _ = recorded(ODD["many_inputs_outputs"](), tmp_path)
    limits = {entry["name"]: (entry["atol"], entry["rtol"]) for entry in data["outputs"]}
    assert limits["square"] == (0, 0)
    assert limits["greater"] == (0, 0)
    assert limits["sum"][0] > 0


def test_tolerance_follows_the_coarsest_arithmetic() -> None:
    assert tolerances(build("mlp"))["probabilities"] == TOLERANCES["float32"]
    assert tolerances(ODD["float16_conv"]())["y"] == TOLERANCES["float16"]
    assert tolerances(ODD["float16_inside"]())["y"] == TOLERANCES["float16"]
    assert tolerances(ODD["float64_dense"]())["y"] == TOLERANCES["float64"]
    assert tolerances(CASES["qdq_conv"]())["y"] == TOLERANCES["quantised"]
    assert tolerances(CASES["quantize_uint8"]())["y"] == 1
    assert tolerances(CASES["argmax"]())["y"] == 0


def test_a_network_that_amplifies_rounding_gets_a_wider_limit(tmp_path: Path) -> None:
    g = Graph("cancel")
    x = g.op("MatMul", g.input("x", [1, 4096]), g.weight(4096, 64))
    # The differences of nearly equal numbers keep the rounding errors and little else.
    big = g.op("Add", x, g.const(3e4))
    g.op(
        "Sub",
        g.op("ReduceSum", g.op("Mul", big, g.weight(1, 64, std=1.0)), g.const([1])),
        g.const(1.0),
        name="y",
    )
    g.output("y")
    data, _ = recorded(g.model(), tmp_path)
    (entry,) = data["outputs"]
    assert entry["atol"] <= 1.01 * max(CONDITION_LIMIT, TOLERANCES["float32"].relative) * entry["max_abs"]
    assert entry["atol"] >= 0.99 * TOLERANCES["float32"].relative * entry["max_abs"]


def test_constant_output_is_warned_of(tmp_path: Path) -> None:
    g = Graph("constant")
    g.op("Mul", g.input("x", [2, 3]), g.const(0.0), name="y")
    g.output("y")
    _, warnings = recorded(g.model(), tmp_path)
    assert len(warnings) == 1
    assert "'y'" in warnings[0]
    assert "equal" in warnings[0]


def test_output_that_is_not_finite_is_warned_of(tmp_path: Path) -> None:
    g = Graph("nan")
    g.op("Log", g.input("x", [50]), name="y")
    g.output("y")
    data, warnings = recorded(g.model(), tmp_path)
    assert "not finite" in warnings[0]
    assert np.isfinite(data["outputs"][0]["max_abs"])
    assert np.isfinite(data["outputs"][0]["atol"])


def test_given_input_is_used(tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 784, dtype="float32").reshape(1, 784)
    np.save(tmp_path / "x.npy", x)
    data, _ = recorded(build("mlp"), tmp_path, inputs={"x": tmp_path / "x.npy"})
    np.testing.assert_array_equal(array(tmp_path, data["inputs"][0]), x)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("wrong", np.zeros((1, 784), "float32"), "no input 'wrong'"),
        ("x", np.zeros((1, 784), "float64"), "float64"),
        ("x", np.zeros((784,), "float32"), "[784]"),
    ],
)
def test_given_input_that_does_not_fit(tmp_path: Path, name: str, value: np.ndarray, text: str) -> None:
    np.save(tmp_path / "x.npy", value)
    with pytest.raises(ConfigError) as caught:
        recorded(build("mlp"), tmp_path, inputs={name: tmp_path / "x.npy"})
    assert text in caught.value.message


@pytest.mark.parametrize("content", [b"", b"not numpy", None])
def test_given_input_that_is_no_array(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ConfigError, match=r"x\.npy"):
        recorded(build("mlp"), tmp_path, inputs={"x": tmp_path / "x.npy"})


def test_integers_are_drawn_smaller_where_the_model_cannot_run_on_the_first_ones(tmp_path: Path) -> None:
    """They are indices, which only running it shows."""
    g = Graph("counts", seed=1)
    ids = g.op("Mul", g.input("ids", [50], "int64"), g.const(1))
    g.output(g.op("Gather", g.weight(2, 3), ids))
    data, warnings = recorded(g.model(), tmp_path)
    assert set(array(tmp_path, data["inputs"][0])) == {0, 1}
    assert warnings == ()


def test_bfloat16_at_the_ends_is_left_to_the_standards_evaluator(tmp_path: Path) -> None:
    """ONNX Runtime has the kernel, and no way to hand it NumPy's arrays."""
    g = Graph("narrow", opset=21)
    g.output(g.op("Cast", g.input("x", [4]), to=onnx.TensorProto.BFLOAT16), "bfloat16")
    data, _ = recorded(g.model(), tmp_path)
    assert data["reference"].startswith("onnx ")
    assert data["outputs"][0]["dtype"] == "bfloat16"


def test_inputs_that_onnxruntime_cannot_run_on(tmp_path: Path) -> None:
    np.save(tmp_path / "ids.npy", np.full((1, 16), 10**6))
    path = save(build("bert"), tmp_path)
    specs = [TensorSpec("input_ids", "int64", (1, 16)), TensorSpec("attention_mask", "int64", (1, 16))]
    with pytest.raises(ModelError) as caught:
        record(
            path, specs, ImportOptions(dims=DIMS["bert"]), seed=0,
            inputs={"input_ids": tmp_path / "ids.npy"}, directory=tmp_path / "out",
        )  # fmt: skip
    assert "out" in caught.value.detail or "index" in caught.value.detail
    assert not (tmp_path / "out").exists()

"""benchmarks/real_models.py, which packs models out of wheels: what it reads, keeps and writes; and three
trained networks, packed, run and compared with ONNX Runtime."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))

import models_of_wheels
import real_models
from markdown import read_section
from models_of_wheels import Model
from real_models import Result, Strict, Times

SCRIPT = Path(real_models.__file__)
#: As Silero's detector: what is computed stands in the branches of an If on the sampling rate.
VOICE = Model(
    "voice", "voices==1.0", "voices/voice.onnx", "is it speech", shapes={"x": [1, 64]}, const={"sr": 16000}
)
#: As Paddle2ONNX writes: two dimensions that are both called '?'.
PADDLE = Model("paddle", "voices==1.0", "voices/paddle.onnx", "which way up", shapes={"x": [1, 3, 8, 6]})
#: What nobody gave a size.
OPEN = replace(PADDLE, name="open", shapes={})


def _model(nodes: list[onnx.NodeProto], inputs: dict[str, tuple[int, list[Any]]], weights: int) -> bytes:
    weight = np.random.default_rng(0).standard_normal((weights, 4), np.float32)
    graph = helper.make_graph(
        nodes,
        "twin",
        [helper.make_tensor_value_info(name, *about) for name, about in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    return bytes(model.SerializeToString())


def _voice() -> bytes:
    def branch(operator: str) -> onnx.GraphProto:
        nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node(operator, ["h"], ["z"])]
        output = helper.make_tensor_value_info("z", TensorProto.FLOAT, None)
        return helper.make_graph(nodes, operator, [], [output])

    nodes = [
        helper.make_node("Constant", [], ["high"], value=numpy_helper.from_array(np.array(16000))),
        helper.make_node("Equal", ["sr", "high"], ["is_high"]),
        helper.make_node("If", ["is_high"], ["y"], then_branch=branch("Sigmoid"), else_branch=branch("Tanh")),
    ]
    return _model(nodes, {"x": (TensorProto.FLOAT, ["?", "?"]), "sr": (TensorProto.INT64, [])}, 64)


def _paddle() -> bytes:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[2, 3], keepdims=0),
        helper.make_node("MatMul", ["m", "w"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
    ]
    return _model(nodes, {"x": (TensorProto.FLOAT, ["-1", 3, "?", "?"])}, 3)


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel in it, which then is not downloaded."""
    folder = tmp_path_factory.mktemp("real models")
    (folder / "wheels").mkdir()
    with zipfile.ZipFile(folder / "wheels" / "voices-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr(VOICE.file, _voice())
        wheel.writestr(PADDLE.file, _paddle())
    return folder


@pytest.mark.parametrize(("model", "inputs"), [(VOICE, ["x 1x64"]), (PADDLE, ["x 1x3x8x6"])])
def test_a_model_out_of_a_wheel_is_packed_verified_and_timed(
    model: Model, inputs: list[str], wheels: Path
) -> None:
    """ONNX Runtime gets what is pinned as the input that it is in the file."""
    result = real_models.run(model, wheels, [1], rounds=1)
    assert result.error == ""
    assert result.inputs == inputs
    assert result.deviation < 1e-4
    assert result.bundle_bytes > 1000 and result.file_bytes > 100
    times = result.times["1"]
    assert times.ratio == pytest.approx(times.onnxruntime / times.python)
    real_models.save(result, wheels / "results" / f"{model.name}.json")
    assert real_models.kept(model, wheels) == result
    assert real_models.kept(replace(model, does="something else"), wheels) == result
    assert real_models.kept(replace(model, const={"sr": 8000}), wheels) is None, "asked for otherwise"


def test_what_cannot_be_packed_says_why_and_ends_nothing(wheels: Path) -> None:
    result = real_models.run(OPEN, wheels, [1], rounds=1)
    assert "is not bound" in result.error or "are not bound" in result.error
    assert "shape" in result.hint and not result.times


def test_a_file_that_a_wheel_lacks_is_said(wheels: Path) -> None:
    result = real_models.run(replace(VOICE, name="none", file="voices/none.onnx"), wheels, [1], rounds=0)
    assert "voices/none.onnx" in result.error


def test_the_page_is_made_of_results_alone(tmp_path: Path) -> None:
    page = tmp_path / "models.md"
    page.write_text("# Models\n\nHow.\n", "utf-8")
    fast, slow = Times(1.0, 2.0, 6.0, 3.0), Times(4.0, 5.0, 6.0, 1.2)
    works = Result(VOICE.key, file_bytes=2_000_000, bundle_bytes=1_000_000, times={"1": fast, "2": slow})
    strict = replace(works, strict={"1": Strict(1.0, 4.0, 4.1)})
    fails = Result(OPEN.key, error="A dimension is not bound.")
    found = [(VOICE, works), (PADDLE, strict), (OPEN, fails)]
    for _ in range(2):  # the second time in the place of the first
        real_models.write_page(found, page)
    text = page.read_text("utf-8")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## What works",
        "## Denormal weights",
        "## The commands",
        "## What does not",
    ]
    works_part = read_section("What works", page)
    assert "| voice | is it speech | 2.00 | 1.00 |" in works_part and "open" not in works_part
    assert "**3.00**" in works_part and "geometric mean" in works_part
    assert "| 1.00 | 4.00 | **4.10** |" in read_section("Denormal weights", page)
    assert "A dimension is not bound." in read_section("What does not", page)
    commands = read_section("The commands", page)
    assert "\nedgepack pack voices/voice.onnx --shape x=1,64 --const sr=16000\n" in commands
    assert commands.count("pip download --no-deps voices==1.0") == 1


def test_the_table_names_wheels_by_their_versions_and_the_page_has_all_its_models() -> None:
    """`python benchmarks/real_models.py --write` writes it anew."""
    models = models_of_wheels.read_table()
    assert len(models) > 30
    page = real_models.PAGE.read_text("utf-8")
    commands = read_section("The commands", real_models.PAGE)
    for model in models:
        assert model.wheel.count("==") == 1, model
        assert model.file.endswith(".onnx"), model
        assert f"| {model.name} |" in page, f"{model.name} has no result in docs/trained-models.md"
        if f"| {model.name} | {model.wheel} |" not in page:  # in the list of those that do not work
            assert f"\n{model.command}\n" in commands, model.name


#: Small trained networks, in small wheels, all under the MIT licence. The first branches on an input
#: and keeps a state, the second loops over a second of sound, the third is of convolutions.
TRAINED = {
    "silero-vad": ["input 1x576", "state 2x1x128"],
    "faster-whisper-vad": ["input 31x576", "h 1x1x128", "c 1x1x128"],
    "swift-f0": ["audio 1x16000"],
}


@pytest.mark.parametrize(
    "name", [name if name == "silero-vad" else pytest.param(name, marks=pytest.mark.slow) for name in TRAINED]
)
def test_a_trained_network_computes_what_it_does_in_onnxruntime(name: str, tmp_path: Path) -> None:
    """pip downloads its wheel once, of the registry that it is configured for, and its file is the one that
    real_models.yaml has the hash of."""
    (model,) = (model for model in models_of_wheels.read_table() if model.name == name)
    assert model.sha256
    try:
        models_of_wheels.wheel_of(model, real_models.FOLDER / "wheels")
    except models_of_wheels.UnreachableError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(f"{error} With one, or the wheel in {real_models.FOLDER / 'wheels'}, this is tested.")
    with zipfile.ZipFile(models_of_wheels.wheel_of(model, real_models.FOLDER / "wheels")) as wheel:
        file = Path(wheel.extract(model.file, tmp_path))
    bundle, deviation = real_models.packed(model, file, tmp_path)
    assert [f"{one.name} {'x'.join(map(str, one.shape))}" for one in bundle.manifest.inputs] == TRAINED[name]
    assert deviation < 1e-4
    inputs = real_models.recorded_inputs(bundle)
    expected = real_models.onnxruntime_call(file, inputs, model, 1)()
    with bundle.load(threads=1) as session:
        for got, one in zip(session.run(inputs).values(), expected, strict=True):
            np.testing.assert_allclose(got, one, rtol=1e-3, atol=1e-4 * float(np.abs(one).max()))


def test_a_wheel_that_is_not_the_one_of_the_table_is_not_read(wheels: Path) -> None:
    with pytest.raises(RuntimeError, match=r"voices-1\.0-.*\.whl has the SHA-256 .*, not 00ff$"):
        models_of_wheels.wheel_of(replace(VOICE, sha256="00ff"), wheels / "wheels")


def test_no_network_is_told_from_a_wheel_that_is_not_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(RuntimeError, match="No matching distribution found for voices") as caught:
        models_of_wheels.wheel_of(VOICE, tmp_path)
    assert not isinstance(caught.value, models_of_wheels.UnreachableError)
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:1/simple")
    with pytest.raises(models_of_wheels.UnreachableError, match="there is no network"):
        models_of_wheels.wheel_of(VOICE, tmp_path)


@pytest.mark.slow
def test_wheels_are_downloaded_and_their_models_packed(tmp_path: Path) -> None:
    """By the command, in processes of its own."""
    command = [sys.executable, str(SCRIPT), "--quick", "--folder", str(tmp_path)]
    command += ["--only", "swift-f0", "basic-pitch", "faster-whisper-vad"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "All of them work." in done.stdout, done.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=True)
    assert again.stdout == done.stdout, "nothing is done twice"

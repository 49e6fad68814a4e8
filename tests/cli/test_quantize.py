"""``edgepack quantize``: the file and tables that it writes, and what it refuses, with the real worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import edgepack
import edgepack.commands.quantize
from edgepack.cli.main import main
from edgepack.errors import ConfigError, ModelError
from edgepack.pipeline.worker_process import Worker
from edgepack.system.confinement import Access, what_is_missing
from edgepack.system.progress import Progress
from tests.compiler.frontend.onnx.quantise.support import convolutions
from tests.support.shared_worker import MOST
from workbench.models import save


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    with Worker(access=MOST) as one:
        yield one


@pytest.fixture(autouse=True)
def _lent(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """One child does all jobs of this file."""

    @contextmanager
    def lend(*, progress: Progress, access: Access) -> Iterator[Worker]:
        del access
        worker.progress = progress
        yield worker

    monkeypatch.setattr(edgepack.commands.quantize, "Worker", lend)


@pytest.fixture
def model(folder: Path) -> Path:
    """A float model in a folder with a difficult name."""
    return save(convolutions(), folder, "float.onnx")


def test_the_file_and_its_tables(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = model.with_name("int8.onnx")
    assert main(["quantize", str(model), "--calibrate", "synthetic", "-o", str(output)]) == 0
    out = capsys.readouterr().out
    onnx.checker.check_model(str(output), full_check=True)
    assert "weights " in out.splitlines()[0] and "8 samples" in out.splitlines()[0]
    rows = {line.split()[0]: line.split() for line in out.splitlines() if line}
    assert rows["Conv_0"][1:5] == ["Conv", "0", "..", rows["Conv_0"][4]]
    assert float(rows["Conv_0"][-1]) > 30  # dB
    assert rows["scores"][-1] == "%"
    assert "warning: The calibration data were random" in out
    assert {path.name for path in model.parent.iterdir()} == {"float.onnx", "int8.onnx"}


def test_json_and_the_python_api_have_the_same_figures(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.savez(data := model.with_name("data.npz"), image=np.ones((2, 3, 8, 8), np.float32))
    output = model.with_name("int8.onnx")
    arguments = ["--calibrate", str(data), "--exclude", "Gemm,Conv_2", "-o", str(output)]
    assert main(["quantize", str(model), *arguments, "--json", "-q"]) == 0
    shown: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in shown["layers"] if not one["quantised"]] == ["Conv_2", "Gemm_7"]
    assert (shown["samples"], shown["warnings"], shown["path"]) == (2, [], str(output))
    before = output.read_bytes()
    made = edgepack.quantize(model, output, calibrate=data, exclude=["Gemm", "Conv_2"], force=True)
    assert json.loads(json.dumps(made.to_json())) == shown
    assert output.read_bytes() == before
    fewer = edgepack.quantize(model, output, calibrate=data, samples=1, force=True)
    assert fewer.warnings == (
        "1 more samples of the calibration data were not used (`edgepack.quantize(samples=)`).",
    )
    memory = edgepack.quantize(onnx.load(str(model)), output, calibrate="synthetic", force=True)
    assert memory.outputs[0].sqnr is not None and memory.outputs[0].sqnr > 30


def test_an_accuracy_of_a_script_is_shown(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(model.parent)
    Path("half.py").write_text("print('talks')\ndef accuracy(run):\n    return 0.5\n")
    command = ["quantize", "float.onnx", "--calibrate", "synthetic", "-o", "q.onnx", "--accuracy", "half.py"]
    assert main([*command, "--max-drop", "0"]) == 0
    out = capsys.readouterr().out
    assert "accuracy 0.5, of the float model 0.5" in out and "talks" not in out
    Path("half.py").write_text("def accuracy(run):\n    raise ValueError('no labels')\n")
    assert main([*command, "--force", "-q"]) == 2
    assert "half.py:2: accuracy raised ValueError: no labels." in capsys.readouterr().err
    if not what_is_missing():
        Path("half.py").write_text("def accuracy(run):\n    open('/log', 'w')\n")
        assert main([*command, "--force"]) == 2
        assert "neither write, connect nor start programs" in capsys.readouterr().err


def test_a_file_at_the_output_is_replaced_only_when_asked_for(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = model.with_name("int8.onnx")
    output.write_text("of value")
    command = ["quantize", str(model), "--calibrate", "synthetic", "-o", str(output), "-q"]
    assert main(command) == 2
    assert f"{output} exists." in capsys.readouterr().err
    assert output.read_text() == "of value"
    assert main([*command, "--force"]) == 0
    onnx.load(str(output))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ([], 2, "there are none"),
        (["--calibrate", "absent"], 2, "there is no such file or folder"),
        (["--dynamic", "--symmetric"], 2, "--dynamic does not go with --symmetric"),
        (["--dynamic", "--no-activation-tables"], 2, "--dynamic does not go with --no-activation-tables"),
        (["--dynamic", "--method", "entropy"], 2, "--dynamic does not go with --method"),
        (["--dynamic", "--no-bias-correction"], 2, "--dynamic does not go with --no-bias-correction"),
        (["--percentile", "99"], 2, "--percentile 99 says nothing to --method minmax"),
        (["--accuracy", "a.py", "--min-accuracy", "nan"], 2, "min_accuracy of quantize is a"),
        (["--calibrate", "synthetic", "--seed", "-1"], 2, "a whole number, 0 or more, not"),
        (
            ["--calibrate", "synthetic", "--method", "percentile", "--percentile", "40"],
            2,
            "cannot hold 40.0 %",
        ),
        (["--calibrate", "synthetic", "--exclude", "head*"], 2, "--exclude head*: no layer"),
        (["--calibrate", "synthetic", "--shape", "picture=1,3,8,8"], 2, "picture"),
        (["--calibrate", "synthetic", "--min-sqnr", "150"], 1, "--min-sqnr 150: outputs come no nearer"),
        (["--calibrate", "synthetic", "--max-drop", "0.1"], 2, "--max-drop needs --accuracy"),
        (
            ["--calibrate", "synthetic", "--accuracy", "a.py", "--max-drop", "0", "--min-accuracy", "1"],
            2,
            "--min-accuracy and --max-drop do not go together",
        ),
        (["--calibrate", "synthetic", "--accuracy", "absent.py"], 2, "the file cannot be read"),
        (["--dynamic", "--accuracy", "a.py", "--max-drop", "0"], 2, "--dynamic does not go with --max-drop"),
        (["--calibrate", "synthetic", "-o", "absent/int8.onnx"], 2, "there is no folder absent"),
        (["--calibrate", "synthetic", "-o", "."], 2, "is a folder"),
        (["--calibrate", "synthetic", "-o", "float.data", "--force"], 2, "is not named as an ONNX file"),
        (["--calibrate", "synthetic", "-o", "float.onnx", "--force"], 2, "is the model itself"),
    ],
    ids=lambda value: "-".join(map(str, value)).strip("-") if isinstance(value, list) else None,
)
def test_wrong_usage_is_a_sentence(
    arguments: list[str],
    code: int,
    said: str,
    model: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(model.parent)
    output = [] if "-o" in arguments else ["-o", "int8.onnx"]
    assert main(["quantize", "float.onnx", "-q", *arguments, *output]) == code
    err = capsys.readouterr().err
    assert said in err and "Traceback" not in err
    assert {path.name for path in model.parent.iterdir()} == {"float.onnx"}


def test_models_that_cannot_be_quantised_end_with_3(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = model.with_name("int8.onnx")
    assert main(["quantize", str(model), "--calibrate", "synthetic", "-o", str(output), "-q"]) == 0
    again = ["-o", str(model.with_name("again.onnx")), "--calibrate", "synthetic", "-q"]
    assert main(["quantize", str(output), *again]) == 3
    assert "is quantised already" in capsys.readouterr().err
    output.write_bytes(b"no model")
    assert main(["quantize", str(output), *again]) == 3
    assert main(["quantize", str(model.parent), *again]) == 3
    assert "is a folder" in capsys.readouterr().err


def test_the_python_api_names_options_as_it_takes_them(model: Path) -> None:
    with pytest.raises(ConfigError, match='calibrate="synthetic"'):
        edgepack.quantize(model, model.with_name("int8.onnx"))
    with pytest.raises(ConfigError, match="quantize has no option 'methods'"):
        edgepack.quantize(model, "q.onnx", methods="minmax")  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="exclude of quantize is a list of patterns"):
        edgepack.quantize(model, "q.onnx", exclude="Conv")
    with pytest.raises(ConfigError, match="There is no way 'mse' to choose ranges"):
        edgepack.quantize(model, "q.onnx", method="mse")  # type: ignore[typeddict-item]
    with pytest.raises(ModelError, match="does not exist"):
        edgepack.quantize(model.with_name("none.onnx"), "q.onnx", calibrate="synthetic")


def test_time_that_is_over_leaves_nothing(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match=r"Quantising float.onnx did not end within 0.001 s"):
        edgepack.quantize(model, model.with_name("q.onnx"), calibrate="synthetic", timeout=0.001)
    assert {path.name for path in model.parent.iterdir()} == {"float.onnx"}

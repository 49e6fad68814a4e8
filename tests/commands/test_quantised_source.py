"""``pack --quantize``: the model is quantised on the way, once for the same data, and the bundle says so."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import edgepack
from edgepack.cli.main import main
from edgepack.commands.quantised_source import job_before_pack, naming_model
from edgepack.errors import ConfigError, ModelError
from edgepack.options import PackOptions
from edgepack.pipeline.cache import Cache
from edgepack.pipeline.compile import Compiler, Quantised
from edgepack.pipeline.job import QuantiseJob
from edgepack.pipeline.worker_process import Worker
from edgepack.report.build import render_report
from edgepack.system.files import combined_digest
from edgepack.system.progress import Stages
from tests.compiler.frontend.onnx.quantise.support import convolutions
from workbench.models import save


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of two samples."""
    (folder := tmp_path / "data").mkdir()
    for number in range(2):
        x = np.random.default_rng(number).standard_normal((1, 3, 8, 8)).astype(np.float32)
        np.savez(folder / f"{number}.npz", image=x)
    return folder


def test_a_bundle_of_a_float_model_is_quantised_and_says_how(
    tmp_path: Path, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(convolutions(), tmp_path, "small.onnx")
    how = ["--quantize", "int8", "--calibrate", str(data), "--exclude", "Conv_0", "--reduce-range"]
    assert main(["pack", str(model), "-o", str(tmp_path / "bundle"), *how]) == 0
    printed = capsys.readouterr().out
    bundle = edgepack.Bundle(tmp_path / "bundle")
    said = bundle.manifest.model
    assert (said.file, said.sha256) == ("small.onnx", _digest(model))
    assert said.quantised is not None
    assert (said.quantised.mode, said.quantised.samples, said.quantised.exclude) == ("int8", 2, ("Conv_0",))
    assert said.quantised.sqnr["scores"] is not None and said.quantised.sqnr["scores"] > 30
    made = edgepack.quantize(
        model, tmp_path / "q.onnx", calibrate=data, exclude=["Conv_0"], reduce_range=True
    )
    assert said.quantised.sha256 == _digest(made.path)
    assert made.outputs[0].sqnr == said.quantised.sqnr["scores"]
    (output,) = said.quantised.outputs
    row = next(line.split() for line in printed.splitlines() if line.startswith("scores "))
    assert row[1] == f"{output.sqnr:.1f}" == f"{made.outputs[0].sqnr:.1f}"
    assert [(one.name, one.quantised) for one in said.quantised.layers] == [
        (one.name, one.quantised) for one in made.layers
    ]
    page = render_report(bundle.manifest)
    assert "weights of 7 bits" in page and "<bdi>Conv_2</bdi>" in page and "Conv (float)" in page
    assert bundle.verify().ok
    with pytest.raises(ConfigError, match="was quantised as it was packed"):
        edgepack.update(bundle.path, model, tmp_path / "new.params")


def _digest(file: Path) -> str:
    """As a model's, of one file."""
    return combined_digest([file])


def test_a_quantised_model_is_kept_for_the_same_contents_only(tmp_path: Path, data: Path) -> None:
    model = save(convolutions(), tmp_path, "small.onnx")
    stages: list[str] = []
    with Worker(progress=Stages(lambda stage, _: stages.append(stage))) as worker:
        compiler = Compiler(worker, Cache(tmp_path / "cache"))

        def made(name: str, job: QuantiseJob) -> tuple[Quantised, bool]:
            stages.clear()
            return compiler.quantise_model(job, tmp_path / name), "calibrate" not in stages

        options = PackOptions(quantize="int8", calibrate=data)
        job = job_before_pack(model, options)
        assert job is not None
        first, kept = made("first", job)
        assert not kept
        data.rename(data.with_name("elsewhere"))
        moved = job_before_pack(model, PackOptions(quantize="int8", calibrate=data.with_name("elsewhere")))
        assert moved is not None
        second, kept = made("second", moved)
        assert kept
        assert second.file.read_bytes() == first.file.read_bytes()
        assert (second.figures, second.calibration_digest) == (first.figures, first.calibration_digest)
        np.savez(data.with_name("elsewhere") / "2.npz", image=np.ones((1, 3, 8, 8), np.float32))
        third, kept = made("third", moved)
        assert not kept
        assert third.calibration_digest != first.calibration_digest
        random = job_before_pack(model, PackOptions(quantize="int8", calibrate="synthetic"))
        assert random is not None
        made("random", random)
        with pytest.raises(ConfigError, match="no such file or folder"):  # nor taken for random data
            made("fourth", replace(random, calibration=tmp_path / "absent"))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (PackOptions(calibrate="synthetic"), "which was not asked for"),
        (PackOptions(min_sqnr=30.0), "which was not asked for"),
        (PackOptions(reduce_range=True), "--reduce-range says how to quantise, which was not asked for"),
        (PackOptions(activation_tables=True), "which was not asked for"),
        (PackOptions(quantize="int8"), "there are none"),
        (PackOptions(quantize="dynamic", min_sqnr=30.0), "--quantize dynamic does not go with --min-sqnr"),
        (PackOptions(quantize="int4"), "cannot be quantised to 'int4'"),  # type: ignore[arg-type]
        (PackOptions(quantize="int8", calibrate="synthetic", custom="ops.yaml"), "does not go with --custom"),
        (PackOptions(quantize="int8", calibrate="synthetic", maxima={"y": 3}), "does not go with --max"),
    ],
    ids=str,
)
def test_options_that_do_not_go_together_are_refused(options: PackOptions, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        job_before_pack(Path("model.onnx"), options)


def test_errors_name_the_model_of_the_user(tmp_path: Path) -> None:
    private = tmp_path / "quantise" / "quantised.onnx"
    said = r"^net\.onnx \(quantised\) is odd$"
    with pytest.raises(ModelError, match=said), naming_model(Path("net.onnx"), tmp_path):
        raise ModelError(f"{private} is odd")

"""``edgepack tune`` from the command line to a pack: on a board of qemu, which counts exactly, and here."""

from __future__ import annotations

import json
import re
from pathlib import Path

import onnx
import pytest

import edgepack
from edgepack.cli.main import main
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile, read_tuned, write_tuned
from edgepack.errors import ConfigError
from edgepack.plan.tuned import TunedChoice
from tests.support.opencl import driver
from workbench.models import save
from workbench.models.builder import Graph
from workbench.models.quantise import quantise


def separable() -> onnx.ModelProto:
    """Depthwise and pointwise convolutions, wide enough that tiles differ."""
    g = Graph("separable")
    x = g.op("Relu", g.conv(g.input("x", [1, 8, 20, 21]), 8, 16, 3, stride=2, bias=True))
    for _ in range(2):
        x = g.op("Relu", g.conv(x, 16, 16, 3, groups=16, bias=True))
        x = g.op("Relu", g.conv(x, 16, 16, 1, bias=True))
    g.output(g.op("GlobalAveragePool", x, name="y"))
    return g.model()


@pytest.mark.slow
def test_counts_of_a_board_make_its_firmware_shorter(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(quantise(separable(), "s8s8"), tmp_path, "separable.onnx")
    file = tmp_path / "tuned.json"
    words = ["tune", str(path), "--device", "cortex-m4", "--trials", "3", "-o", str(file), "--json", "-q"]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["unit"] == "instructions" and said["trials"] == 3 and said["failed"] == 0
    assert said["kept"] and said["after"] < said["before"]
    known = read_tuned(file)
    assert known.choices and all(choice.counted for choice in known.choices)
    plain = edgepack.pack(path, "cortex-m4", tmp_path / "plain")
    tuned = edgepack.pack(path, "cortex-m4", tmp_path / "tuned", tuned=[file])
    runs = [bundle.bench().instructions for bundle in (plain, tuned)]
    assert [one.run for one in runs if one is not None] == [said["before"], said["after"]]
    assert tuned.verify().ok
    marked = [kernel for kernel in tuned.manifest.kernels if "tuned" in kernel.parameters]
    assert marked and not any("tuned" in kernel.parameters for kernel in plain.manifest.kernels)
    again = edgepack.tune(path, "cortex-m4", file, trials=1)
    assert again.trials == 1 and again.after <= said["after"]


@pytest.mark.slow
def test_this_machine_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, file = save(separable(), tmp_path, "separable.onnx"), tmp_path / "tuned.json"
    assert main(["tune", str(path), "--trials", "2", "-o", str(file)]) == 0
    said = capsys.readouterr().out
    assert "versions measured" in said and "a run: " in said
    assert read_tuned(file).tried
    bundle = edgepack.pack(path, "host", tmp_path / "bundle", tuned=[file])
    assert bundle.verify().ok
    merged = tmp_path / "merged.json"
    assert main(["tune", "--merge", str(file), "--merge", str(file), "-o", str(merged)]) == 0
    assert read_tuned(merged) == read_tuned(file)


@pytest.mark.slow
def test_the_kernels_of_a_gpu_are_tuned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By OpenCL's driver whose device is the CPU, which shows that it works and no GPU's speed."""
    driver(tmp_path / "pocl")
    path, file = save(separable(), tmp_path, "separable.onnx"), tmp_path / "tuned.json"
    words = [
        "tune",
        str(path),
        "--device",
        "opencl-generic",
        "--trials",
        "2",
        "-o",
        str(file),
        "--json",
        "-q",
    ]
    assert main(words) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["trials"] == 2 and said["unit"] == "ms" and "opencl: " in said["where"]
    device = load_device("opencl-generic")
    on = device.gpu_target(device.cpu_target())
    assert on is not None
    gpu, known = on.gpu_kind, read_tuned(file)
    assert set(known.tried) == {gpu} and {choice.cpu for choice in known.choices} <= {gpu}
    assert any(len(ratios) > 1 for ratios in known.tried[gpu].values())
    chosen = known.choices or [
        TunedChoice(gpu, group, "contraction", {"split_k": 1, "depth": 8}, 1.2) for group in known.tried[gpu]
    ]
    write_tuned(file, TunedFile(tuple(chosen)))
    bundle = edgepack.pack(path, "opencl-generic", tmp_path / "bundle", tuned=[file])
    assert bundle.verify().ok and bundle.manifest.options.tuned is not None
    of_gpu = bundle.manifest.code("opencl").kernels
    assert [kernel for kernel in of_gpu if "tuned" in kernel.parameters]
    assert not [kernel for kernel in bundle.manifest.kernels if "tuned" in kernel.parameters]
    assert main(["inspect", str(bundle.path), "--kernels"]) == 0
    assert re.search(r"opencl\.\w+ .* tuned=\d\.\d\dx", capsys.readouterr().out)


@pytest.mark.slow
def test_without_a_gpu_there_is_nothing_to_tune(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels would count as right, for they were not run."""
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    model = save(separable(), tmp_path, "separable.onnx")
    with pytest.raises(ConfigError, match="There is no driver for a GPU to tune for on this machine"):
        edgepack.tune(model, "opencl-generic", tmp_path / "tuned.json", trials=1)
    assert not (tmp_path / "tuned.json").exists()


@pytest.mark.slow
def test_an_emulator_s_times_are_refused(tmp_path: Path) -> None:
    path = save(separable(), tmp_path, "separable.onnx")
    with pytest.raises(ConfigError, match="its times say nothing about the device"):
        edgepack.tune(path, "raspberrypi2", tmp_path / "tuned.json", trials=1)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Give a MODEL to tune, or files with --merge"),
        (["MODEL", "--merge", "a.json"], "Give a MODEL to tune, or files with --merge"),
        (["--merge", "none.json"], "There is no file of tuned schedules"),
        (["MODEL", "--tuned", "a.json"], "not from --tuned"),
        (["MODEL", "--device", "nothing-like-it"], "nothing-like-it"),
    ],
)
def test_what_cannot_be_tuned_is_a_sentence(
    words: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(separable(), tmp_path, "separable.onnx")
    given = [str(path) if word == "MODEL" else word for word in words]
    assert main(["tune", *given, "-o", str(tmp_path / "tuned.json")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "tuned.json").exists()

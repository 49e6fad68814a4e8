"""``edgepack check``: what it prints and its exit code, with the fake worker; the real one plans what it
compiles."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

import edgepack
import edgepack.pipeline.compile
import edgepack.pipeline.worker_process
from edgepack.cli.main import main
from edgepack.compiler import worker
from edgepack.compiler.reporter import Reporter
from edgepack.config.device import load_device
from edgepack.errors import ConfigError
from edgepack.objectfiles.code_size import kernels_bytes
from edgepack.pipeline.compile_job import CompileJob
from edgepack.pipeline.job import CheckJob, ImportJob, Job
from edgepack.plan.types import Plan
from tests.support import fake
from workbench.models import build, save


@pytest.fixture
def mode(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    name: str = getattr(request, "param", "ok")
    monkeypatch.setattr(edgepack.pipeline.worker_process, "worker_command", fake.command(name))
    return name


@pytest.mark.usefixtures("mode")
def test_a_model_that_can_be_compiled_is_shown_by_rule_with_its_memory(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(small_model), "--device", "cortex-m4", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("small.onnx for cortex-m4: can be compiled and fits (")
    lines = [line.split() for line in out.splitlines()]
    assert ["plain", "2", "64", "FLOP", "768", "B", "multiply", "add", "relu"] in lines
    assert ["params", "224", "B"] in lines  # with the header of their file
    assert ["arena", "128", "B", "least", "possible", "128", "B"] in lines
    assert ["inputs", "and", "outputs", "288", "B"] in lines
    assert ["budget", "4.0", "MiB", "4.0", "MiB"] in lines
    assert lines[-1] == ["warning:", "this", "model", "was", "made", "by", "hand"]


@pytest.mark.usefixtures("mode")
def test_json_has_every_step(small_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(small_model), "--json", "-q"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["ok"], data["params_bytes"], data["arena_bytes"]) == (True, 96, 128)
    assert [(step["rule"], step["nodes"]) for step in data["steps"]] == [
        ("plain", ["Mul_0"]),
        ("plain", ["Add_0", "Relu_0"]),
    ]


@pytest.mark.parametrize("mode", ["error"], indirect=True)
@pytest.mark.usefixtures("mode")
def test_a_model_that_is_refused_says_what_where_and_what_to_try(
    small_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [str(small_model), "-d", "cortex-m4", "--shape", "input=4,8"]
    assert main(["check", *options, "-q"]) == 3
    out = capsys.readouterr().out
    assert "cannot be compiled" in out.splitlines()[0]
    assert "Foo       no converter for it  n0, n1, n2, n3, n4 and 2 more" in out
    command = ["edgepack", "pack", *options, "--outputs", "a b,c"]
    command[3] = "--device"
    assert shlex.split(out.splitlines()[-1]) == command
    assert main(["check", *options, "-q", "--json"]) == 3
    data = json.loads(capsys.readouterr().out)
    assert data["refused"][0]["nodes"] == [f"n{i}" for i in range(7)]
    assert data["cuts"][0]["outputs"] == ["a b", "c"]


@pytest.mark.usefixtures("mode")
def test_what_is_beyond_a_budget_does_not_fit_and_exits_with_1(
    small_model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text("extends: cortex-m4\nbudget: {flash: 95, ram: 127}\n", encoding="utf-8")
    found = edgepack.check(small_model, path)
    assert (found.ok, found.fits) == (True, False)
    assert found.message == (
        "small is too large for tiny: it needs at least 224 B of flash where 95 B are allowed and 416 B of "
        "RAM where 127 B are allowed."
    )
    assert "288 B of RAM go to inputs and outputs alone" in found.hint
    assert main(["check", str(small_model), "-d", str(path), "-q"]) == 1
    out = capsys.readouterr().out
    assert "can be compiled, but is too large" in out.splitlines()[0]
    assert "too much 129 B 289 B" in [" ".join(line.split()) for line in out.splitlines()]
    assert found.message in out and found.hint in out


@pytest.mark.usefixtures("mode")
def test_a_model_that_may_just_not_fit_is_not_said_to_fit(small_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "tight.yaml"
    path.write_text("extends: cortex-m4\nbudget: {flash: 64 KiB, ram: 600}\n", encoding="utf-8")
    found = edgepack.check(small_model, path)
    assert (found.ok, found.fits) == (True, None)
    assert found.warnings[-1].startswith("184 B of RAM is left for what is known when it is packed")


@pytest.mark.usefixtures("mode")
def test_what_has_room_in_none_of_several_memories_does_not_fit(small_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "parted.yaml"
    memories = "memories: [{name: ram, arena: .bss.a}, {name: flash, params: .rodata.a}]"
    path.write_text(f"extends: cortex-m4\nbudget: {{flash: 8 KiB, ram: 64 KiB}}\n{memories}\n")
    found = edgepack.check(small_model, path)
    assert (found.ok, found.fits, found.memories) == (True, False, ())
    assert "too large for the memories of parted: 64 B of its 96 B of params" in found.message
    path.write_text(f"extends: cortex-m4\nbudget: {{flash: 64 KiB, ram: 64 KiB}}\n{memories}\n")
    found = edgepack.check(small_model, path)
    assert found.fits
    assert [(one.name, one.parts) for one in found.memories] == [
        ("flash", {"params": 64}),
        ("RAM", {"arena": 128, "inputs and outputs": 288}),
    ]


@pytest.mark.usefixtures("mode")
def test_a_device_with_an_operating_system_has_no_budget_to_fit(small_model: Path) -> None:
    assert edgepack.check(small_model, "raspberrypi4").fits is None


def test_options_that_decide_nothing_here_are_refused(small_model: Path) -> None:
    with pytest.raises(ConfigError, match="check has no option 'force'"):
        edgepack.check(small_model, force=True)  # type: ignore[call-arg]
    with pytest.raises(ConfigError, match="No kernels are made for 'speed'"):
        edgepack.check(small_model, optimize="speed")  # type: ignore[typeddict-item]
    with pytest.raises(ConfigError, match="There is no optimisation level 4") as error:
        edgepack.check(small_model, opt_level=4)  # type: ignore[typeddict-item]
    assert "Use 0 (each operator a kernel of plain loops)" in error.value.hint
    with pytest.raises(
        ConfigError, match="opt_level of check is a whole number from 0 to 3, not the str '1'"
    ):
        edgepack.check(small_model, opt_level="1")  # type: ignore[typeddict-item]


class _Quiet(Reporter):
    def stage(self, name: str) -> None:
        del name


def test_the_plan_is_that_of_a_pack(tmp_path: Path) -> None:
    model, target = save(build("mlp"), tmp_path), load_device("linux-x86_64-v3").cpu_target()

    def do(job: Job, name: str) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        data: dict[str, Any] = job.to_json()
        worker._TASKS[job.task](data, folder, _Quiet())  # type: ignore[arg-type]
        return folder

    imported = do(ImportJob(model, "onnx"), "import")
    compiled = do(CompileJob(model, imported, "onnx", "model", target, ""), "compile")
    checked = do(CheckJob(model, "onnx", target=target), "check")
    plans = [Plan.from_json((folder / "plan.json").read_text()) for folder in (compiled, checked)]
    assert plans[0] == plans[1]
    assert not (checked / "kernels.o").exists()


def test_a_check_for_a_microcontroller_counts_the_code_of_its_pack(tmp_path: Path) -> None:
    model, target = save(build("mlp"), tmp_path), load_device("cortex-m4").cpu_target()
    for job, name in (
        (ImportJob(model, "onnx"), "import"),
        (CompileJob(model, tmp_path / "import", "onnx", "model", target, ""), "compile"),
        (CheckJob(model, "onnx", target=target), "check"),
    ):
        (folder := tmp_path / name).mkdir()
        worker._TASKS[job.task](job.to_json(), folder, _Quiet())  # type: ignore[arg-type, attr-defined]
    sizes = [kernels_bytes(tmp_path / name / "kernels.o") for name in ("compile", "check")]
    assert sizes[0] == sizes[1] > 100


@pytest.mark.parametrize("mode", ["hang:check"], indirect=True)
def test_a_check_and_the_reading_of_a_model_have_a_time(
    mode: str, small_model: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["check", str(small_model), "--timeout", "0.5"]) == 3
    err = capsys.readouterr().err
    assert "Checking small.onnx did not end within 0.5 s; it was at its start." in err
    assert "--timeout" in err
    monkeypatch.setattr(edgepack.pipeline.worker_process, "worker_command", fake.command("hang:read"))
    monkeypatch.setattr(edgepack.pipeline.compile, "_SECONDS", 0.5)
    assert main(["inspect", str(small_model)]) == 3
    assert "Reading small.onnx did not end within 0.5 s" in capsys.readouterr().err


@pytest.mark.usefixtures("mode")
def test_a_time_of_0_is_no_limit(small_model: Path) -> None:
    assert main(["check", str(small_model), "--timeout", "0", "--quiet"]) == 0
    assert edgepack.check(small_model, timeout=0).ok


def test_constants_are_numbers(
    small_model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[Any] = []

    def check_model(*arguments: Any) -> None:
        seen.append(arguments[2].const)
        raise ConfigError("seen")

    monkeypatch.setattr("edgepack.commands.check.check_model", check_model)
    assert main(["check", str(small_model), "--const", "sr=16000", "--const", "a=b=1,-2,true,0.5", "-q"]) == 2
    assert seen == [{"sr": (16000,), "a=b": (1, -2, True, 0.5)}]
    for text in ("sr", "sr=", "sr=loud", "sr=1,,2"):
        assert main(["check", str(small_model), "--const", text, "-q"]) == 2
        assert "Invalid value for '--const'" in capsys.readouterr().err
    assert len(seen) == 1

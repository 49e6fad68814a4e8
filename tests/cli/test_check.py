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
    assert out.startswith("small.onnx for cortex-m4: can be compiled (")
    lines = [line.split() for line in out.splitlines()]
    assert ["plain", "2", "64", "FLOP", "768", "B", "multiply", "add", "relu"] in lines
    assert ["params", "96", "B"] in lines
    assert ["arena", "128", "B", "least", "possible", "128", "B"] in lines
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
def test_what_is_beyond_a_budget_is_said(small_model: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.yaml"
    path.write_text("extends: cortex-m4\nbudget: {flash: 95, ram: 127}\n", encoding="utf-8")
    found = edgepack.check(small_model, path)
    assert [text.split(":")[0] for text in found.warnings[-2:]] == ["params", "arena"]
    assert "the budget of RAM of tiny (127 B)" in found.warnings[-1]


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

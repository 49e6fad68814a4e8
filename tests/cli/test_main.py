"""The program itself: quick to answer, nothing heavy imported, errors as sentences with exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import edgepack.cli.main as main_module
from edgepack import errors
from edgepack.cli.main import COMMANDS, main

HEAVY = ("tvm", "tvm_ffi", "onnx", "onnxruntime", "torch", "lief", "rich")


def run(*arguments: str, code: int) -> None:
    assert main(list(arguments)) == code


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    run("--help", code=0)
    out = capsys.readouterr().out
    assert all(f"  {name} " in out for name in COMMANDS)
    assert "Exit codes" in out


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    run(name, "--help", code=0)
    assert capsys.readouterr().out.startswith(f"Usage: edgepack {name}")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["devices"], ["toolchains"], ["pack", "--help"]]
)
def test_answers_without_importing_anything_heavy(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys, json\n"
        "from edgepack.cli.main import main\n"
        f"main({arguments!r})\n"
        "print(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = json.loads(done.stderr.splitlines()[-1])
    assert [name for name in HEAVY if name in loaded] == []


def test_an_unknown_command_is_answered_with_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    run("verfy", code=2)
    assert "Did you mean verify?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (errors.CheckFailedError, 1),
        (errors.ConfigError, 2),
        (errors.ModelError, 3),
        (errors.ToolchainError, 4),
        (errors.InternalError, 5),
    ],
)
def test_an_error_is_a_sentence_detail_and_hint(
    kind: type[errors.EdgepackError],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise kind("It broke in there.", hint="Try that.", detail="line 1\nline 2")

    monkeypatch.setattr(main_module.cli, "main", fail)
    run("verify", code=code)
    assert capsys.readouterr().err.splitlines() == [
        "edgepack: error: It broke in there.",
        "  | line 1",
        "  | line 2",
        "  hint: Try that.",
    ]


def test_an_unexpected_exception_is_logged_and_shown_only_if_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fail(*args: object, obj: main_module.Settings, **kwargs: object) -> None:
        obj.verbose = "-v" in sys.argv
        raise ZeroDivisionError("nothing by nothing")

    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(main_module.cli, "main", fail)
    monkeypatch.setattr(sys, "argv", ["edgepack", "pack"])
    assert main() == 5
    err = capsys.readouterr().err
    assert "internal error: ZeroDivisionError: nothing by nothing" in err
    assert "Traceback" not in err
    (log,) = (tmp_path / "logs").iterdir()
    assert str(log) in err
    assert "Traceback" in log.read_text()
    monkeypatch.setattr(sys, "argv", ["edgepack", "pack", "-v"])
    assert main() == 5
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--help"], ["devices", "--json"]])
def test_a_reader_that_goes_away_is_no_error(arguments: list[str]) -> None:
    """`edgepack devices | head`: the other end of the pipe is closed before anything is written."""
    code = f"import sys; from edgepack.cli.main import main; sys.exit(main({arguments!r}))"
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run(
            [sys.executable, "-c", code], stdout=writer, stderr=subprocess.PIPE, text=True, check=False
        )
    finally:
        os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["pack"], "Missing argument 'MODEL'"),
        (["pack", "m.onnx", "--shape", "1,2"], "not of the form INPUT=1,3,224,224"),
        (["pack", "m.onnx", "--shape", "x=1,a"], "is no shape"),
        (["pack", "m.onnx", "--shape", "x=1,-2"], "negative extent"),
        (["pack", "m.onnx", "--shape", "x=1", "--shape", "x=2"], "given twice"),
        (["pack", "m.onnx", "--dim", "n=x"], "is not a whole number"),
        (["pack", "m.onnx", "--max", "n"], "not of the form TENSOR=N"),
        (["check", "m.onnx", "--max", "n=0"], "room for 1 entry"),
        (["pack", "m.onnx", "--input", "x"], "not of the form NAME=FILE.npy"),
        (["pack", "m.onnx", "--params", "somewhere"], "'somewhere' is not one of"),
        (["bench", "b", "--runs", "0"], "--runs"),
        (["verify", "b", "--threads", "0"], "--threads"),
    ],
)
def test_wrong_usage_is_explained(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(*arguments, code=2)
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "bench", "inspect"])
def test_what_is_no_bundle_is_a_clear_error(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(command, str(tmp_path / "nö where"), code=2)
    assert "nö where is not a bundle: it does not exist." in capsys.readouterr().err

"""What shells complete, as the printed scripts ask for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.cli.main import main


def asked(*words: str) -> list[str]:
    """What bash is offered for the last word of a line."""
    done = subprocess.run(
        [sys.executable, "-m", "edgepack"],
        env={
            **os.environ,
            "_EDGEPACK_COMPLETE": "bash_complete",
            "COMP_WORDS": "edgepack " + " ".join(words),
            "COMP_CWORD": str(len(words)),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def test_commands_and_options_are_completed() -> None:
    assert asked("pa") == ["plain,pack"]
    assert "plain,--device" in asked("pack", "--dev")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (("pack", "m.onnx", "--device", "cortex"), "plain,cortex-m33"),
        (("pack", "m.onnx", "--device", "stm32f40"), "plain,stm32f407"),
        (("pack", "m.onnx", "--device", "./bo"), "file,./bo"),
        (("bench", "bundle", "--device", "raspberrypi"), "plain,raspberrypi4"),
        (("pack", "m.onnx", "--toolchain", "gcc"), "plain,gcc-arm-none-eabi"),
        (("export", "bundle", "--format", "pl"), "plain,platformio"),
        (("verify", "bundle", "--runner", "qemu"), "plain,qemu-system"),
        (("pack", "res"), "file,res"),
        (("pack", "m.onnx", "--optimize", "s"), "plain,size"),
        (("devices", "esp32"), "plain,esp32-c3"),
        (("cache", "pr"), "plain,prune"),
    ],
)
def test_names_and_files_are_completed(words: tuple[str, ...], offered: str) -> None:
    assert offered in asked(*words)


def test_a_broken_device_file_is_no_error_of_completion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken.yaml").write_text("thread: 1\n", encoding="utf-8")
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", str(tmp_path))
    assert "plain,broken" in asked("pack", "m.onnx", "--device", "bro")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_one_that_its_shell_reads(
    shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert f"_EDGEPACK_COMPLETE={shell}_complete" in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script, encoding="utf-8")
        subprocess.run([shell, "-n", tmp_path / "script"], check=True)


def test_an_unknown_shell_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "cmd"]) == 2
    assert "bash" in capsys.readouterr().err

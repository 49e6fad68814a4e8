"""``edgepack devices`` and ``edgepack toolchains``: what they print, and that they are quick."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.cli.main import main
from edgepack.config.device import device_names, load_device
from edgepack.config.toolchain import toolchain_names


@pytest.mark.parametrize(
    ("command", "names"), [("devices", device_names()), ("toolchains", toolchain_names())]
)
def test_the_list_has_all(command: str, names: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1 : 1 + len(names)]] == names
    assert main([command, "--json"]) == 0
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == names


def test_quiet_prints_only_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--quiet"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1 + len(device_names())


def test_one_device_as_yaml_and_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "raspberrypi2"]) == 0
    assert "  triple: armv7a-unknown-linux-gnueabihf" in capsys.readouterr().out
    assert main(["devices", "raspberrypi2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == load_device("raspberrypi2").model_dump(mode="json")


def test_one_toolchain(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["toolchains", "gcc"]) == 0
    assert 'cc: ["{target}-gcc", gcc, cc]' in capsys.readouterr().out
    assert main(["toolchains", "gcc", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["family"] == "gcc"


@pytest.mark.parametrize("command", ["devices", "toolchains"])
def test_an_unknown_name_is_wrong_usage(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "nonesuch"]) == 2
    assert "there is no" in capsys.readouterr().err


def test_a_broken_file_of_the_user_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken.yaml").write_text("extends: host\nthread: 1\n", encoding="utf-8")
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", str(tmp_path))
    assert main(["devices"]) == 0
    captured = capsys.readouterr()
    assert "raspberrypi4" in captured.out
    assert "broken.yaml:2: thread: unknown key" in captured.err


@pytest.mark.parametrize("command", ["devices", "toolchains"])
def test_listing_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys; from edgepack.cli.main import main; main([sys.argv[1]]);"
        "print([m for m in ('tvm', 'onnx', 'onnxruntime', 'numpy', 'lief', 'rich') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, command],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_list_has_the_aliases_of_chips_by_device(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^cortex-m4 +cortex-m4f, stm32f401, ", out, re.MULTILINE)
    assert main(["devices", "--json"]) == 0
    by_name = {item["name"]: item["aliases"] for item in json.loads(capsys.readouterr().out)}
    assert by_name["host"] == {}
    assert by_name["cortex-m4"]["stm32f407"]["budget"] == {"flash": 1 << 20, "ram": 128 << 10}
    assert "168 MHz" in by_name["cortex-m4"]["stm32f407"]["about"]


def test_an_alias_is_said_on_standard_error_unless_quiet(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "stm32f407"]) == 0
    shown = capsys.readouterr()
    assert shown.err.startswith("stm32f407 is cortex-m4 here: Cortex-M4F, 168 MHz")
    assert "name: stm32f407" in shown.out
    assert main(["devices", "stm32f407", "--quiet"]) == 0
    assert capsys.readouterr().err == ""

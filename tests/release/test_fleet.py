"""The example of a fleet: its file says what it means to, and it is released, checked and released again as
its README says."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.release.index import load_index
from edgepack.release.matrix import units_of
from edgepack.release.project_file import load_project
from workbench.stand_ins.android import make_ndk

ROOT = Path(__file__).resolve().parents[2]
FLEET = ROOT / "examples" / "fleet"
#: What publishes the documents.
SITE = ROOT / ".github" / "workflows" / "docs.yml"


@pytest.fixture
def fleet(tmp_path: Path) -> Path:
    folder = tmp_path / "fleet"
    shutil.copytree(FLEET, folder, ignore=shutil.ignore_patterns("models", "dist", "__pycache__"))
    subprocess.run([sys.executable, "make_models.py"], cwd=folder, check=True)
    return folder


def test_the_fleet_is_three_models_for_eight_devices(fleet: Path) -> None:
    loaded = load_project(fleet)
    units = {unit.name: unit for unit in units_of(loaded)}
    assert (len(loaded.project.models), len(loaded.devices), len(units)) == (3, 8, 23)
    assert loaded.devices["gateway"].llvm.cpu == "cortex-a53"
    assert units["keywords@cortex-m4"].budgets.flash == 256 << 10
    assert units["anomaly@android-arm64"].joint == ("aar",)


@pytest.mark.slow
def test_the_fleet_is_released_as_its_readme_says(fleet: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANDROID_NDK_HOME", str(make_ndk(fleet.parent / "ndk")))
    text = (fleet / "README.md").read_text(encoding="utf-8")
    commands = re.findall(r"^    edgepack ([^#\n]*)", text, re.MULTILINE)
    assert len(commands) == 3
    printed = ""
    for command in (*commands, commands[1]):
        words = [sys.executable, "-m", "edgepack", *command.split()]
        done = subprocess.run(words, cwd=fleet, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        printed = done.stdout
    assert "up to date" in printed
    index = load_index(fleet / "dist")
    assert {one.format for one in index.joint} == {"aar", "cmsis-pack"}
    runners = {unit.device: unit.verified.runner for unit in index.units}
    assert runners["linux-x86_64-multi"] == "native"
    assert (runners["cortex-m4"], runners["wasm32-wasi"]) == ("qemu-system", "node")
    # Nothing of a line can be a budget that was broken, and what was not run is said.
    assert all(one.kept for unit in index.units for one in unit.budgets)
    assert all(unit.verified.not_run for unit in index.units if not unit.verified.runner)


def test_the_workflow_that_publishes_the_site_pins_its_actions() -> None:
    text = SITE.read_text(encoding="utf-8")
    actions = re.findall(r"uses: (\S+)", text)
    assert len(actions) == 4 and all(re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action) for action in actions)
    assert "\npermissions: {}\n" in text and "run: make docs\n" in text

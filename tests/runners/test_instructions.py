"""Counts of instructions, as firmware prints them and as they are shown. Real ones are in
tests/targets/test_cortex_m.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.errors import CheckFailedError
from edgepack.resources import TEMPLATES
from edgepack.runners import native
from edgepack.runners.base import host_os

COUNTED: dict[str, Any] = {
    **{"status": "ok", "threads": 1, "peak_rss_bytes": 0, "arena_bytes": 128, "session_bytes": 256},
    **{"load_instructions": 900, "run_instructions": [1000, 1000], "step_instructions": [750, 250]},
}

pytestmark = pytest.mark.skipif(host_os() == "windows", reason="the bundle's program becomes a shell script")


@pytest.fixture
def counting(small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bundle whose program prints the file ``said``, at a runner that counts."""
    monkeypatch.setattr(native, "COUNTS_INSTRUCTIONS", True, raising=False)
    root = tmp_path / "bundle"
    shutil.copytree(small_bundle.path, root)
    program = Bundle(root).manifest.artifact("program")
    assert program is not None
    (root / program.path).write_text(f'#!/bin/sh\necho "$@" > "{tmp_path}/asked"\ncat "{tmp_path}/said"\n')
    (tmp_path / "said").write_text(json.dumps(COUNTED))
    return root


def test_steps_have_their_shares_kernels_and_nodes(
    counting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(counting), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["instructions"] == {"run": 1000, "repeatable": True, "load": 900, "steps": [750, 250]}
    assert [(step["instructions"], step["share"]) for step in said["steps"]] == [(750, 0.75), (250, 0.25)]
    assert said["steps"][1]["nodes"] == ["Add_0", "Relu_0"]
    asked = (counting.parent / "asked").read_text()
    assert "--runs 2" in asked and "--warmup 0" in asked and "--instructions" in asked
    assert main(["bench", str(counting)]) == 0
    shown = capsys.readouterr().out
    assert "75.0%" in shown and "1,000" in shown and " ms" not in shown


def test_runs_that_differ_are_told(counting: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (counting.parent / "said").write_text(json.dumps({**COUNTED, "run_instructions": [1001, 1000]}))
    assert main(["bench", str(counting)]) == 0
    assert "others took another number" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"run_instructions": []}, "does not understand"),
        ({"run_instructions": [1]}, "measured 1 runs, not 2"),
        ({"step_instructions": [1]}, "measured 1 steps, the manifest has 2"),
        ({"step_instructions": [1, 2.5]}, "does not understand"),
        ({"step_instructions": [1, -2]}, "does not understand"),
        ({"load_instructions": None}, "does not understand"),
        ({"status": "error", "code": "USAGE", "message": "wrong"}, "of an older edgepack"),
    ],
)
def test_what_is_no_count_is_refused(counting: Path, changes: dict[str, Any], said: str) -> None:
    (counting.parent / "said").write_text(json.dumps({**COUNTED, **changes}))
    with pytest.raises(CheckFailedError, match=said):
        Bundle(counting).bench()


def test_a_peak_of_operations_a_second_is_for_times(
    counting: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", str(counting), "--profile", "--peak", "1"]) == 2
    assert "--peak is for times" in capsys.readouterr().err


def test_every_board_of_arm_says_where_its_counter_is() -> None:
    boards = sorted((TEMPLATES / "firmware" / "boards").glob("mps*.ld"))
    assert len(boards) >= 3
    for board in boards:
        assert "\nfirmware_counter = 0x" in board.read_text(encoding="utf-8"), board.name

"""Damaged and harmful TorchScript ends with exit code 0 or 3, in time, and leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.compiler.frontend.torch.test_programs import ROOT, environment, there_is_torch
from tests.support.forked_cases import run_forked
from tests.support.fuzz_scripts import run_case
from tests.support.script_archives import ADDS, archive, entries


def test_damaged_archives_end_with_exit_code_0_or_3() -> None:
    outcomes = list(run_forked(range(80), run_case))
    assert [one for one in outcomes if one.code not in (0, 3)] == []
    assert {one.code for one in outcomes} == {0, 3} and len(outcomes) == 80


@pytest.mark.slow
def test_20000_damaged_archives_end_with_exit_code_0_or_3() -> None:
    """With PyTorch, where it is there."""
    command = [sys.executable, "-m", "tests.support.fuzz_scripts", "--count", "20000"]
    done = subprocess.run(command, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]


@pytest.mark.parametrize(
    ("command", "suffix"),
    [
        (["check", "--device", "linux-x86_64", "--shape", "x=1,2"], ".jit"),
        pytest.param(["inspect"], ".pt", marks=pytest.mark.slow),
    ],
)
def test_commands_refuse_a_script_that_writes_a_file(tmp_path: Path, command: list[str], suffix: str) -> None:
    """``torch. from_file(...)``, with a blank, made a file of any content."""
    if not there_is_torch():
        pytest.skip("PyTorch is not installed: make build/torch")
    writes = ADDS.replace("(x, 1)", f"(x, torch. from_file('{tmp_path}/found', True, 2))")
    path = archive(tmp_path / f"model{suffix}", entries(writes))
    given = [sys.executable, "-m", "edgepack", command[0], str(path), *command[1:]]
    done = subprocess.run(given, cwd=ROOT, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 3 and "holds a call of torch.from_file" in done.stderr
    assert list(tmp_path.iterdir()) == [path]

"""Damaged TorchScript ends with exit code 0 or 3, in time."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.compiler.frontend.torch.test_programs import ROOT, environment
from tests.support.forked_cases import run_forked
from tests.support.fuzz_scripts import run_case


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

"""Signals unwind the program at a step where that does no harm, and leave one line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")

ROOT = Path(__file__).resolve().parents[2]


def run(code: str, *, folder: Path = ROOT) -> subprocess.CompletedProcess[str]:
    text = (
        "import os, signal, sys, time\nfrom edgepack.cli.signals import run_cleanly\n"
        f"signal.signal(signal.SIGINT, signal.default_int_handler)\n{code}"
    )
    return subprocess.run(
        [sys.executable, "-c", text],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_a_module_that_is_being_imported_is_not_interrupted(tmp_path: Path) -> None:
    """One in C or Rust may end the process by it: an abort while pydantic was imported was seen."""
    (tmp_path / "slow.py").write_text(
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGTERM)\ntime.sleep(0.2)\nprint('imported')"
    )
    code = "def f():\n import slow\n time.sleep(600)\nsys.exit(run_cleanly(f))"
    done = run(code, folder=tmp_path)
    assert (done.returncode, done.stdout) == (143, "imported\n")
    assert done.stderr == "edgepack: terminated; nothing was left behind.\n"


def test_the_first_signal_counts_and_cleaning_up_is_not_interrupted() -> None:
    code = """
def f():
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)
    finally:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.1)
        print("clean")
sys.exit(run_cleanly(f))
"""
    done = run(code)
    assert (done.returncode, done.stdout) == (143, "clean\n")
    assert done.stderr == "edgepack: terminated; nothing was left behind.\n"


def test_what_is_kept_is_said() -> None:
    """When all is cleaned up; of a signal that leaves nothing, that."""
    code = """
from edgepack.cli.signals import leaving
kept = ["half"]
def f():
    with leaving(lambda: ", ".join(kept)):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(600)
        finally:
            kept[:] = {kept}
sys.exit(run_cleanly(f))
"""
    said = {"['a\\nb is kept']": "a\\nb is kept", "[]": "nothing was left behind"}
    for kept, text in said.items():
        assert run(code.replace("{kept}", kept)).stderr == f"edgepack: terminated; {text}.\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_after_the_work_changes_nothing(name: str) -> None:
    """The bundle is there, so the exit code is 0."""
    code = f"import atexit\natexit.register(os.kill, os.getpid(), signal.{name})\n"
    done = run(code + "sys.exit(run_cleanly(lambda: 0, last=True))")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_somebody_ignores_stays_ignored() -> None:
    """Such as nohup."""
    code = """
signal.signal(signal.SIGHUP, signal.SIG_IGN)
def f():
    os.kill(os.getpid(), signal.SIGHUP)
    return 7
sys.exit(run_cleanly(f))
"""
    assert run(code).returncode == 7


def test_handlers_are_given_back() -> None:
    code = """
before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
run_cleanly(lambda: 0)
assert before == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)]
"""
    assert run(code).returncode == 0

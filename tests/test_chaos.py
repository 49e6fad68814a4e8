"""Whatever ends a command, and whatever becomes of its disk: the old output or the new one is there and
whole, nothing is left, and no orphan runs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.chaos import DISKS, chaos
from tests.support.chaos_commands import COMMANDS

LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

#: Commands of each kind in the long run, and the seed of what is done to them.
RUNS = int(os.environ.get("CHAOS_RUNS", "300"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))


@LINUX
@pytest.mark.parametrize("command", ["pack", "sign"])
def test_packs_that_are_killed_and_interrupted_leave_nothing_broken(
    command: str, small_model: Path, tmp_path: Path
) -> None:
    with chaos(COMMANDS[command](small_model, tmp_path), tmp_path, seed=3, disks=False) as run:
        run.pair()
        run.good_run()
    assert run.broken == []


@LINUX
@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_chaos(command: str, small_model: Path, tmp_path: Path) -> None:
    """``CHAOS_RUNS`` (300) of the seed ``CHAOS_SEED`` (1); `-s` shows what came of them."""
    since = time.monotonic()
    with chaos(COMMANDS[command](small_model, tmp_path), tmp_path, seed=SEED, disks=True) as run:
        run.good_run()
        runs = shown = 0
        while runs < RUNS:
            for _ in range(4):
                runs += run.pair()
            run.good_run()
            print(runs, *run.broken[shown:], sep="\n", flush=True)
            shown = len(run.broken)
            assert len(run.broken) < 20
    print(f"\n{command}: {runs} runs, seed {SEED}, {time.monotonic() - since:.0f} s")
    for what, times in sorted(run.seen.items()):
        print(f"{times:6} {what}")
    if not run.disk.mounted:
        print(f"Without {' and '.join(DISKS)} disks: only root can mount them.")
    assert run.broken == []

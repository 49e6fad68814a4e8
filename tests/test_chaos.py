"""Whatever ends packs, and whatever becomes of their disk: no broken bundle, nothing left, no orphan."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tests.support.chaos import DISKS, chaos

LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks for processes in /proc")

#: Packs of the long run, and the seed of what is done to them.
PACKS = int(os.environ.get("CHAOS_PACKS", "500"))
SEED = int(os.environ.get("CHAOS_SEED", "1"))


@LINUX
def test_packs_that_are_killed_and_interrupted_leave_nothing_broken(
    small_model: Path, tmp_path: Path
) -> None:
    with chaos(small_model, tmp_path, seed=3, disks=False) as run:
        run.pair()
        run.good_pack()
    assert run.broken == []


@LINUX
@pytest.mark.slow
def test_chaos(small_model: Path, tmp_path: Path) -> None:
    """``CHAOS_PACKS`` packs (500) of the seed ``CHAOS_SEED`` (1); `-s` shows what came of them."""
    since = time.monotonic()
    with chaos(small_model, tmp_path, seed=SEED, disks=True) as run:
        run.good_pack()
        packs = shown = 0
        while packs < PACKS:
            for _ in range(4):
                packs += run.pair()
            run.good_pack()
            print(packs, *run.broken[shown:], sep="\n", flush=True)
            shown = len(run.broken)
            assert len(run.broken) < 20
    print(f"\n{packs} packs, seed {SEED}, {time.monotonic() - since:.0f} s")
    for what, times in sorted(run.seen.items()):
        print(f"{times:6} {what}")
    if not run.disk.mounted:
        print(f"Without {' and '.join(DISKS)} disks: only root can mount them.")
    assert run.broken == []

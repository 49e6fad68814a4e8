"""How far a pack is, and how long the rest may take."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from edgepack.api import Bundle
from edgepack.cli.course import PACK, Course, shown_seconds


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.mark.parametrize("slowness", [1.0, 30.0])
def test_share_and_time_left_follow_the_packs_own_speed(slowness: float) -> None:
    clock = Clock()
    course = Course(PACK, clock)
    shares, whole = [], sum(PACK.values()) * slowness
    for stage, usual in PACK.items():
        course.enter(stage)
        clock.now += usual * slowness / 2
        share, left = course.look()
        shares.append(share)
        if left is not None and stage not in ("import", "record"):  # it knows the pack's speed by then
            assert left == pytest.approx(100 + whole - clock.now, rel=0.25)
            assert slowness > 1
        clock.now += usual * slowness / 2
    assert shares == sorted(shares)
    assert shares[0] < 0.05 and shares[-1] > 0.9
    assert course.look()[0] <= 1


def test_the_stages_of_a_pack_are_known(small_bundle: Bundle) -> None:
    """But for those that may come more than once."""
    stages = [
        name for name in small_bundle.stage_seconds if name not in ("look in the cache", "start the compiler")
    ]
    assert stages == [name for name in PACK if name in stages]
    assert len(stages) > 6


def test_a_short_pack_says_no_time() -> None:
    clock = Clock()
    course = Course(PACK, clock)
    for stage, usual in PACK.items():
        course.enter(stage)
        clock.now += usual
        assert course.look()[1] is None


def test_a_stage_that_takes_long_leaves_more_time_and_not_all_is_done() -> None:
    clock = Clock()
    course = Course(PACK, clock)
    for stage in list(PACK)[: list(PACK).index("llvm") + 1]:
        course.enter(stage)
        clock.now += PACK[stage]
    clock.now += 100
    share, left = course.look()
    assert share < 0.9
    assert left is not None and left > 20


def test_stages_from_the_cache_are_skipped_and_repeated_or_unknown_ones_take_nothing_back() -> None:
    clock = Clock()
    course = Course(PACK, clock)
    course.enter("find the toolchain")
    clock.now += 0.1
    course.enter("compile C")
    high = course.look()[0]
    assert high > 0.7
    course.enter("kernels")
    course.enter("wait for the same work of another process")
    assert course.look()[0] == high


def test_seconds_are_no_more_exact_than_they_are_known() -> None:
    assert [shown_seconds(one) for one in (0.2, 7.4, 44, 94, 200)] == ["1 s", "7 s", "40 s", "90 s", "3 min"]


#: On a pseudo terminal.
PROGRAM = """
import time
from edgepack.api import Bundle
from edgepack.cli.course import PACK
from edgepack.cli.output import Settings, progress
with progress(Settings(), PACK) as show:
    show("llvm", "k1")
    time.sleep(1.2)
"""


def test_the_line_on_a_terminal_has_the_share() -> None:
    pty = pytest.importorskip("pty")
    del pty
    code = f"import pty, sys; sys.exit(pty.spawn([sys.executable, '-c', {PROGRAM!r}]))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "TERM": "xterm"},
    )
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", done.stdout)
    assert re.search(r"llvm: k1 +0:00:0\d +[3-7]\d%", shown), shown

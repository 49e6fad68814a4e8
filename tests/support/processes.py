"""What became of a process that is not the test's own child."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

import pytest

from edgepack.errors import ToolchainError

#: Seconds that a program gets which is to be ended: what it does first takes longer on a busy machine.
TIMES = (1, 5, 40)


def printed_before_the_end(
    run: Callable[[float], object], text: str, who: str = "", times: Sequence[float] = TIMES
) -> str:
    """What a program printed whose time was up, and that it was ended then.

    Args:
        run: runs it for at most so many seconds, and raises ToolchainError.
        text: what it prints before it hangs; where it does not get so far it gets more time.
        who: what the error begins with, as a regular expression.
        times: the seconds, one after the other.
    """
    for seconds in times:
        message = rf"{who}.*did not end within {seconds} s"
        with pytest.raises(ToolchainError, match=message) as caught:
            run(seconds)
        if text in caught.value.detail:
            return caught.value.detail
    raise AssertionError(caught.value.detail)


def ends(pid: int, seconds: float = 60) -> bool:
    """Whether a process ends within a time: a signal that was sent is obeyed only when a busy machine can.

    A process that ended and whose parent has not looked yet (a zombie) has ended.
    """
    until = time.monotonic() + seconds
    while _runs(pid):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text() if Path("/proc").is_dir() else ""
    except (ProcessLookupError, FileNotFoundError):
        return False
    return state.rpartition(")")[2].split()[:1] not in (["Z"], ["X"])


def in_fork(work: Callable[[IO[str]], None]) -> str:
    """Do something that may crash, in a fork of this process.

    Args:
        work: is given a file to say in what it is about to do.

    Returns:
        "" if it returned; else how it ended, and what it said last.
    """
    with tempfile.TemporaryFile("w+", encoding="utf-8") as said:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(said)
                code = 0
            except BaseException as error:
                print(repr(error), file=said, flush=True)
            finally:
                os._exit(code)
        _, status = os.waitpid(child, 0)
        said.seek(0)
        last = said.read().splitlines()[-2:]
    return "" if status == 0 else f"{os.waitstatus_to_exitcode(status)}: {last}"

"""What became of a process that is not the test's own child."""

from __future__ import annotations

import os
import time
from pathlib import Path


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

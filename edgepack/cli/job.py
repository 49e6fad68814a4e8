"""One call of :mod:`edgepack.release.processes`, in the process that was started for it."""

from __future__ import annotations

import sys
from pathlib import Path

from edgepack.cli.signals import run_cleanly
from edgepack.release.processes import do_call
from edgepack.system.guardian import end_with_parent

__all__ = ["main"]


def main() -> int:
    """Do the call in the folder that the command line names.

    Returns:
        the exit code.
    """
    end_with_parent()

    def call() -> int:
        do_call(Path(sys.argv[1]))
        return 0

    return run_cleanly(call)

"""``python -m edgepack``, and the program ``edgepack``."""

from __future__ import annotations

import sys

from edgepack.cli.signals import run_cleanly
from edgepack.cli.streams import with_safe_streams

__all__ = ["main"]


def main() -> int:
    """Run the program with this process's arguments; returns the exit code."""

    def run() -> int:
        from edgepack.cli.main import main as run_arguments  # takes a while, in which Ctrl-C may come

        return run_arguments()

    return with_safe_streams(lambda: run_cleanly(run, last=True))


if __name__ == "__main__":
    sys.exit(main())

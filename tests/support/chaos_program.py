"""``edgepack`` with the fake worker in the mode that comes first ("real": with the real one), started as
:mod:`edgepack.__main__` does it; says when it is ready."""

from __future__ import annotations

import sys

from edgepack.cli.signals import run_cleanly


def run() -> int:
    print("ready", flush=True)
    from edgepack.cli.main import main
    from tests.support import fake

    if sys.argv[1] != "real":
        fake.install(sys.argv[1])
    return main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(run_cleanly(run, last=True))

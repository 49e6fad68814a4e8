"""What each optimisation level brings: ``python benchmarks/levels.py [NETWORK ...] [--write]``.

Packs networks for this machine at each ``--opt-level``, verifies and runs them in turns. ``--write`` puts the
table into docs/internals/levels.md.
"""

from __future__ import annotations

import argparse
import datetime
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import edgepack
from benchmarks.markdown import replace_section, table
from benchmarks.networks import BENCHMARKS
from edgepack.errors import EdgepackWarning
from edgepack.plan.opt_level import ALL, OPT_LEVELS, OptLevel
from workbench.models import save
from workbench.models.evaluate import random_inputs

PAGE = Path(__file__).resolve().parents[1] / "docs" / "internals" / "levels.md"
HEADING = "What each level brings"
USUAL = ("resnet18", "mobilenetv2", "vit_tiny")
HEADER = ("network", "level", "ms", "by level 3", "steps", "kernels", "params MB", "arena MB")


def _least_ms(
    bundles: Mapping[OptLevel, edgepack.Bundle], name: str, rounds: int, threads: int
) -> dict[OptLevel, float]:
    """The least time of a run at each level, of runs in turns."""
    inputs = random_inputs(BENCHMARKS[name](), 0)
    with ExitStack() as open_sessions:
        sessions = {
            level: open_sessions.enter_context(bundle.load(threads=threads))
            for level, bundle in bundles.items()
        }
        least = dict.fromkeys(sessions, float("inf"))
        for turn in range(rounds + 1):
            for level, session in sessions.items():
                begin = time.perf_counter()
                session.run(inputs)
                if turn:  # the first run of each warms caches
                    least[level] = min(least[level], 1e3 * (time.perf_counter() - begin))
    return least


def measure(name: str, rounds: int, threads: int) -> list[list[str]]:
    """A row for each level."""
    with tempfile.TemporaryDirectory(prefix="edgepack-") as folder:
        model = save(BENCHMARKS[name](), Path(folder))
        bundles = {
            level: edgepack.pack(model, "host", Path(folder) / str(level), opt_level=level)
            for level in OPT_LEVELS
        }
        if wrong := [str(level) for level, bundle in bundles.items() if not bundle.verify().ok]:
            raise SystemExit(f"{name} is not verified at level {', '.join(wrong)}")
        least = _least_ms(bundles, name, rounds, threads)
        manifests = {level: bundle.manifest for level, bundle in bundles.items()}
    return [
        [
            name if level == OPT_LEVELS[0] else "",
            str(level),
            f"{least[level]:.1f}",
            f"{least[level] / least[ALL]:.1f}",
            str(len(manifest.steps)),
            str(len(manifest.kernels)),
            f"{manifest.params.nbytes / 1e6:.1f}",
            f"{manifest.memory.arena / 1e6:.1f}",
        ]
        for level, manifest in manifests.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"default: {' '.join(USUAL)}")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="put the table into docs/internals/levels.md")
    options = parser.parse_args()
    names = options.networks or USUAL
    if unknown := {*names} - {*BENCHMARKS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    warnings.simplefilter("ignore", EdgepackWarning)
    rows = [row for name in names for row in measure(name, options.rounds, options.threads)]
    explanation = (
        f"Least of {options.rounds} runs in turns, {options.threads} thread{'s' * (options.threads > 1)}, "
        f"{datetime.datetime.now(tz=datetime.UTC):%Y-%m-%d}. Kernels: different ones; equal steps share them."
    )
    text = table(HEADER, rows, left=2) + "\n\n" + explanation
    print(text)
    if options.write:
        replace_section(HEADING, text, "levels.py", PAGE)


if __name__ == "__main__":
    main()

"""How long a pack takes by two revisions of edgepack, or in two environments, side by side.

    git worktree add ../before v0.1.0
    python benchmarks/packs.py resnet18.onnx --before ../before
    python benchmarks/packs.py resnet18.onnx --set EDGEPACK_CONFINE=off

Each pack has no cache but the compiler's own (zig's libraries, built by a pack that is not counted). Both
take turns, so that a machine whose speed drifts is as slow for one as for the other; what is quoted is the
median of the ratios of neighbours. Times are seconds: wall, and the processors' of all processes together.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Side:
    """What is measured.

    Attributes:
        name: for the table.
        checkout: of edgepack.
        environment: variables besides this process's.
    """

    name: str
    checkout: Path
    environment: dict[str, str]

    def pack(self, model: Path, device: str, options: Sequence[str]) -> tuple[float, float]:
        """Seconds of the wall's clock and of processors that a pack takes. Raises CalledProcessError."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, "-m", "edgepack", "pack", str(model), "--device", device, "--no-cache"]
            environment = {**os.environ, **self.environment, "PYTHONPATH": str(self.checkout)}
            before, started = os.times(), time.monotonic()
            subprocess.run(
                [*command, "--quiet", "--output", f"{folder}/bundle", *options],
                env=environment,
                cwd=folder,
                check=True,
                stdout=subprocess.DEVNULL,
            )
            after = os.times()
            worked = after.children_user + after.children_system
            return time.monotonic() - started, worked - before.children_user - before.children_system


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--device", default="host")
    parser.add_argument(
        "--before", type=Path, default=ROOT, help="checkout of the other revision; default this"
    )
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="of the other side")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("options", nargs="*", help="of pack, behind --")
    given = parser.parse_args()
    changed = dict(one.split("=", 1) for one in given.set)
    other = Side("before" if given.before != ROOT else " ".join(given.set), given.before.resolve(), changed)
    sides = [Side("now", ROOT, {}), other]
    for model in given.models:
        _measure(model.resolve(), given.device, given.options, sides, given.runs)


def _measure(model: Path, device: str, options: Sequence[str], sides: Sequence[Side], runs: int) -> None:
    for side in sides:
        side.pack(model, device, options)
    taken: list[list[tuple[float, float]]] = [[], []]
    for run in range(runs):
        for index in (0, 1) if run % 2 else (1, 0):
            taken[index].append(sides[index].pack(model, device, options))
    print(f"{model.name} for {device}, {runs} packs of each, in turns")
    for side, found in zip(sides, taken, strict=True):
        wall, worked = (statistics.median(column) for column in zip(*found, strict=True))
        print(f"  {side.name:20} wall {wall:6.2f} s, processors {worked:6.2f} s (medians)")
    for what, index in (("wall", 0), ("processors", 1)):
        ratios = [now[index] / before[index] for now, before in zip(*taken, strict=True)]
        middle = statistics.median(ratios)
        print(f"  {what}: {middle:.3f} times as long ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()

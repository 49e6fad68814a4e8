"""How much of the C runtime and loader the tests of this machine reach: lines and branches, by file.

    python tools/runtime_coverage.py [--missing]

Runs those of tests/runtime that build the mini model with gcc, or do if they are asked, with gcov's counters
in it, and adds up what all of their programs did: for GPUs, on drivers that fail at each call in turn. Not
counted is what only clang builds (sanitizers, the fuzz targets), what other platforms have, and what is
killed. The exit status is 1 below 95 % of the runtime's lines or 85 % of its branches, or if a test fails.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    *("test_c_programs.py", "test_loader.py", "test_params.py"),
    *("test_gpu.py", "test_cuda.py", "test_metal.py", "test_ed25519.py"),
)
FLAGS = "--coverage -O0 -fprofile-update=atomic"
LINES, BRANCHES = 95.0, 85.0

#: Number of a line -> how often it was run, and how often each of its branches was taken.
Counts = dict[int, tuple[int, dict[int, int]]]


def run_tests(folder: Path) -> int:
    """Exit status of the tests, whose objects and counters stay below ``folder``."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--basetemp={folder / 'run'}"]
    command += [str(ROOT / "tests" / "runtime" / name) for name in TESTS]
    environment = os.environ | {"EDGEPACK_TEST_CFLAGS": FLAGS, "EDGEPACK_TEST_CHECKED": "gcc"}
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


def reports(folder: Path) -> Iterator[dict[str, Any]]:
    """What gcov says of each file of each object."""
    for counters in sorted(folder.rglob("*.gcda")):
        command = ["gcov", "--json-format", "--stdout", "--branch-probabilities", counters.name]
        done = subprocess.run(command, cwd=counters.parent, capture_output=True, check=True)
        for line in done.stdout.decode().splitlines():
            yield from json.loads(line)["files"]


def part_of_bundle(name: str) -> str:
    """``runtime/core/pool.c`` of a path in any bundle; "" for what is not ours."""
    for mark in ("src/runtime/", "templates/runtime/", "src/loader/", "include/edgepack/"):
        if mark in name:
            return name[name.rindex(mark) :].split("/", 1)[1]
    return ""


def add_up(folder: Path) -> dict[str, Counts]:
    """The counts of each file, of all programs together."""
    found: dict[str, Counts] = defaultdict(dict)
    for report in reports(folder):
        name = part_of_bundle(report["file"])
        for line in report["lines"] if name else ():
            count, branches = found[name].get(line["line_number"], (0, {}))
            for number, branch in enumerate(line["branches"]):
                branches[number] = branches.get(number, 0) + branch["count"]
            found[name][line["line_number"]] = (count + line["count"], branches)
    return found


def percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 100.0


def summary(counts: list[Counts]) -> tuple[int, int, int, int]:
    """Lines that were run, lines, branches that were taken, branches."""
    lines = [count for one in counts for count, _ in one.values()]
    branches = [count for one in counts for _, of_line in one.values() for count in of_line.values()]
    return sum(map(bool, lines)), len(lines), sum(map(bool, branches)), len(branches)


def show(name: str, counts: list[Counts]) -> tuple[float, float]:
    ran, lines, taken, branches = summary(counts)
    of_lines, of_branches = percent(ran, lines), percent(taken, branches)
    print(f"{name:32}{ran:5} of {lines:4} lines {of_lines:6.1f} %", end="")
    print(f"{taken:6} of {branches:4} branches {of_branches:6.1f} %")
    return of_lines, of_branches


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--missing", action="store_true", help="also show what was not reached")
    parser.add_argument("--folder", type=Path, help="with what an earlier run left; runs no test")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = options.folder or Path(name)
        status = 0 if options.folder else run_tests(folder)
        found = add_up(folder)
    for file in sorted(found):
        show(file, [found[file]])
        if options.missing:
            for number, (count, branches) in sorted(found[file].items()):
                untaken = [str(branch) for branch, times in branches.items() if not times]
                if not count or untaken:
                    print(f"    {number}: " + ("never run" if not count else f"branch {', '.join(untaken)}"))
    lines, branches = show("the runtime", [c for f, c in found.items() if not f.startswith("loader/")])
    show("the loader", [c for f, c in found.items() if f.startswith("loader/")])
    return 1 if status or lines < LINES or branches < BRANCHES else 0


if __name__ == "__main__":
    sys.exit(main())

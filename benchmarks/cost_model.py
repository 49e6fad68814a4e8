"""How good the rules' own choices of schedules are, beside what ``edgepack tune`` measured.

    python benchmarks/cost_model.py tuned.json [MORE.json ...] [--json]

For each kind of CPU and first operator of a group: groups of which something was measured, in how many of
them the rules' own choice was the best (nothing was more than 2 % faster), and its regret: how many times as
long it takes as the best schedule that was tried, on average (geometric mean) and at most. What failed is
left out.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from math import exp, log
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from edgepack.commands.tune_rounds import FAILED, LEAST_GAIN
from edgepack.config.tuned import TunedFile, read_all_tuned


def regrets(file: TunedFile) -> dict[tuple[str, str], list[float]]:
    """For each kind of CPU and operator how many times as long the rules' own choice takes as the best; a
    number for each group, 1 where it is the best."""
    found: dict[tuple[str, str], list[float]] = defaultdict(list)
    for cpu, groups in sorted(file.tried.items()):
        for group, ratios in sorted(groups.items()):
            measured = [ratio for ratio in ratios.values() if ratio > FAILED]
            if measured:
                found[cpu, group.split("+")[0].split(" ")[0]].append(max(1.0, *measured))
    return dict(found)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", help="files of tuned schedules")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args()
    found = regrets(read_all_tuned(given.files))
    rows = [
        {
            "cpu": cpu,
            "operator": operator,
            "groups": len(values),
            "best": sum(value <= 1 + LEAST_GAIN for value in values),
            "regret": round(exp(sum(map(log, values)) / len(values)), 3),
            "most": round(max(values), 3),
        }
        for (cpu, operator), values in sorted(found.items())
    ]
    if given.json:
        print(json.dumps(rows, indent=1))
        return
    print("| CPU | operator | groups | the rules' own is the best | regret | at most |")
    print("|---|---|---:|---:|---:|---:|")
    for row in rows:
        print("| " + " | ".join(str(row[key]) for key in row) + " |")


if __name__ == "__main__":
    main()

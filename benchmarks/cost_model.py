"""How good the rules' own choices of schedules are, and predictions of what is faster, beside what ``edgepack
tune`` measured.

    python benchmarks/cost_model.py tuned.json [MORE.json ...] [--json]
    python benchmarks/cost_model.py tuned.json --model kws.tflite --device cortex-m4

For each kind of CPU and first operator of a group: groups of which something was measured, in how many of
them the rules' own choice was the best (nothing was more than 2 % faster), and its regret: how many times as
long it takes as the best schedule that was tried, on average (geometric mean) and at most. What failed is
left out.

With a model it is asked what is predicted for the neighbours of the rules' own choices, for each rule:
Spearman's rank correlation of predicted and measured times, without and with what the other groups taught
(the group itself left out), and how many times as long as the best neighbour that was tried the first choice
takes: the nearest one, the one that is predicted, and the one that is predicted with what others taught.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from markdown import table

from edgepack.commands.tune_programs import Programs
from edgepack.commands.tune_ranking import Ranking
from edgepack.commands.tune_rounds import FAILED, LEAST_GAIN, Group
from edgepack.config.device import load_device
from edgepack.config.tuned import TunedFile, read_all_tuned
from edgepack.options import PackOptions

#: Candidates of a group that were measured, below which it has no ranking.
FEWEST = 4


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


def of_rules(file: TunedFile) -> list[dict[str, Any]]:
    """The rows of the rules' own choices."""
    return [
        {
            "cpu": cpu,
            "operator": operator,
            "groups": len(values),
            "the rules' own is the best": sum(value <= 1 + LEAST_GAIN for value in values),
            "regret": round(_mean_ratio(values), 3),
            "at most": round(max(values), 3),
        }
        for (cpu, operator), values in sorted(regrets(file).items())
    ]


def of_predictions(groups: Sequence[Group], tried: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """The rows of predictions, by the rule of what is computed by now.

    Args:
        tried: by group and digest, how many times as fast a candidate is as the rules' own choice.
    """
    known = [_measured(group, tried.get(group.key, {})) for group in groups]
    known = [group for group in known if len(group.candidates) >= FEWEST]
    columns: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for group in known:
        assert group.now is not None
        others = [other for other in known if other is not group]
        plain, taught = Ranking(), Ranking()
        taught.fit(others, tried)
        times = [1 / tried[group.key][one.digest] for one in group.candidates]
        row = columns[group.now.rule]
        row["candidates"].append(len(times))
        for name, ranking in (("", plain), (", taught", taught)):
            said = [ranking.predicted(group.now, one) for one in group.candidates]
            row["correlation" + name].append(correlation(said, times))
            row["predicted" + name].append(times[min(range(len(said)), key=said.__getitem__)] / min(times))
        row["nearest"].append(times[0] / min(times))
    return [_row(rule, values) for rule, values in sorted(columns.items())]


def _row(rule: str, values: Mapping[str, list[float]]) -> dict[str, Any]:
    def of(name: str, mean: Callable[[list[float]], float], digits: int) -> float:
        return round(mean(values[name]), digits)

    return {
        "rule": rule,
        "groups": len(values["candidates"]),
        "candidates": int(sum(values["candidates"])),
        "correlation": of("correlation", _mean, 2),
        "taught": of("correlation, taught", _mean, 2),
        "first: the nearest": of("nearest", _mean_ratio, 3),
        "first: predicted": of("predicted", _mean_ratio, 3),
        "first: taught": of("predicted, taught", _mean_ratio, 3),
    }


def _measured(group: Group, ratios: Mapping[str, float]) -> Group:
    """A group with those candidates that were measured and have a prediction."""
    kept = [one for one in group.candidates if ratios.get(one.digest, FAILED) > FAILED and one.cycles]
    return replace(group, candidates=kept if group.now is not None else [])


def correlation(a: Sequence[float], b: Sequence[float]) -> float:
    """Spearman's rank correlation; 0 where all of one are the same."""
    x, y = _ranks(a), _ranks(b)
    spread = float(np.std(x) * np.std(y))
    return float(np.mean((x - x.mean()) * (y - y.mean()))) / spread if spread else 0.0


def _ranks(values: Sequence[float]) -> Any:
    """Of each value its place; equal ones have their mean."""
    array = np.asarray(values)
    return np.asarray([np.mean(np.flatnonzero(np.sort(array) == value)) for value in array])


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _mean_ratio(values: Sequence[float]) -> float:
    """Geometric."""
    return exp(_mean([log(value) for value in values]))


def neighbourhoods(model: Path, device: str) -> tuple[list[Group], str]:
    """The groups of a model with the neighbours of the rules' own choices, and the kind of CPU."""
    profile = load_device(device)
    with (
        tempfile.TemporaryDirectory() as folder,
        Programs(model, profile, PackOptions(), Path(folder)) as programs,
    ):
        return programs.groups(()), programs.target.cpu_kind


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", type=Path, nargs="+", help="files of tuned schedules")
    parser.add_argument("--model", type=Path, help="what was tuned: also compare what is predicted")
    parser.add_argument("--device", default="host", help="where it was tuned")
    parser.add_argument("--json", action="store_true", help="print everything as JSON")
    given = parser.parse_args()
    file = read_all_tuned(given.files)
    tables = [of_rules(file)]
    if given.model:
        groups, cpu = neighbourhoods(given.model, given.device)
        tables += [
            of_predictions(groups, file.tried.get(f"{cpu}{more}", {})) for more in ("", " (instructions)")
        ]
    if given.json:
        print(json.dumps(tables, indent=1))
        return
    for rows in filter(None, tables):
        print(table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]), "\n")


if __name__ == "__main__":
    main()

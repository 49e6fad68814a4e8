"""In which order a tuner measures schedules: by predicted time, corrected by what was measured so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log, log2
from typing import Any

import numpy as np

from edgepack.commands.tune_rounds import FAILED, Candidate, Group

__all__ = ["EXPLORED", "WORTH_TRYING", "Ranking"]

#: Groups that take less than this part of a run are left as they are.
WORTH_TRYING = 0.003

#: One in so many candidates of a group is the nearest one, whatever is predicted: where the prediction is
#: wrong, what is near is found all the same.
EXPLORED = 4

#: How much what was measured has to say before it is believed: the square of how far a prediction is off, by
#: chance, over that of how far it is off for a reason, both of the logarithm of a time.
DOUBT = 0.3

#: A schedule is not taken to be more often than so many times as fast or slow as another one.
MOST_TIMES = 4.0

Features = dict[str, float]


@dataclass
class Ranking:
    """Which candidate of a group is measured next.

    The time of a candidate, divided by that of its neighbour, is predicted to be the ratio of the cycles that
    the cost model counts, times what the same change brought elsewhere: a ridge regression of the logarithms
    of measured over predicted ratios, by the rules and by the fields in which two schedules differ. It is the
    same for the same measurements, in the same order.

    Attributes:
        by_model: False for the order of the candidates, the nearest first.
    """

    by_model: bool = True
    _pairs: dict[tuple[str, str, str], tuple[Candidate, Candidate]] = field(default_factory=dict)
    _weights: dict[str, float] = field(default_factory=dict)

    def fit(self, groups: Sequence[Group], tried: Mapping[str, Mapping[str, float]]) -> None:
        """Learns from what was measured.

        Args:
            groups: with their candidates; those of earlier calls are remembered.
            tried: by group and digest, the time by the rule's own choice divided by that with a candidate.
        """
        for group in groups:
            for one in group.candidates if group.now else ():
                assert group.now is not None
                self._pairs[group.key, group.now.digest, one.digest] = group.now, one
        rows: list[Features] = []
        missed: list[float] = []
        for (key, now_digest, digest), (now, one) in self._pairs.items():
            ratio = tried.get(key, {}).get(digest, FAILED)
            before = tried.get(key, {}).get(now_digest, 1.0)  # the rules' own is not tried
            comparable = bool(one.cycles) == bool(now.cycles)  # of a GPU's none is predicted
            if min(ratio, before) > FAILED and comparable:
                measured = max(-log(MOST_TIMES), min(log(MOST_TIMES), log(before / ratio)))
                rows.append(features(now, one))
                missed.append(measured - _modelled(now, one))
        self._weights = _ridge(rows, missed)

    def predicted(self, now: Candidate, one: Candidate) -> float:
        """The time with a schedule, as a part of that with its neighbour ``now``; a logarithm."""
        said = (self._weights.get(name, 0.0) * value for name, value in features(now, one).items())
        return _modelled(now, one) + sum(said)

    def picks(
        self, groups: Sequence[Group], shares: Mapping[str, float], tried: Mapping[str, Mapping[str, float]]
    ) -> dict[str, Candidate]:
        """For each group that is worth it the candidate to measure next. What is decided between kernels
        comes first, for it is little; other groups that share its steps have none then.

        Args:
            shares: what part of a run each group takes.
            tried: as for :meth:`fit`.
        """
        found: dict[str, Candidate] = {}
        between: list[Group] = []
        for group in sorted(groups, key=lambda one: not one.between):
            if shares.get(group.key, 1.0) < WORTH_TRYING or any(map(group.shares_steps, between)):
                continue
            candidate = self.next(group, tried.get(group.key, {}))
            if candidate is not None:
                found[group.key] = candidate
                between += [group] if group.between else []
        return found

    def next(self, group: Group, tried: Mapping[str, float]) -> Candidate | None:
        """The candidate of a group to measure next; None where all were."""
        left = [one for one in group.candidates if one.digest not in tried]
        now, done = group.now, len(tried)
        if not left:
            return None
        if not self.by_model or now is None or done % EXPLORED == EXPLORED - 1:
            return left[0]
        return min(left, key=lambda one: self.predicted(now, one))


def features(now: Candidate, one: Candidate) -> Features:
    """In what a schedule differs from its neighbour."""
    found = {"the model": _modelled(now, one)}
    if one.rule != now.rule:
        return {**found, f"{one.rule} for {now.rule}": 1.0}
    for name in sorted({*one.schedule, *now.schedule}):
        before, after = now.schedule.get(name), one.schedule.get(name)
        if before == after:
            continue
        field_name = f"{one.rule} {name}"
        found[f"{field_name} = {after}"] = 1.0
        for number, (a, b) in enumerate(zip(_numbers(before), _numbers(after), strict=False)):
            found[f"{field_name} {number}"] = log2(b / a)
    return found


def _numbers(value: Any) -> list[int]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [one for one in values if type(one) is int and one > 0]


def _modelled(now: Candidate, one: Candidate) -> float:
    """What the cost model says, a logarithm; 0 where it says nothing."""
    return log(one.cycles / now.cycles) if one.cycles > 0 and now.cycles > 0 else 0.0


def _ridge(rows: Sequence[Features], values: Sequence[float]) -> dict[str, float]:
    """Weights of features, by which their sums are near to values while the weights are small."""
    names = sorted({name for row in rows for name in row})
    if not names:
        return {}
    at = {name: number for number, name in enumerate(names)}
    matrix = np.zeros((len(rows), len(names)))
    for number, row in enumerate(rows):
        for name, value in row.items():
            matrix[number, at[name]] = value
    normal = matrix.T @ matrix + DOUBT * np.eye(len(names))
    found = np.linalg.solve(normal, matrix.T @ np.asarray(values))
    return dict(zip(names, map(float, found), strict=True))

"""What a tuner knows: the best schedule of each group of operators so far, and what was tried. Plain data."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import median
from typing import Any

from edgepack.config.tuned import TunedFile
from edgepack.plan.tuned import TunedChoice, schedule_digest

__all__ = ["FAILED", "Candidate", "Comparison", "Group", "Rounds", "Speedup", "steps_of"]

#: What is noted of a candidate that crashed, hung, or computed something else.
FAILED = 0.0001

#: A candidate has to be faster by this part at least, of instructions by less; and by so many standard errors
#: of what was measured: of hundreds that are measured in a round some seem faster by chance.
LEAST_GAIN, LEAST_COUNTED, SURE = 0.01, 0.001, 3.0

#: A median has this many times the standard error of a mean, and of a normal distribution the median of the
#: distances from the median is this part of the standard deviation.
OF_MEDIAN, OF_DISTANCES = 1.2533, 0.6745

#: Of fewer turns than this the spread says little: the largest distance counts then.
FEW_TURNS = 6

#: The nodes of the model that a step computes, by which steps of two programs are the same.
Nodes = tuple[str, ...]


@dataclass(frozen=True)
class Candidate:
    """A schedule that may be tried, and the rule that it is for.

    Attributes:
        cycles: that the cost model predicts for it; 0 where it says nothing.
    """

    rule: str
    schedule: Mapping[str, Any]
    cycles: float = 0.0

    @property
    def digest(self) -> str:
        """What names it among those that were tried."""
        return schedule_digest(self.rule, self.schedule)


@dataclass(frozen=True)
class Group:
    """Operators that one kernel computes, wherever the model has such.

    Attributes:
        key: names it in the file.
        title: for the user.
        nodes: of all its steps.
        candidates: the nearest to ``now`` first.
        now: the schedule by which it is computed, of which they are neighbours.
        between: what is decided is not how these operators are computed, but something between kernels of
            other groups.
    """

    key: str
    title: str
    nodes: frozenset[Nodes]
    candidates: Sequence[Candidate]
    now: Candidate | None = None
    between: bool = False

    def shares_steps(self, other: Group) -> bool:
        """Whether steps of both are the same, or parts of each other: a version that has another schedule for
        both does not say which of the two made it faster."""
        mine, others = ([set(one) for one in group.nodes if one] for group in (self, other))
        return any(a <= b or b <= a for a in mine for b in others)

    def is_part_of(self, other: Group) -> bool:
        """Whether a step of the other one may compute more than one of this."""
        return any(a and set(a) < set(b) for a in self.nodes for b in other.nodes)


@dataclass(frozen=True)
class Speedup:
    """How many times as fast something is, and the standard error of that; 0 where it was counted."""

    ratio: float
    error: float = 0.0

    @property
    def sure(self) -> float:
        """What it is at least."""
        return self.ratio - SURE * self.error


@dataclass(frozen=True)
class Comparison:
    """Two versions of a model, measured in turns.

    Attributes:
        before, after: by nodes, of each turn the time of a step, of the incumbent and of the other version.
        run_before, run_after: of each turn the time of a run.
        counted: they are instructions, of one turn; otherwise microseconds, and milliseconds of runs.
    """

    before: Mapping[Nodes, Sequence[float]]
    after: Mapping[Nodes, Sequence[float]]
    run_before: Sequence[float]
    run_after: Sequence[float]
    counted: bool = False

    def speedup(self, nodes: Iterable[Nodes]) -> Speedup:
        """Of the steps that compute some nodes together, in each version as many as do; 1 where one of the
        two has none."""
        both = [(steps_of(one, self.before), steps_of(one, self.after)) for one in nodes]
        first = {step for before, after in both if after for step in before}
        second = {step for before, after in both if before for step in after}
        before = [sum(turn) for turn in zip(*(self.before[one] for one in first), strict=True)]
        after = [sum(turn) for turn in zip(*(self.after[one] for one in second), strict=True)]
        return _speedup(before, after) if before and all(after) else Speedup(1.0)

    @property
    def whole(self) -> Speedup:
        """Of a run."""
        return _speedup(self.run_before, self.run_after)

    def and_again(self, other: Comparison) -> Comparison:
        """With the turns of another comparison of the same versions."""
        return Comparison(
            {one: (*turns, *other.before[one]) for one, turns in self.before.items()},
            {one: (*turns, *other.after[one]) for one, turns in self.after.items()},
            (*self.run_before, *other.run_before),
            (*self.run_after, *other.run_after),
            self.counted,
        )


def steps_of(nodes: Nodes, steps: Collection[Nodes]) -> list[Nodes]:
    """The steps that compute nodes, and all of these: that of just them, or the smaller ones of a version in
    which several kernels do. None where a step computes others with them."""
    if nodes in steps:
        return [nodes]
    parts = [one for one in steps if one and set(one) < set(nodes)]
    return parts if {node for one in parts for node in one} == set(nodes) else []


def _speedup(before: Sequence[float], after: Sequence[float]) -> Speedup:
    """The median over the turns, which a turn that was disturbed does not change."""
    ratios = [a / b for a, b in zip(before, after, strict=True)]
    middle = median(ratios)
    distances = [abs(ratio - middle) for ratio in ratios]
    spread = median(distances) / OF_DISTANCES if len(ratios) >= FEW_TURNS else 2 * max(distances)
    return Speedup(middle, OF_MEDIAN * spread / sqrt(len(ratios)))


@dataclass
class Rounds:
    """The state of a search on one kind of CPU.

    Attributes:
        cpu: the kind, and ``version`` of edgepack.
        counted: instructions are counted instead of times.
        best: the choice of each group for which another one than the rule's own was faster.
        tried: ratio of each candidate, by group and digest, as the file has it.
    """

    cpu: str
    version: str
    counted: bool = False
    best: dict[str, TunedChoice] = field(default_factory=dict)
    tried: dict[str, dict[str, float]] = field(default_factory=dict)

    @classmethod
    def resumed(cls, file: TunedFile, cpu: str, version: str, *, counted: bool) -> Rounds:
        """What a file knows of a kind of CPU."""
        best = {choice.group: choice for choice in file.for_cpus([cpu])}
        rounds = cls(cpu, version, counted, best)
        known = file.tried.get(rounds.measured_on, {})
        rounds.tried = {group: dict(ratios) for group, ratios in known.items()}
        return rounds

    @property
    def measured_on(self) -> str:
        """The kind of CPU, and whether instructions were counted there: that says nothing about its times."""
        return f"{self.cpu} (instructions)" if self.counted else self.cpu

    def choices(self, others: Mapping[str, Candidate] | None = None) -> tuple[TunedChoice, ...]:
        """The best ones, and instead of some of them ``others``, by group."""
        found = dict(self.best)
        for group, candidate in (others or {}).items():
            found[group] = self._choice(group, candidate, self.gain(group))
        return tuple(found[group] for group in sorted(found))

    def gain(self, group: str) -> float:
        """Of the best choice, over the rule's own."""
        return self.best[group].gain if group in self.best else 1.0

    @property
    def gains(self) -> dict[str, dict[str, float]]:
        """What was tried, and the best choice of each group too, which a file may have without that."""
        found = {group: dict(ratios) for group, ratios in self.tried.items()}
        for group, choice in self.best.items():
            known = found.setdefault(group, {})
            known.setdefault(Candidate(choice.rule, choice.schedule).digest, choice.gain)
        return found

    def failed(self, group: str, candidate: Candidate) -> None:
        """Notes that a candidate crashed, hung, or computed something else."""
        self.tried.setdefault(group, {})[candidate.digest] = FAILED

    def measured(
        self, groups: Sequence[Group], picks: Mapping[str, Candidate], comparison: Comparison
    ) -> dict[str, Speedup]:
        """Notes what was measured of a version with candidates for some groups, beside the incumbent; returns
        the speedups of the groups that are faster beyond what is chance."""
        won = {}
        for group in groups:
            candidate = picks.get(group.key)
            if candidate is None:
                continue
            found = comparison.speedup(group.nodes)
            ratios = self.tried.setdefault(group.key, {})
            ratios[candidate.digest] = max(self.gain(group.key) * found.ratio, FAILED)
            if self.is_faster(found):
                won[group.key] = found
        return won

    def is_faster(self, found: Speedup) -> bool:
        """Whether a candidate is faster than the incumbent, by more than chance."""
        return found.ratio > 1 + (LEAST_COUNTED if self.counted else LEAST_GAIN) and found.sure > 1

    def take(self, group: str, candidate: Candidate, speedup: float) -> None:
        """A candidate becomes the incumbent, which it is so many times as fast as."""
        self.best[group] = self._choice(group, candidate, self.gain(group) * speedup)

    def _choice(self, group: str, candidate: Candidate, gain: float) -> TunedChoice:
        return TunedChoice(
            self.cpu, group, candidate.rule, dict(candidate.schedule), gain, self.counted, self.version
        )

"""What a tuner knows: the best schedule of each group of operators so far, and what was tried. Plain data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgepack.config.tuned import TunedFile
from edgepack.plan.tuned import TunedChoice

__all__ = ["FAILED", "Candidate", "Comparison", "Group", "Rounds"]

#: What is noted of a candidate that crashed, hung, or computed something else.
FAILED = 0.0001

#: A candidate has to be faster by this part at least, and by so many times what the incumbent's own times
#: differ in one round.
LEAST_GAIN, TIMES_NOISE = 0.02, 1.5

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
        text = json.dumps([self.rule, self.schedule], sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Group:
    """Operators that one kernel computes, wherever the model has such.

    Attributes:
        key: names it in the file.
        title: for the user.
        nodes: of all its steps.
        candidates: the nearest to ``now`` first.
        now: the schedule by which it is computed, of which they are neighbours.
    """

    key: str
    title: str
    nodes: frozenset[Nodes]
    candidates: Sequence[Candidate]
    now: Candidate | None = None


@dataclass(frozen=True)
class Comparison:
    """Two programs, measured in turns.

    Attributes:
        before, after: time of each step by its nodes, of the incumbent and of the other program.
        noise: by how much the incumbent's own times differ, as a part of them, by nodes; 0 of counts.
        unit: "us", or "instructions".
    """

    before: Mapping[Nodes, float]
    after: Mapping[Nodes, float]
    noise: Mapping[Nodes, float]
    unit: str = "us"

    def speedup(self, nodes: Iterable[Nodes]) -> float:
        """How many times as fast steps are in the other program; 1 where one of the two has none."""
        known = [one for one in nodes if one in self.before and one in self.after]
        after = sum(self.after[one] for one in known)
        return sum(self.before[one] for one in known) / after if known and after else 1.0

    def noise_of(self, nodes: Iterable[Nodes]) -> float:
        """Of steps together, as a part of their time."""
        known = [one for one in nodes if one in self.before]
        total = sum(self.before[one] for one in known)
        return sum(self.noise.get(one, 0.0) * self.before[one] for one in known) / total if total else 0.0

    def share(self, nodes: Iterable[Nodes]) -> float:
        """What part of the incumbent's run steps take."""
        return sum(self.before.get(one, 0.0) for one in nodes) / (sum(self.before.values()) or 1.0)


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
    ) -> dict[str, float]:
        """Notes what was measured; returns by how much the groups are faster whose candidate is the best now.

        A candidate replaces the incumbent only if it is faster beyond the noise of this round.
        """
        won = {}
        for group in groups:
            candidate = picks.get(group.key)
            if candidate is None:
                continue
            speedup = comparison.speedup(group.nodes)
            total = self.gain(group.key) * speedup
            self.tried.setdefault(group.key, {})[candidate.digest] = max(total, FAILED)
            noise = 0.0 if self.counted else comparison.noise_of(group.nodes)
            if speedup > 1 + max(LEAST_GAIN if not self.counted else 0.001, TIMES_NOISE * noise):
                self.best[group.key] = self._choice(group.key, candidate, total)
                won[group.key] = speedup
        return won

    def confirmed(
        self, groups: Sequence[Group], comparison: Comparison | None, before: Mapping[str, TunedChoice]
    ) -> set[str]:
        """Takes back the choices of groups that are not faster in a second comparison, and returns their
        keys; the gain of the others is the smaller of the two.

        Args:
            comparison: None where there was none, for the program did not run.
            before: what was the best before the first comparison.
        """
        lost = set()
        for group in groups:
            known = before[group.key].gain if group.key in before else 1.0
            again = 0.0 if comparison is None else comparison.speedup(group.nodes)
            gain = min(self.gain(group.key), known * again)
            if gain > known * (1 + LEAST_GAIN):
                self.best[group.key] = replace(self.best[group.key], gain=gain)
                continue
            lost.add(group.key)
            self.best.pop(group.key)
            if group.key in before:
                self.best[group.key] = before[group.key]
        return lost

    def _choice(self, group: str, candidate: Candidate, gain: float) -> TunedChoice:
        return TunedChoice(
            self.cpu, group, candidate.rule, dict(candidate.schedule), gain, self.counted, self.version
        )

"""A device of invented times, for the search of ``edgepack tune``, and what a search finds on it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from edgepack.commands.tune_device import OnDevice
from edgepack.commands.tune_results import Tuned
from edgepack.commands.tune_rounds import Candidate, Comparison, Group
from edgepack.commands.tune_search import Bounds, Search
from edgepack.config.tuned import TunedFile, read_tuned
from edgepack.plan.tuned import TunedChoice
from edgepack.runners.bench import Measurement
from edgepack.system.progress import Stages

#: Groups of the invented model, with microseconds of each by the rules; the last is not worth trying.
GROUPS = {"conv": 400.0, "dense": 300.0, "pool": 300.0, "add": 1.0}
#: By group and number of a candidate: how many times as fast it is; others are slower.
SPEED = {("conv", 2): 1.5, ("conv", 4): 1.2, ("dense", 0): 0.7, ("dense", 3): 1.1, ("pool", 1): 1.005}
CPU = "a kind of CPU"
TURNS = 9


def candidate(number: int) -> Candidate:
    return Candidate("rule", {"tile": number})


@dataclass
class Programs:
    """What a search asks of programs."""

    most_versions: int
    cut_short: bool = False
    workers: int = 2
    target: Any = field(default_factory=lambda: SimpleNamespace(tuned_kinds=(CPU,)))
    groups: Any = None


class Device(OnDevice):
    """Stands for a device.

    Args:
        noise: by which part times differ at random.
        bad: choices by which a version is wrong, or does not run.
        fails: is asked before each comparison, and raises where the device is gone.
        whole: by how much a whole run is slower with any choices than its steps say.

    Attributes:
        asked: of each comparison the versions.
    """

    def __init__(
        self,
        *,
        noise: float = 0.0,
        bad: Iterable[tuple[str, int]] = (),
        fails: Callable[[int], None] = lambda number: None,
        counted: bool = False,
        whole: float = 1.0,
    ) -> None:
        self.noise, self.bad, self.fails, self.whole = noise, set(bad), fails, whole
        self.counted, self.place, self.disturbed = counted, "here", 0
        self.programs = Programs(1 if counted else 8, groups=self.groups)  # type: ignore[assignment]
        self.asked: list[list[dict[str, int]]] = []
        self.random = random.Random(1)

    def settle(self) -> Measurement:
        return Measurement("native", "here", True, 1, 0, (sum(GROUPS.values()),) * 5, 0, 0, 0, 0)

    def share(self, groups: Sequence[Group], first: Measurement) -> dict[str, float]:
        return {name: micros / sum(GROUPS.values()) for name, micros in GROUPS.items()}

    def groups(self, choices: Any, wanted: Any = (), tried: Any = (), seconds: Any = None) -> list[Group]:
        return [Group(name, name, frozenset({(name,)}), [candidate(n) for n in range(5)]) for name in GROUPS]

    def compared(self, before: Any, others: Sequence[Any]) -> list[Comparison | None]:
        self.asked.append([chosen_of(one) for one in others])
        self.fails(len(self.asked))
        return [
            None if set(chosen_of(one).items()) & self.bad else self.comparison(before, one) for one in others
        ]

    def comparison(self, before: Any, other: Any) -> Comparison:
        a, b = self.times(chosen_of(before)), self.times(chosen_of(other))
        runs = [
            [sum(turn) * (self.whole if of else 1) for turn in zip(*times.values(), strict=True)]
            for times, of in ((a, before), (b, other))
        ]
        return Comparison(a, b, *runs, self.counted)

    def times(self, chosen: dict[str, int]) -> dict[tuple[str, ...], list[float]]:
        found = {}
        for name, micros in GROUPS.items():
            speed = SPEED.get((name, chosen[name]), 0.9) if name in chosen else 1.0
            turns = range(1 if self.counted else TURNS)
            found[name,] = [micros / speed * (1 + self.random.uniform(0, self.noise)) for _ in turns]
        return found


def chosen_of(choices: Sequence[TunedChoice]) -> dict[str, int]:
    return {one.group: int(one.schedule["tile"]) for one in choices}


def search(device: Device, path: Path, *, trials: int = 20, known: TunedFile | None = None) -> Tuned:
    start = known or (read_tuned(path) if path.exists() else TunedFile())
    return Search(device, path, start, Bounds(trials=trials), Stages(None)).found()


def chosen(path: Path) -> dict[str, int]:
    return chosen_of(read_tuned(path).choices)

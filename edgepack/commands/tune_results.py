"""What a tuner tells of its rounds, and in the end. Plain data."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

__all__ = ["TuneLayer", "TuneRound", "Tuned"]


@dataclass(frozen=True)
class TuneLayer:
    """A group of operators that are computed by one kernel, wherever the model has such, during a search.

    Attributes:
        group: its key in the file of tuned schedules.
        title: its operators, for the user.
        share: what part of a run by the rules it takes.
        gain: how many times as fast the best schedule that was confirmed is.
        tried: schedules that were measured.
    """

    group: str
    title: str
    share: float
    gain: float
    tried: int


@dataclass(frozen=True)
class TuneRound:
    """What a round of a search found.

    Attributes:
        number: from 1 on.
        candidates: that it measured, of which ``faster`` seem faster, and are measured once more.
        confirmed: of the last round's that were faster once more.
        trials: versions of the model that were measured so far, and ``failed`` candidates so far.
        speedup: how many times as fast a run is so far, by what its layers gained.
        error: standard error of the ratio of whole runs in this round; 0 where instructions are counted.
        seconds_left: of the time that the search may take; None for any.
        layers: the groups that are worth it, those that take longest first.
    """

    number: int
    candidates: int
    faster: int
    confirmed: int
    trials: int
    failed: int
    speedup: float
    error: float
    seconds_left: float | None
    layers: tuple[TuneLayer, ...]


@dataclass(frozen=True)
class Tuned:
    """What a search found.

    Attributes:
        path: the file.
        choices: key and gain of each group of the model for which the file has a schedule now.
        trials: versions of the model with candidates that were measured.
        failed: candidates that crashed, hung, or computed something else.
        disturbed: rounds that were measured again because the device was busy or throttled.
        noise: standard error of how many times as fast a run is; 0 of counts.
        before, after: a run by the rules' own schedules and by the tuned ones: milliseconds, or instructions.
        unit: "ms" or "instructions".
        kept: whether the whole network is faster; otherwise the file has no new schedules.
        where: where programs were run.
    """

    path: Path
    choices: tuple[tuple[str, float], ...]
    trials: int
    failed: int
    disturbed: int
    noise: float
    before: float
    after: float
    unit: str
    kept: bool
    where: str

    @property
    def speedup(self) -> float:
        """How many times as fast a run is."""
        return self.before / self.after if self.after else 1.0

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "path": str(self.path), "speedup": self.speedup}

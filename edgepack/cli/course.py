"""How far work of known stages is, and how long the rest may take."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

__all__ = ["PACK", "Course", "shown_seconds"]

#: Stages of a pack in their order, with their usual seconds: those of ResNet-18 on two cores (README.md). A
#: pack's own speed scales them. What a GPU or a further kind of CPU adds runs through some of them again.
#: What is asked more than once, such as the cache, is none of them.
PACK: Mapping[str, float] = {
    "find the toolchain": 0.1,
    "read model": 0.3,
    "import": 0.4,
    "record": 0.5,
    "optimise": 1.0,
    "kernels": 0.8,
    "llvm": 3.1,
    "write sources": 0.1,
    "compile C": 0.5,
    "link": 0.2,
    "audit": 0.3,
    "write bundle": 0.2,
}

#: Stages that take as long for a small model as for a large one: they say nothing about the others.
_FIXED = {"find the toolchain", "read model"}
#: Of a stage that takes longer than it was thought to, no more than this counts as done.
_MOST_OF_A_STAGE = 0.95
#: Seconds of the whole from which on the time that is left is said, and from the start until then.
_LONG, _EARLY = 15.0, 5.0


class Course:
    """Follows work through its stages.

    Attributes:
        share: of the whole that is done, from 0 to 1; it never falls.

    Args:
        stages: their usual seconds, by name, in their order.
        clock: seconds, for tests.
    """

    def __init__(self, stages: Mapping[str, float], clock: Callable[[], float] = time.monotonic) -> None:
        self.stages, self._clock = stages, clock
        self.share = 0.0
        self._start = self._since = clock()
        self._stage = ""
        #: Usual seconds of what was worked through, and how long that took.
        self._usual = self._took = 0.0

    def enter(self, stage: str) -> None:
        """The work is at a stage; one that is not known is a part of the one before."""
        if stage == self._stage or stage not in self.stages:
            return
        now = self._clock()
        if self._stage and self._stage not in _FIXED:
            self._usual += self.stages[self._stage]
            self._took += now - self._since
        self._stage, self._since = stage, now

    def look(self) -> tuple[float, float | None]:
        """The share that is done, and the seconds that are left; None where that cannot be said yet, or the
        whole is short."""
        if not self._stage:
            return self.share, None
        now, whole = self._clock(), sum(self.stages.values())
        names = list(self.stages)
        before = sum(self.stages[name] for name in names[: names.index(self._stage)])
        # How slow this pack is beside the usual one; a stage that takes longer says so at once.
        pace = self._took / self._usual if self._usual else 1.0
        usual = self.stages[self._stage]
        expected = max(usual * pace, 1e-3)
        part = (now - self._since) / expected
        pace = max(pace, (now - self._since) / usual)
        done = before + usual * min(part, _MOST_OF_A_STAGE)
        self.share = max(self.share, min(done / whole, 1.0))
        left = (whole - before - usual) * pace + max(usual * pace - (now - self._since), 0.0)
        elapsed = now - self._start
        said = self._stage not in _FIXED and elapsed >= _EARLY and elapsed + left >= _LONG
        return self.share, left if said else None


def shown_seconds(seconds: float) -> str:
    """``40 s``, ``3 min``: no more exact than it is known."""
    if seconds < 10:
        return f"{max(round(seconds), 1)} s"
    return f"{round(seconds / 10) * 10} s" if seconds < 95 else f"{round(seconds / 60)} min"

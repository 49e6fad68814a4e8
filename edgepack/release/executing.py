"""Has an executor build units, and tells how far it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass, replace

from edgepack.errors import EdgepackError
from edgepack.release.build import Failure, Job, Outcome, build, failure_of
from edgepack.release.matrix import Unit
from edgepack.release.planned import Planned
from edgepack.release.work import WorkFolder
from edgepack.system.deadline import TICK

__all__ = ["Running", "Show", "State", "Watch", "build_units"]


@dataclass(frozen=True)
class Running:
    """A unit that is being built: its name, stage, and seconds since the stage began."""

    name: str
    stage: str
    seconds: float


@dataclass(frozen=True)
class State:
    """How far a release is.

    Attributes:
        done: units that are there, with those that failed.
        total: all units.
        running: what is being built.
        finished: names of those that ended since the last call, with why they failed.
    """

    done: int
    total: int
    running: tuple[Running, ...]
    finished: tuple[tuple[str, Failure | None], ...] = ()


#: Is told of the state, a few times a second.
Show = Callable[[State], None]


class Watch:
    """Tells a :data:`Show` how far a release is."""

    def __init__(self, show: Show | None, planned: Sequence[Planned], work: WorkFolder) -> None:
        self._show = show or (lambda _state: None)
        self._work = work
        self._total = len(planned)
        self._failed = [(one.unit.name, one.failure) for one in planned if one.failure is not None]
        self._done = sum(one.built is not None for one in planned)

    def __call__(self, waiting: Sequence[Unit], finished: Sequence[tuple[str, Failure | None]]) -> None:
        finished, self._failed = [*self._failed, *finished], []
        self._done += len(finished)
        now = time.time()
        running = []
        for unit in waiting:
            if (found := self._work.stage(unit)) is not None:
                running.append(Running(unit.name, found[0], max(0.0, now - found[1])))
        self._show(State(self._done, self._total, tuple(running), tuple(finished)))


def build_units(
    todo: Sequence[Planned], work: WorkFolder, executor: Executor, watch: Watch
) -> dict[str, Outcome]:
    """What came of each unit, by its name. The executor is closed then."""
    with executor:
        futures: dict[Future[Outcome], Planned] = {
            executor.submit(build, Job(one.unit, one.key, one.runner, one.not_run, work.path)): one
            for one in todo
        }
        outcomes: dict[str, Outcome] = {}
        waiting = set(futures)
        watch([one.unit for one in todo], [])
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=TICK, return_when=FIRST_COMPLETED)
                for future in done:
                    unit = futures[future].unit
                    outcomes[unit.name] = _kept(_outcome(future), unit, work)
                finished = [(name, outcomes[name].failure) for name in (futures[f].unit.name for f in done)]
                watch([one.unit for future, one in futures.items() if future in waiting], finished)
        finally:
            for future in waiting:
                future.cancel()
    return {one.unit.name: outcomes[one.unit.name] for one in todo}


def _kept(outcome: Outcome, unit: Unit, work: WorkFolder) -> Outcome:
    """Keep what was built for the next release, should this one be ended; else say why that cannot be."""
    if outcome.failure is None and (why := work.keep(unit)):
        text = f"what is built is not kept, should the release be ended: {why}."
        return replace(outcome, warnings=(*outcome.warnings, text))
    return outcome


def _outcome(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except EdgepackError as error:
        return Outcome(failure_of(error))
    except (Exception, CancelledError) as error:  # whatever the executor has to say
        return Outcome(Failure("InternalError", f"It was not built: {type(error).__name__}: {error}."))

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

__all__ = ["Estimate", "Queue", "Running", "Show", "State", "Watch", "build_units"]


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
        left: seconds that the rest may take; None where that cannot be said yet.
    """

    done: int
    total: int
    running: tuple[Running, ...]
    finished: tuple[tuple[str, Failure | None], ...] = ()
    left: float | None = None


#: Units that have to end before the time that is left is said.
_TELLING = 2
#: Is told of the state, a few times a second.
Show = Callable[[State], None]


class Estimate:
    """How long the rest of a release may take: as many units come to their end in a time as did until now."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._began = clock, clock()
        self._ended, self._end = 0, 0.0

    def __call__(self, finished: int, waiting: int) -> float | None:
        """Seconds that are left.

        Args:
            finished: units that ended since the last call.
            waiting: units that are to end yet.
        """
        now = self._clock()
        self._ended += finished
        if finished:
            self._end = now + (now - self._began) / self._ended * waiting
        return max(self._end - now, 0.0) if self._ended >= _TELLING and waiting else None


class Watch:
    """Tells a :data:`Show` how far a release is."""

    def __init__(
        self,
        show: Show | None,
        planned: Sequence[Planned],
        work: WorkFolder,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._show = show or (lambda _state: None)
        self._work = work
        self._total = len(planned)
        self._failed = [(one.unit.name, one.failure) for one in planned if one.failure is not None]
        self._done = sum(one.built is not None for one in planned)
        self._estimate = Estimate(clock)

    def __call__(self, waiting: Sequence[Unit], finished: Sequence[tuple[str, Failure | None]]) -> None:
        finished, self._failed = [*self._failed, *finished], []
        self._done += len(finished)
        now = time.time()
        running = []
        for unit in waiting:
            if (found := self._work.stage(unit)) is not None:
                running.append(Running(unit.name, found[0], max(0.0, now - found[1])))
        left = self._estimate(len(finished), len(waiting))
        self._show(State(self._done, self._total, tuple(running), tuple(finished), left))


class Queue:
    """The order in which units are handed over: never more than one waits for a C library that a toolchain
    builds first, while the others, which need none, are built.

    That one is handed over before all others, for it takes longest; the library's other units when it is
    there, and then the first unit of the next library.
    """

    def __init__(self, todo: Sequence[Planned]) -> None:
        self._free = [one for one in todo if not one.library]
        self._held: dict[str, list[Planned]] = {}
        for one in todo:
            if one.library:
                self._held.setdefault(one.library, []).append(one)

    def ready(self) -> list[Planned]:
        """What can be handed over at the beginning."""
        free, self._free = self._free, []
        return [*self._next_library(), *free]

    def ended(self, one: Planned) -> list[Planned]:
        """What can be handed over when this one has come to its end, well or not."""
        if one.library not in self._held:
            return []
        return [*self._next_library(one.library), *self._held.pop(one.library)]

    def _next_library(self, but: str = "") -> list[Planned]:
        """The first unit of a library that nobody builds yet."""
        for library, units in self._held.items():
            if library != but and units:
                return [units.pop(0)]
        return []


def build_units(
    todo: Sequence[Planned], work: WorkFolder, executor: Executor, watch: Watch
) -> dict[str, Outcome]:
    """What came of each unit, by its name. The executor is closed then."""
    with executor:
        queue = Queue(todo)
        futures: dict[Future[Outcome], Planned] = {}
        outcomes: dict[str, Outcome] = {}
        waiting: set[Future[Outcome]] = set()

        def submit(ready: Sequence[Planned]) -> None:
            for one in ready:
                job = Job(one.unit, one.keys, one.runner, one.not_run, work.path, one.bundle)
                future = executor.submit(build, job)
                futures[future] = one
                waiting.add(future)

        submit(queue.ready())
        watch([one.unit for one in todo], [])
        try:
            while waiting:
                done, waiting = wait(waiting, timeout=TICK, return_when=FIRST_COMPLETED)
                for future in done:
                    unit = futures[future].unit
                    outcomes[unit.name] = _kept(_outcome(future), unit, work)
                    submit(queue.ended(futures[future]))
                finished = [(name, outcomes[name].failure) for name in (futures[f].unit.name for f in done)]
                watch([one.unit for one in todo if one.unit.name not in outcomes], finished)
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

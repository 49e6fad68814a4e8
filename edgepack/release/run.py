"""``edgepack release``: finds what is to be built, has it built, and publishes the release as one act."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.deadline import TICK
from edgepack.errors import ConfigError, EdgepackError
from edgepack.registry import EXECUTORS
from edgepack.release.assemble import Assembly, assemble
from edgepack.release.build import Failure, Job, Outcome, build, failure_of
from edgepack.release.identity import model_digests, unit_key, verifying_runner
from edgepack.release.index import Index, UnitRecord, load_index
from edgepack.release.matrix import Unit, matches, units_of
from edgepack.release.measure import Measurements, Slower, load_measurements, measure, slower_units
from edgepack.release.output import Earlier, check_output
from edgepack.release.project import ProjectFile, load_project
from edgepack.release.work import WorkFolder, work_folder, work_place
from edgepack.signing.sums import secret_key

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignSecretKey
    from edgepack.signing.minisign import MinisignSecretKey

__all__ = ["Planned", "Release", "ReleaseOptions", "Running", "State", "plan_release", "release"]


@dataclass(frozen=True)
class ReleaseOptions:
    """How a release is made.

    Attributes:
        only: patterns of MODEL@DEVICE: the release holds these alone. Default: the whole project.
        jobs: units that are built at once; default: what the executor takes.
        against: folder or ``release.json`` of a release to compare with.
        executor: name of what runs the builds.
        scheduler: address of what has the executor's workers, for one that has some.
        bench: measure, when all is built, what runs here at its own speed.
    """

    only: Sequence[str] = ()
    jobs: int | None = None
    against: Path | None = None
    executor: str = "processes"
    scheduler: str = ""
    bench: bool = False


@dataclass(frozen=True)
class Planned:
    """A unit, and what there is of it.

    Attributes:
        key: what decides on its files; "" where it is not known, for a failure.
        runner, not_run: what verifies it, or why nothing does.
        record: of what is there already; None: it is to be built.
        kept: that is in the release that stands there, not in the work folder.
        failure: why it cannot be built.
    """

    unit: Unit
    key: str = ""
    runner: str = ""
    not_run: str = ""
    record: UnitRecord | None = None
    kept: bool = False
    failure: Failure | None = None


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


@dataclass(frozen=True)
class Release:
    """What came of it.

    Attributes:
        path: the release's folder.
        index: what it holds; None where something failed: then nothing was published.
        failures: by unit.
        built: names of the units that were built now; the others were there.
        changed: whether the folder was written.
        warnings: what the work went on without.
        seconds: that it took.
        measured: latencies, where they were asked for.
        slower: units whose latency exceeds its budget.
    """

    path: Path
    index: Index | None
    failures: Mapping[str, Failure]
    built: tuple[str, ...]
    changed: bool
    warnings: tuple[str, ...] = ()
    seconds: float = 0.0
    measured: Measurements | None = None
    slower: tuple[Slower, ...] = ()

    @property
    def broken(self) -> tuple[tuple[str, str], ...]:
        """Unit and name of each budget that is exceeded."""
        units = self.index.units if self.index is not None else ()
        return tuple((unit.name, one.what) for unit in units for one in unit.budgets if not one.kept)

    @property
    def ok(self) -> bool:
        """Whether all is built and no budget exceeded."""
        return self.index is not None and not self.broken and not self.slower


def plan_release(project: Path, output: Path, options: ReleaseOptions) -> list[Planned]:
    """What a release would hold, and what of it is to be built. Nothing is written.

    Raises:
        ConfigError: what is wrong in the project file or the options.
    """
    loaded = load_project(project)
    work = WorkFolder(work_place(output))
    return _planned(loaded, options, work, Earlier.at(output))


def release(
    project: Path,
    output: Path,
    options: ReleaseOptions,
    show: Show | None = None,
    executor: Executor | None = None,
) -> Release:
    """Build what is not up to date, and publish the release, if nothing failed.

    Args:
        project: the project file.
        output: the release's folder.
        show: is told how far it is.
        executor: builds the units, instead of the one that the options name.

    Raises:
        ConfigError: what is wrong in the project file or the options, or the folder cannot be written.
    """
    began = time.monotonic()
    loaded = load_project(project)
    output = output.absolute()
    check_output(output, partial=bool(options.only))
    before = load_index(options.against) if options.against is not None else None
    were = load_measurements(options.against) if options.against is not None else Measurements()
    EXECUTORS.find(options.executor)
    earlier = Earlier.at(output)
    key = _signing_key(loaded)
    with work_folder(output) as work:
        planned = _planned(loaded, options, work, earlier)
        todo = [one for one in planned if one.record is None and one.failure is None]
        outcomes: dict[str, Outcome] = {}
        if todo:
            outcomes = _built(todo, work, options, executor, _Watch(show, planned, work))
        failures = {one.unit.name: one.failure for one in planned if one.failure is not None}
        failures |= {name: one.failure for name, one in outcomes.items() if one.failure is not None}
        built = tuple(name for name, one in outcomes.items() if one.failure is None)
        warnings = tuple(dict.fromkeys(text for one in outcomes.values() for text in one.warnings))
        if failures:
            seconds = time.monotonic() - began
            return Release(output, None, failures, built, False, warnings, seconds)
        records = [(one.unit, one.record or work.record(one.unit, one.key), one.kept) for one in planned]
        parts = [(unit, record, kept) for unit, record, kept in records if record is not None]
        if len(parts) != len(records):
            raise ConfigError(
                f"A unit has gone from {work.path}.",
                hint="Another program changes it; make the release again.",
            )
        assembly = Assembly(loaded, tuple(options.only), before, earlier, work, parts, key)
        index, changed = assemble(assembly)
        shutil.rmtree(work.path, ignore_errors=True)  # while nobody else can begin there
    made = Release(output, index, {}, built, changed, warnings)
    made = _measured(made, [unit for unit, _, _ in parts], options.bench, were, show)
    return replace(made, seconds=time.monotonic() - began)


def _measured(
    made: Release, units: Sequence[Unit], bench: bool, before: Measurements, show: Show | None
) -> Release:
    """The release with its latencies, where they were asked for, and what became of budgets of them."""
    total = len(units)
    now, warnings, index = None, list(made.warnings), made.index
    if bench and index is not None:

        def tell(name: str) -> None:
            if show is not None:
                show(State(total, total, (Running(name, "measure", 0.0),)))

        now, failed = measure(made.path, index, units, tell)
        now.write(made.path)
        warnings += failed
    slower, unknown = slower_units(units, now or Measurements(), before)
    return replace(made, measured=now, slower=slower, warnings=(*warnings, *unknown))


def _signing_key(loaded: ProjectFile) -> MinisignSecretKey | CosignSecretKey | None:
    """The key that the project names, before anything is built: it may be missing, or its password wrong."""
    signing = loaded.project.signing
    if signing is None:
        return None
    password = os.environ.get(signing.password_env) if signing.password_env else None
    source = str(loaded.file(signing.key)) if signing.key else f"env://{signing.key_env}"
    try:
        return secret_key(source, password)
    except ConfigError as error:
        raise ConfigError(f"{loaded.where('signing')}: signing: {error.message}", hint=error.hint) from None


def _chosen(loaded: ProjectFile, only: Sequence[str]) -> list[Unit]:
    units = units_of(loaded)
    for pattern in only:
        if not any(matches(unit.name, pattern) for unit in units):
            names = ", ".join(unit.name for unit in units[:8])
            raise ConfigError(
                f"--only {pattern!r} matches nothing of the project's matrix.",
                hint=f"It has {names}{', ...' if len(units) > 8 else ''}.",
            )
    return [unit for unit in units if not only or any(matches(unit.name, one) for one in only)]


def _planned(
    loaded: ProjectFile, options: ReleaseOptions, work: WorkFolder, earlier: Earlier
) -> list[Planned]:
    units = _chosen(loaded, options.only)
    digests: dict[Path, str | Failure] = {}
    for path in dict.fromkeys(unit.path for unit in units):
        try:
            digests |= model_digests([path])
        except EdgepackError as error:
            digests[path] = failure_of(error)
    return [_planned_unit(unit, digests[unit.path], work, earlier) for unit in units]


def _planned_unit(unit: Unit, digest: str | Failure, work: WorkFolder, earlier: Earlier) -> Planned:
    if isinstance(digest, Failure):
        return Planned(unit, failure=digest)
    try:
        runner, not_run = verifying_runner(unit)
        key = unit_key(unit, digest, runner)
    except EdgepackError as error:
        return Planned(unit, failure=failure_of(error))
    if (record := work.record(unit, key)) is not None:
        return Planned(unit, key, runner, not_run, record)
    record = earlier.record(unit.name, unit.place, key)
    return Planned(unit, key, runner, not_run, record, kept=record is not None)


class _Watch:
    """Tells a :data:`Show` how far a release is."""

    def __init__(self, show: Show | None, planned: Sequence[Planned], work: WorkFolder) -> None:
        self._show = show or (lambda _state: None)
        self._work = work
        self._total = len(planned)
        self._failed = [(one.unit.name, one.failure) for one in planned if one.failure is not None]
        self._done = sum(one.record is not None for one in planned)

    def __call__(self, waiting: Sequence[Unit], finished: Sequence[tuple[str, Failure | None]]) -> None:
        finished, self._failed = [*self._failed, *finished], []
        self._done += len(finished)
        now = time.time()
        running = []
        for unit in waiting:
            if (found := self._work.stage(unit)) is not None:
                running.append(Running(unit.name, found[0], max(0.0, now - found[1])))
        self._show(State(self._done, self._total, tuple(running), tuple(finished)))


def _built(
    todo: Sequence[Planned],
    work: WorkFolder,
    options: ReleaseOptions,
    executor: Executor | None,
    watch: _Watch,
) -> dict[str, Outcome]:
    if executor is None:
        open_executor = EXECUTORS.find(options.executor)
        executor = open_executor(min(options.jobs, len(todo)) if options.jobs else 0, options.scheduler)
    assert executor is not None
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
                    outcomes[futures[future].unit.name] = _outcome(future)
                finished = [(name, outcomes[name].failure) for name in (futures[f].unit.name for f in done)]
                watch([one.unit for future, one in futures.items() if future in waiting], finished)
        finally:
            for future in waiting:
                future.cancel()
    return {one.unit.name: outcomes[one.unit.name] for one in todo}


def _outcome(future: Future[Outcome]) -> Outcome:
    try:
        return future.result()
    except EdgepackError as error:
        return Outcome(failure_of(error))
    except (Exception, CancelledError) as error:  # whatever the executor has to say
        return Outcome(Failure("InternalError", f"It was not built: {type(error).__name__}: {error}."))

"""``edgepack release``: finds what is to be built, has it built, and publishes the release as one act."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.errors import ConfigError, EdgepackError
from edgepack.pipeline.compile import ModelIdentity
from edgepack.registry import EXECUTORS
from edgepack.release.assemble import Assembly, assemble
from edgepack.release.build import Failure, Job, Outcome, build, failure_of
from edgepack.release.identity import identify_models, unit_key, verifying_runner
from edgepack.release.index import Index, load_index
from edgepack.release.matrix import Unit, matches, units_of
from edgepack.release.measure import Measurements, Slower, load_measurements, measure, slower_units
from edgepack.release.output import Earlier, check_output
from edgepack.release.project import ProjectFile, load_project
from edgepack.release.unit_files import BuiltUnit
from edgepack.release.work import WorkFolder, work_folder, work_place
from edgepack.signing.sums import secret_key
from edgepack.system.deadline import TICK
from edgepack.system.private_files import check_around

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
        built: what is there already; None: it is to be built.
        failure: why it cannot be built.
    """

    unit: Unit
    key: str = ""
    runner: str = ""
    not_run: str = ""
    built: BuiltUnit | None = None
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
    output = output.resolve()
    key = None
    with suppress(ConfigError):  # its password is asked for where something is to be signed
        key = _signing_key(loaded)
    earlier = Earlier.at(output, key.public if key is not None else None)
    return _planned(loaded, options, WorkFolder(work_place(output)), earlier)


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
    output = output.resolve()
    sources = _sources(loaded)
    check_output(output, partial=bool(options.only), sources=sources)
    before = load_index(options.against) if options.against is not None else None
    were = load_measurements(options.against) if options.against is not None else Measurements()
    EXECUTORS.find(options.executor)
    key = _signing_key(loaded)
    if key is not None:
        _check_place(output, loaded)
    earlier = Earlier.at(output, key.public if key is not None else None)
    with work_folder(output) as work:
        planned = _planned(loaded, options, work, earlier)
        todo = [one for one in planned if one.built is None and one.failure is None]
        outcomes: dict[str, Outcome] = {}
        if todo:
            outcomes = _built(todo, work, options, executor, _Watch(show, planned, work))
        failures = {one.unit.name: one.failure for one in planned if one.failure is not None}
        failures |= {name: one.failure for name, one in outcomes.items() if one.failure is not None}
        built = tuple(name for name, one in outcomes.items() if one.failure is None)
        texts = [earlier.doubt] if earlier.doubt else []
        warnings = tuple(
            dict.fromkeys([*texts, *(text for one in outcomes.values() for text in one.warnings)])
        )
        if failures:
            seconds = time.monotonic() - began
            return Release(output, None, failures, built, False, warnings, seconds)
        parts = [(one.unit, _there(one, work)) for one in planned]
        assembly = Assembly(loaded, tuple(options.only), before, earlier, parts, sources, key)
        index, changed = assemble(assembly)
        work.clear()
    made = Release(output, index, {}, built, changed, warnings)
    made = _measured(made, [unit for unit, _ in parts], options.bench, were, show)
    return replace(made, seconds=time.monotonic() - began)


def _there(one: Planned, work: WorkFolder) -> BuiltUnit:
    """A unit that was there, or that was built now."""
    found = one.built or work.built(one.unit, one.key, now=True)
    if found is None:
        raise ConfigError(
            f"A unit has gone from {work.path}.", hint="Another program changes it; make the release again."
        )
    return found


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


def _sources(loaded: ProjectFile) -> list[Path]:
    """The files that a release is made from: project, models, recorded data, custom operators, key."""
    names = [loaded.project.signing.key] if loaded.project.signing is not None else []
    for model in loaded.project.models.values():
        names += [model.path, model.custom, *model.inputs.values(), *model.expected.values()]
    return [loaded.path, *(loaded.file(name) for name in names if name)]


def _check_place(output: Path, loaded: ProjectFile) -> None:
    """Refuse to sign where another user could put other files in the place of those that are to be signed."""
    try:
        check_around(output, loaded.path.stat().st_uid)
    except OSError as error:
        raise ConfigError(
            f"{output} is no place to sign a release in: {error}.",
            hint="Choose another folder with --output, in a folder that others may not write to.",
        ) from error


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
    models: dict[Path, ModelIdentity | Failure] = {}
    for path in dict.fromkeys(unit.path for unit in units):
        try:
            models |= identify_models([path])
        except EdgepackError as error:
            models[path] = failure_of(error)
    return [_planned_unit(unit, models[unit.path], work, earlier) for unit in units]


def _planned_unit(unit: Unit, model: ModelIdentity | Failure, work: WorkFolder, earlier: Earlier) -> Planned:
    if isinstance(model, Failure):
        return Planned(unit, failure=model)
    try:
        runner, not_run = verifying_runner(unit)
        key = unit_key(unit, model, runner)
    except EdgepackError as error:
        return Planned(unit, failure=failure_of(error))
    built = work.built(unit, key) or earlier.built(unit.name, unit.place, key)
    return Planned(unit, key, runner, not_run, built)


class _Watch:
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

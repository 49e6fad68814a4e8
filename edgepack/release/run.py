"""``edgepack release``: finds what is to be built, has it built, and publishes the release as one act."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.errors import ConfigError
from edgepack.registry import EXECUTORS
from edgepack.release.assemble import Assembly, assemble
from edgepack.release.build import Failure, Outcome
from edgepack.release.differences import with_contents
from edgepack.release.executing import Running, Show, State, Watch, build_units
from edgepack.release.index import Index, load_index
from edgepack.release.matrix import Unit
from edgepack.release.measure import Measurements, Slower, load_measurements, measure, slower_units
from edgepack.release.output import Earlier, check_output
from edgepack.release.planned import Planned, planned_units
from edgepack.release.project_file import ProjectFile, load_project
from edgepack.release.same_version import changed_models, published_index
from edgepack.release.unit_files import BuiltUnit
from edgepack.release.work import WorkFolder, work_folder, work_place
from edgepack.signing.sums import secret_key
from edgepack.system.private_files import check_around

if TYPE_CHECKING:
    from edgepack.signing.cosign import CosignSecretKey
    from edgepack.signing.minisign import MinisignSecretKey

__all__ = ["Release", "ReleaseOptions", "check_signing", "plan_release", "release"]


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
        allow_same_version: do not warn where a model changed and the version did not.
        unsigned: do not sign, though the project names a key.
    """

    only: Sequence[str] = ()
    jobs: int | None = None
    against: Path | None = None
    executor: str = "processes"
    scheduler: str = ""
    bench: bool = False
    allow_same_version: bool = False
    unsigned: bool = False


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
    with suppress(ConfigError):  # `check_signing` says what is wrong with it
        key = _signing_key(loaded, options)
    earlier, others = _releases(output, options, key)
    return planned_units(loaded, options.only, WorkFolder(work_place(output)), earlier, others)


def check_signing(project: Path, options: ReleaseOptions) -> None:
    """Raise ConfigError where the key that the project names is not there, or cannot be used."""
    _signing_key(load_project(project), options)


def _releases(
    output: Path, options: ReleaseOptions, key: MinisignSecretKey | CosignSecretKey | None
) -> tuple[Earlier, list[Earlier]]:
    """The release that stands in the folder, and the one to compare with, whose bundles may be the same."""
    public = key.public if key is not None else None
    against = options.against
    others = [Earlier.at(against.resolve(), public)] if against is not None and against.is_dir() else []
    return Earlier.at(output, public), others


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
    before = _before(options.against) if options.against is not None else None
    were = load_measurements(options.against) if options.against is not None else Measurements()
    EXECUTORS.find(options.executor)
    key = _signing_key(loaded, options)
    if key is not None:
        _check_place(output, loaded)
    earlier, others = _releases(output, options, key)
    published = published_index(output)
    with work_folder(output) as work:
        planned = planned_units(loaded, options.only, work, earlier, others)
        todo = [one for one in planned if one.built is None and one.failure is None]
        outcomes: dict[str, Outcome] = {}
        if todo:
            if executor is None:
                executor = _executor(options, len(todo))
            outcomes = build_units(todo, work, executor, Watch(show, planned, work))
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
    if not options.allow_same_version:
        warnings += changed_models(index, (published, before))
    made = Release(output, index, {}, built, changed, warnings)
    made = _measured(made, [unit for unit, _ in parts], options.bench, were, show)
    return replace(made, seconds=time.monotonic() - began)


def _executor(options: ReleaseOptions, units: int) -> Executor:
    """The executor that the options name, for so many units."""
    opened: Executor = EXECUTORS.find(options.executor)(
        min(options.jobs, units) if options.jobs else 0, options.scheduler
    )
    return opened


def _there(one: Planned, work: WorkFolder) -> BuiltUnit:
    """A unit that was there, or that was built now."""
    found = one.built or work.built(one.unit, one.keys.unit, now=True)
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


def _before(against: Path) -> Index:
    """The release to compare with: its folder, or its ``release.json``."""
    index = load_index(against)
    return with_contents(index, against) if against.is_dir() else index


def _signing_key(loaded: ProjectFile, options: ReleaseOptions) -> MinisignSecretKey | CosignSecretKey | None:
    """The key that the project names, before anything is built: it may be missing, or its password wrong."""
    signing = loaded.project.signing
    if signing is None or options.unsigned:
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

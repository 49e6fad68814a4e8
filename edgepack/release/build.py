"""Builds one unit: packs, makes its packages, verifies, and says what came of it. Runs in a process of its
own, here or on another machine that has the same folders; what it gets and returns is plain data.
"""

from __future__ import annotations

import warnings
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from edgepack.bundle.checksums import check_sums
from edgepack.bundle.manifest import Manifest, load_manifest
from edgepack.commands.export import export_bundles, formats_hint, source_bundle
from edgepack.commands.pack import pack_model
from edgepack.errors import CheckFailedError, ConfigError, EdgepackError, EdgepackWarning
from edgepack.formats.base import ExportFormat
from edgepack.objectfiles.code_size import text_bytes
from edgepack.options import RunOptions
from edgepack.registry import EXPORT_FORMATS
from edgepack.release.differences import contents_of
from edgepack.release.identity import UnitKeys
from edgepack.release.index import PackageRecord, Sizes, UnitRecord, Verified
from edgepack.release.matrix import Unit
from edgepack.release.unit_files import BuiltUnit
from edgepack.release.work import WorkFolder
from edgepack.runners.program import STATUSES
from edgepack.runners.verify import verify
from edgepack.system.boundary import guarded
from edgepack.system.files import list_files, sha256_file
from edgepack.system.progress import Progress
from edgepack.system.temporary import temporary_folder
from edgepack.text.spelling import at_the_command_line

__all__ = ["BUNDLE", "Failure", "Job", "Outcome", "build", "failure_of", "package_record"]

#: The bundle's folder in a unit's.
BUNDLE = "bundle"


@dataclass(frozen=True)
class Job:
    """What is to be built.

    Attributes:
        unit: which.
        keys: :func:`edgepack.release.identity.unit_keys` of it.
        runner: what verifies it; "" for nothing.
        not_run: why nothing verifies it.
        work: the release's work folder.
        bundle: the unit's bundle, if it is there: then packages are made of it, and nothing else is.
    """

    unit: Unit
    keys: UnitKeys
    runner: str
    not_run: str
    work: Path
    bundle: BuiltUnit | None = None


@dataclass(frozen=True)
class Failure:
    """Why a unit could not be built: the parts of an :class:`EdgepackError`."""

    kind: str
    message: str
    hint: str = ""
    detail: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a job: nothing, with a failure, or the unit in the work folder.

    Attributes:
        warnings: what the work went on without.
    """

    failure: Failure | None
    warnings: tuple[str, ...] = ()


def failure_of(error: EdgepackError) -> Failure:
    """The parts of an error."""
    return Failure(type(error).__name__, error.message, error.hint, error.detail)


def build(job: Job) -> Outcome:
    """Build a unit into the work folder. What goes wrong is a part of the result."""
    work = WorkFolder(job.work)
    try:
        work.check()
    except OSError as error:
        text = f"{job.work}, where the release is made, cannot be used: {error.strerror or error}."
        hint = "Workers on other machines need the same folders, and the same user."
        return Outcome(Failure("ConfigError", text, hint))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", EdgepackWarning)
        try:
            with at_the_command_line():  # whose options the project's fields stand for
                guarded(_build)(job, work)
            failure = None
        except EdgepackError as error:
            failure = _placed(failure_of(error), job.unit)
        finally:
            work.stage_file(job.unit).unlink(missing_ok=True)
    return Outcome(failure, tuple(str(one.message) for one in caught))


def _placed(failure: Failure, unit: Unit) -> Failure:
    """The failure with file, line and field of the project in the place of the command's option."""
    for option, place in unit.places.items():
        if failure.message.startswith((f"{option}:", f"{option} ")):
            return replace(failure, message=place + failure.message.removeprefix(option))
    return failure


def _build(job: Job, work: WorkFolder) -> None:
    unit = job.unit

    last = ""

    def stage(name: str, detail: str = "") -> None:
        nonlocal last
        if name != last:  # not each kernel of a stage
            last = name
            with suppress(OSError):
                text = f"{name}: {detail}" if detail else name
                work.stage_file(unit).write_text(text, encoding="utf-8")

    stage("start")
    with temporary_folder(job.work, prefix=".unit.") as place:
        folder = place / "unit"
        folder.mkdir()
        root, there = folder / BUNDLE, job.bundle
        if there is None:
            pack_model(unit.path, unit.profile, root, unit.options, stage)
        else:
            there.take(root)
        manifest = load_manifest(root)
        _check_joint(root, unit)
        packages = _packages(root, folder, unit, stage)
        stage("verify")
        verified = _verified(job, root, manifest) if there is None else there.record.verified
        record = UnitRecord(
            model=unit.model,
            device=unit.device,
            bundle=f"{unit.place}/{BUNDLE}",
            inputs=job.keys.unit,
            bundle_inputs=job.keys.bundle,
            model_sha256=manifest.model.sha256,
            manifest_sha256=sha256_file(root / "manifest.json"),
            packages=tuple(packages),
            sizes=_sizes(root, manifest),
            contents=contents_of(manifest),
            verified=verified,
            warnings=manifest.warnings,
        )
        work.publish(unit, folder, record)


def _check_joint(root: Path, unit: Unit) -> None:
    """Raise ConfigError where the bundle cannot be a part of a package of several devices."""
    for name in unit.joint:
        one: ExportFormat = EXPORT_FORMATS.find(name)
        source = source_bundle(root)
        if why := one.refusal(source):
            raise ConfigError(
                f"{unit.name} cannot become a part of a package of the format {name}: {why}",
                hint="Name other formats for it, or options that fit, in `matrix: overrides:`. "
                + formats_hint([source]),
            )


def _packages(root: Path, folder: Path, unit: Unit, stage: Progress) -> tuple[PackageRecord, ...]:
    made = []
    for name in unit.formats:
        stage(f"package {name}", "")
        for path in export_bundles([root], [name], folder, unit.package):
            made.append(package_record(path, name, f"{unit.place}/{path.name}"))
    return tuple(made)


def package_record(path: Path, format_: str, place: str) -> PackageRecord:
    """The record of a package.

    Args:
        place: its path in the release.
    """
    return PackageRecord(path=place, nbytes=path.stat().st_size, sha256=sha256_file(path), format=format_)


def _verified(job: Job, root: Path, manifest: Manifest) -> Verified:
    if not job.runner:
        return Verified(not_run=job.not_run)
    check_sums(root, manifest)
    result = verify(root, manifest, RunOptions(device=job.unit.profile))
    if not result.ok:
        wrong = [
            f"{one.name}: {one.mismatches} of {one.elements} wrong, largest error {one.max_abs_err:.3g}"
            for one in (*result.outputs, *(output for v in result.variants for output in v.outputs))
            if not one.ok
        ]
        raise CheckFailedError(
            f"The bundle of {job.unit.name} fails its own check: {STATUSES[result.status]}",
            hint="Look at it with `edgepack pack` and `edgepack verify`.",
            detail="\n".join(wrong),
        )
    missing = [f"{one.name} needs {one.missing}" for one in result.variants if one.missing]
    return Verified(
        runner=result.runner,
        reference=result.reference,
        variants=tuple(one.name for one in result.variants if not one.missing),
        not_run="; ".join(missing),
    )


def _sizes(root: Path, manifest: Manifest) -> Sizes:
    artifact = manifest.artifact("shared") or manifest.artifact("program") or manifest.artifact("static")
    footprint = manifest.footprint
    return Sizes(
        text=text_bytes(root / artifact.path) if artifact is not None else None,
        params=manifest.params.nbytes,
        arena=manifest.memory.arena,
        flash=None if footprint is None else footprint.flash,
        ram=None if footprint is None else footprint.ram,
        bundle=sum((root / name).stat().st_size for name in list_files(root)),
    )

"""What a release is to hold: the project's units, and what there is of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import ConfigError, EdgepackError
from edgepack.pipeline.compile import ModelIdentity
from edgepack.release.build import Failure, failure_of
from edgepack.release.identity import UnitKeys, identify_models, unit_keys, verifying_runner
from edgepack.release.matrix import Unit, matches, units_of
from edgepack.release.output import Earlier
from edgepack.release.project_file import ProjectFile
from edgepack.release.unit_files import BuiltUnit
from edgepack.release.work import WorkFolder
from edgepack.toolchains import resolve

__all__ = ["Planned", "planned_units"]


_UNKNOWN = UnitKeys("", "")


@dataclass(frozen=True)
class Planned:
    """A unit, and what there is of it.

    Attributes:
        keys: what decides on its files; empty where it is not known, for a failure.
        runner, not_run: what verifies it, or why nothing does.
        built: what is there already; None: it is to be built.
        bundle: of one that is to be built, its bundle that is there already.
        library: what the toolchain has to build first for the device, which all units for it wait for; "" for
            nothing.
        failure: why it cannot be built.
    """

    unit: Unit
    keys: UnitKeys = _UNKNOWN
    runner: str = ""
    not_run: str = ""
    built: BuiltUnit | None = None
    bundle: BuiltUnit | None = None
    library: str = ""
    failure: Failure | None = None


def planned_units(
    loaded: ProjectFile,
    only: Sequence[str],
    work: WorkFolder,
    earlier: Earlier,
    bundles: Sequence[Earlier] = (),
) -> list[Planned]:
    """The units of a release, and what the work folder and the earlier release have of them.

    Args:
        only: patterns of MODEL@DEVICE, of which each has to match; all units without any.
        bundles: further releases whose bundles are taken where they are the same.

    Raises:
        ConfigError: a pattern matches nothing.
    """
    units = _chosen(loaded, only)
    models: dict[Path, ModelIdentity | Failure] = {}
    for path in dict.fromkeys(unit.path for unit in units):
        try:
            models |= identify_models([path])
        except EdgepackError as error:
            models[path] = failure_of(error)
    return [_planned_unit(unit, models[unit.path], work, (earlier, *bundles)) for unit in units]


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


def _planned_unit(
    unit: Unit, model: ModelIdentity | Failure, work: WorkFolder, releases: Sequence[Earlier]
) -> Planned:
    if isinstance(model, Failure):
        return Planned(unit, failure=model)
    try:
        runner, not_run = verifying_runner(unit)
        keys = unit_keys(unit, model, runner)
        library = resolve(unit.profile, unit.options.toolchain).builds_first
    except EdgepackError as error:
        return Planned(unit, failure=failure_of(error))
    if built := work.built(unit, keys.unit) or releases[0].built(unit.name, unit.place, keys.unit):
        return Planned(unit, keys, runner, not_run, built)
    bundle = next((b for one in releases if (b := one.bundle(unit.name, unit.place, keys.bundle))), None)
    return Planned(unit, keys, runner, not_run, None, bundle, "" if bundle else library)

"""What a release is to hold: the project's units, and what there is of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import ConfigError, EdgepackError
from edgepack.pipeline.compile import ModelIdentity
from edgepack.release.build import Failure, failure_of
from edgepack.release.identity import identify_models, unit_key, verifying_runner
from edgepack.release.matrix import Unit, matches, units_of
from edgepack.release.output import Earlier
from edgepack.release.project_file import ProjectFile
from edgepack.release.unit_files import BuiltUnit
from edgepack.release.work import WorkFolder

__all__ = ["Planned", "planned_units"]


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


def planned_units(
    loaded: ProjectFile, only: Sequence[str], work: WorkFolder, earlier: Earlier
) -> list[Planned]:
    """The units of a release, and what the work folder and the earlier release have of them.

    Args:
        only: patterns of MODEL@DEVICE, of which each has to match; all units without any.

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
    return [_planned_unit(unit, models[unit.path], work, earlier) for unit in units]


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

"""Project file -> units: one model for one device each, with all that decides how it is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from edgepack.config.device import Device
from edgepack.config.validate import nearest
from edgepack.errors import ConfigError
from edgepack.formats.base import ExportFormat
from edgepack.formats.metadata import PackageMetadata
from edgepack.options import PackOptions
from edgepack.registry import EXPORT_FORMATS
from edgepack.release.project import Budgets, Choices, ModelEntry, Override, package
from edgepack.release.project_file import ProjectFile

__all__ = ["Unit", "matches", "units_of"]

#: What the worker's errors about a model's sizes begin with, and the keys of a project's model that say them.
_OPTIONS = {"--shape": "shapes", "--dim": "dims", "--const": "const"}


@dataclass(frozen=True)
class Unit:
    """A model for a device.

    Attributes:
        model, device: their names in the project.
        profile: the device.
        path: the model's file.
        options: how it is packed.
        formats: names of the package formats that are made of it alone.
        joint: names of those that are made of all the model's units that have the format (several
            architectures in one package).
        budgets: what it may take.
        package: what its packages say about themselves.
        places: an option of the command line to where the project file says it, as errors name it.
    """

    model: str
    device: str
    profile: Device
    path: Path
    options: PackOptions
    formats: tuple[str, ...]
    joint: tuple[str, ...]
    budgets: Budgets
    package: PackageMetadata
    places: Mapping[str, str]

    @property
    def name(self) -> str:
        """``MODEL@DEVICE``."""
        return f"{self.model}@{self.device}"

    @property
    def place(self) -> str:
        """The unit's folder in the release, with ``/``."""
        return f"{self.model}/{self.device}"


def matches(name: str, pattern: str) -> bool:
    """Whether ``MODEL@DEVICE`` is meant by a pattern, or is what stands there."""
    return name == pattern or fnmatchcase(name, pattern)


def units_of(loaded: ProjectFile) -> list[Unit]:
    """The units of a project, device by device: such that the first ones are of different models.

    Raises:
        ConfigError: a pattern matches nothing, an override names no package format, or the matrix is empty;
            with file and line.
    """
    project = loaded.project
    names = [f"{model}@{device}" for device in project.devices for model in project.models]
    _check_patterns(loaded, names)
    chosen = [
        name
        for name in names
        if any(matches(name, one) for one in project.matrix.include)
        and not any(matches(name, one) for one in project.matrix.exclude)
    ]
    if not chosen:
        raise ConfigError(
            f"{loaded.where('matrix')}: matrix: nothing is left of it", hint="Exclude less, or include more."
        )
    return [_unit(loaded, name) for name in chosen]


def _check_patterns(loaded: ProjectFile, names: Sequence[str]) -> None:
    matrix = loaded.project.matrix
    given: list[tuple[tuple[str | int, ...], str]] = []
    for key, patterns in (("include", matrix.include), ("exclude", matrix.exclude)):
        given += [((key, index), pattern) for index, pattern in enumerate(patterns)]
    given += [(("overrides", index, "match"), one.match) for index, one in enumerate(matrix.overrides)]
    for path, pattern in given:
        if not any(matches(name, pattern) for name in names):
            near = nearest(pattern, list(names))
            field = ".".join(map(str, ("matrix", *path)))
            raise ConfigError(
                f"{loaded.where('matrix', *path)}: {field}: {pattern!r} matches no model and device",
                hint=f"Did you mean {near}?"
                if near
                else "Write a pattern of MODEL@DEVICE, such as *@linux-*.",
            )


def _unit(loaded: ProjectFile, name: str) -> Unit:
    project = loaded.project
    model, _, device = name.partition("@")
    entry, profile = project.models[model], loaded.devices[device]
    choices, budgets = entry.model_dump(include=set(Choices.model_fields)), project.budgets
    formats, origin = profile.formats, f"device {device}"
    if "formats" in (loaded.document.data["devices"][device] or {}):
        origin = f"{loaded.where('devices', device, 'formats')}: devices.{device}.formats"
    for index, one in enumerate(project.matrix.overrides):
        if matches(name, one.match):
            choices |= _given(one)
            budgets = budgets.model_copy(update=one.budgets.model_dump(exclude_none=True))
            if one.formats is not None:
                formats = one.formats
                origin = f"{loaded.where('matrix', 'overrides', index, 'formats')}: formats"
    found = _formats(formats, origin)
    return Unit(
        model=model,
        device=device,
        profile=profile,
        path=loaded.file(entry.path),
        options=_options(loaded, model, entry, choices),
        formats=tuple(one for one in formats if not found[one].several),
        joint=tuple(one for one in formats if found[one].several),
        budgets=budgets,
        package=replace(package(project), summary=entry.summary or project.summary),
        places={
            option: f"{loaded.where('models', model, key)}: models.{model}.{key}"
            for option, key in _OPTIONS.items()
        },
    )


def _given(one: Override) -> dict[str, object]:
    return one.model_dump(include=set(Choices.model_fields), exclude_none=True)


def _formats(names: Sequence[str], origin: str) -> dict[str, ExportFormat]:
    found: dict[str, ExportFormat] = {}
    for name in names:
        if name in found:
            raise ConfigError(f"{origin}: the format {name} is given twice", hint="Give it once.")
        try:
            found[name] = EXPORT_FORMATS.find(name)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error.message}", hint=error.hint) from None
    return found


def _options(loaded: ProjectFile, name: str, entry: ModelEntry, choices: dict[str, Any]) -> PackOptions:
    toolchain = choices["toolchain"]
    if isinstance(toolchain, str) and (toolchain.endswith((".yaml", ".yml")) or "/" in toolchain):
        choices = {**choices, "toolchain": str(loaded.file(toolchain))}
    files: dict[str, Any] = {
        key: {k: loaded.file(v) for k, v in getattr(entry, key).items()} for key in ("inputs", "expected")
    }
    plain = (
        "shapes",
        "dims",
        "const",
        "seed",
        "cut_inputs",
        "cut_outputs",
        "maxima",
        "max_constant_bytes",
        "max_nodes",
        "max_trips",
    )
    given = {key: value for key, value in choices.items() if value is not None}
    if "tuned" in given:
        given["tuned"] = tuple(loaded.file(text) for text in given["tuned"])
    return replace(
        PackOptions(name=name, custom=loaded.file(entry.custom) if entry.custom else None),
        **{key: getattr(entry, key) for key in (*plain, "set_batch")},
        **files,
        **given,
    )

"""What decides on a unit's files, in one digest: a unit with the same one need not be built again.

No path is in it, nor the user or the time: it is written into the release, which is the same from any folder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from edgepack.bundle.manifest import ModelRecord
from edgepack.commands.compiled_targets import tuned_for
from edgepack.config.custom import load_custom
from edgepack.config.device import Device, load_variant
from edgepack.errors import ToolchainError
from edgepack.formats.archives import epoch
from edgepack.pipeline.compile import ModelIdentity, identify
from edgepack.pipeline.versions import tool_versions
from edgepack.pipeline.worker_process import Worker
from edgepack.registry import EXPORT_FORMATS, FRONTENDS, RUNNERS, TOOLCHAINS
from edgepack.release.matrix import Unit
from edgepack.resources import PACKAGE, TEMPLATES
from edgepack.resources import TOOLCHAINS as TOOLCHAIN_FILES
from edgepack.runners import select_runner
from edgepack.system.files import sha256_file
from edgepack.system.temporary import temporary_folder
from edgepack.toolchains import resolve

__all__ = ["UnitKeys", "identify_models", "unit_keys", "verifying_runner"]

#: Of a device's runner: what says where it lies on this machine, not what the bundle is.
_OF_THIS_MACHINE = ("program", "sysroot", "environment", "options", "timeout")
_FOLDERS = ("sysroot", "sdk")


def identify_models(files: Sequence[Path]) -> dict[Path, ModelIdentity]:
    """What each model is: of the file itself and what it refers to.

    Raises:
        ModelError: one cannot be read.
    """
    found = {}
    with Worker() as worker, temporary_folder() as folder:
        for number, path in enumerate(dict.fromkeys(files)):
            place = folder / str(number)
            place.mkdir()
            found[path] = identify(path, worker, place)
    return found


def verifying_runner(unit: Unit) -> tuple[str, str]:
    """The name of the runner that verifies a unit here and "", or "" and why there is none: the same sentence
    on every machine."""
    profile = unit.profile
    if "program" not in profile.artifacts:
        return "", "its bundle has no program"
    try:
        return select_runner(profile).name, ""
    except ToolchainError:
        return "", f"the machine that built it has no runner {profile.runner.name} for it"


class UnitKeys(NamedTuple):
    """What decides on a unit, each a SHA-256 in hex.

    Attributes:
        unit: on all its files, and on what is said of them.
        bundle: on its bundle alone, and on what is said of that: not what packages say about themselves, so
            that a new version of the project makes new packages of the bundle that is there.
    """

    unit: str
    bundle: str


def unit_keys(unit: Unit, model: ModelIdentity, runner: str) -> UnitKeys:
    """What decides on a unit.

    Args:
        model: one of :func:`identify_models`.
        runner: what verifies it here.

    Raises:
        ConfigError: the device cannot be built with the toolchain.
        ToolchainError: the toolchain is missing.
    """
    toolchain = resolve(unit.profile, unit.options.toolchain)
    profiles = [unit.profile, *(load_variant(unit.profile, one) for one in unit.profile.variants)]
    decides = {
        "name": unit.name,
        "model": [ModelRecord.__name__, unit.path.name, model.digest],
        "options": _options(unit, [*profiles[1:], profiles[0]]),
        "devices": [_without_places(profile.model_dump(mode="json")) for profile in profiles],
        "toolchain": [_without_places(toolchain.config.model_dump(mode="json")), toolchain.version()],
        "parts": {
            "frontend": [model.frontend, FRONTENDS.origin(model.frontend)],
            "family": TOOLCHAINS.origin(toolchain.config.family),
            "runner": [runner, RUNNERS.origin(runner) if runner else ""],
        },
        "versions": tool_versions(unit.profile.gpu.api),
        "sources": _own_sources(),
    }
    bundle = _digest(decides)
    packages = {
        "bundle": bundle,
        "package": asdict(unit.package),
        "formats": {name: EXPORT_FORMATS.origin(name) for name in unit.formats},
        "epoch": epoch(),
    }
    return UnitKeys(_digest(packages), bundle)


def _digest(decides: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()


def _options(unit: Unit, profiles: Sequence[Device]) -> dict[str, Any]:
    """The options, files by their contents; of tuned schedules those that are taken for the unit."""
    options = asdict(unit.options)
    options["toolchain"] = None
    options["tuned"] = [choice.to_json() for choice in tuned_for(profiles, unit.options).choices]
    for key in ("inputs", "expected"):
        files: Mapping[str, Path] = options[key]
        options[key] = {name: sha256_file(path) for name, path in files.items()}
    if unit.options.custom is not None:
        path = Path(unit.options.custom)
        parts = [Path(part) for one in load_custom(path) for part in (one.source, one.reference) if part]
        options["custom"] = [sha256_file(path), *((part.name, sha256_file(part)) for part in parts)]
    return options


def _without_places(config: dict[str, Any]) -> dict[str, Any]:
    """A device or toolchain without the folders of this machine."""
    kept = {key: value for key, value in config.items() if key not in _FOLDERS}
    if "runner" in kept:
        runner = kept["runner"]
        kept["runner"] = {key: value for key, value in runner.items() if key not in _OF_THIS_MACHINE}
        kept["runner"]["machine"] = runner["options"].get("machine", "")
    if "compilers" in kept:
        kept["compilers"] = {name: _without_places(one) for name, one in kept["compilers"].items()}
    if "environment" in kept:
        kept["environment"] = sorted(kept["environment"])
    return kept


@cache
def _own_sources() -> str:
    """SHA-256 over edgepack's own files: a change of them, without a new version, is seen too."""
    digest = hashlib.sha256()
    for number, root in enumerate((PACKAGE, TEMPLATES, TOOLCHAIN_FILES)):
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root)
            if path.suffix == ".pyc" or "data" in name.parts[:1] or not path.is_file():
                continue
            digest.update(f"{number}/{name.as_posix()}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()

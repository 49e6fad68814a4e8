"""Compilers. :func:`resolve` gives the one for a device."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.errors import ConfigError

if TYPE_CHECKING:
    from edgepack.config.device import Device
    from edgepack.toolchains.base import Toolchain

__all__ = ["ENTRY_POINTS", "families", "family_class", "resolve"]

#: Entry point group by which another package brings a compiler family.
ENTRY_POINTS = "edgepack.toolchains"

_BUILT_IN = {
    "zig": "edgepack.toolchains.zig:ZigToolchain",
    "gcc": "edgepack.toolchains.gcc:GccToolchain",
    "gcc-arm-none-eabi": "edgepack.toolchains.arm_none_eabi:ArmNoneEabiToolchain",
    "clang": "edgepack.toolchains.clang:ClangToolchain",
    "emcc": "edgepack.toolchains.emcc:EmccToolchain",
    "xcode": "edgepack.toolchains.xcode:XcodeToolchain",
    "ndk": "edgepack.toolchains.ndk:NdkToolchain",
}


def families() -> list[str]:
    """Names of all compiler families, sorted."""
    return sorted({*_BUILT_IN, *(point.name for point in entry_points(group=ENTRY_POINTS))})


def family_class(family: str) -> type[Toolchain]:
    """The class of a compiler family; ConfigError with the known ones."""
    place = _BUILT_IN.get(family)
    if place is None:
        place = next((p.value for p in entry_points(group=ENTRY_POINTS) if p.name == family), None)
    if place is None:
        from edgepack.config.load import nearest

        near = nearest(family, families())
        raise ConfigError(
            f"there is no compiler family {family!r}",
            hint=(f"Did you mean {near}? " if near else "") + f"Known: {', '.join(families())}.",
        )
    module, _, name = place.partition(":")
    found: type[Toolchain] = getattr(import_module(module), name)
    return found


def resolve(
    device: Device, override: str | None = None, sdk: str | os.PathLike[str] | None = None
) -> Toolchain:
    """The toolchain for a device: ``override`` (a name or a YAML file), else the one that the device names.

    ``sdk``: the folder of its SDK, instead of its file's. Nothing is run yet. Raises ConfigError for an
    unknown toolchain, one that cannot build for the device, or one that needs no SDK.
    """
    from edgepack.config.toolchain import load_toolchain

    config = load_toolchain(override or device.toolchain)
    family = family_class(config.family)
    if sdk is not None:
        if not family.uses_sdk:
            raise ConfigError(
                f"toolchain {config.name} is not part of an SDK: --sdk {os.fspath(sdk)} would do nothing",
                hint=f"Leave it out, or choose another --toolchain for {device.name}.",
            )
        config = config.model_copy(update={"sdk": str(Path(sdk).expanduser().absolute())})
    return family(config, device)

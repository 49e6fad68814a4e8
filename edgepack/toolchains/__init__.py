"""Compilers. :func:`resolve` gives the one for a device."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from edgepack.errors import ConfigError
from edgepack.registry import TOOLCHAINS

if TYPE_CHECKING:
    from edgepack.config.device import Device
    from edgepack.toolchains.base import Toolchain

__all__ = ["resolve"]


def resolve(
    device: Device, override: str | None = None, sdk: str | os.PathLike[str] | None = None
) -> Toolchain:
    """The toolchain for a device: ``override`` (a name or a YAML file), else the one that the device names.

    ``sdk``: the folder of its SDK, instead of its file's. Nothing is run yet. Raises ConfigError for an
    unknown toolchain, one that cannot build for the device, or one that needs no SDK.
    """
    from edgepack.config.toolchain import load_toolchain

    config = load_toolchain(override or device.toolchain)
    family: type[Toolchain] = TOOLCHAINS.find(config.family)
    if sdk is not None:
        if not family.uses_sdk:
            raise ConfigError(
                f"toolchain {config.name} is not part of an SDK: --sdk {os.fspath(sdk)} would do nothing",
                hint=f"Leave it out, or choose another --toolchain for {device.name}.",
            )
        config = config.model_copy(update={"sdk": str(Path(sdk).expanduser().absolute())})
    return family(config, device)

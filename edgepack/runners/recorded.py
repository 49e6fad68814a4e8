"""The device of a bundle as runners may know it.

A bundle may be anybody's. It says which runner its program is for, which CPU and board an emulator is to
show, and how long a run may take; a manifest's reader has checked these. What is started here, with which
folders, environment and options, and every place elsewhere, is said by this machine's own files and by the
user.
"""

from __future__ import annotations

from typing import Any

from edgepack.bundle.manifest import DeviceRecord
from edgepack.config.device import DEVICES, Device
from edgepack.errors import ConfigError
from edgepack.registry import RUNNERS
from edgepack.runners.base import DeviceLike, with_settings

__all__ = ["device_of"]

#: What must be the same of a bundle's device and of one whose settings are taken.
_KIND = ("arch", "os", "libc")


def device_of(record: DeviceRecord, own: Device | None = None) -> DeviceLike:
    """A bundle's device with the settings of its runner.

    Args:
        record: what the bundle says.
        own: the device that the user names: all settings are its. Default the device of the record's name
            that this machine has, built in or in a folder of EDGEPACK_DEVICE_PATH, if it is of the same kind
            and has the same runner; a place elsewhere is not taken from it.

    Raises:
        ConfigError: the user's device is of another kind, or a device file of this machine is wrong.
    """
    if own is not None:
        for key in _KIND:
            here, there = getattr(own, key), getattr(record, key)
            if here != there:
                raise ConfigError(
                    f"The device {own.name} is not of the bundle's kind: {key} is {here!r}, not {there!r}.",
                    hint="Name the device that the bundle was packed for, or one that extends the same one.",
                )
        return with_settings(record, own.runner.model_dump())
    said = record.runner
    settings = {**_known_settings(record), "name": said.name, "timeout": said.timeout}
    if said.cpu:
        settings["cpu"] = said.cpu
    if said.machine:
        settings["options"] = {**settings.get("options", {}), "machine": said.machine}
    return with_settings(record, settings)


def _known_settings(record: DeviceRecord) -> dict[str, Any]:
    known = DEVICES.known(record.name)
    if known is None or known.runner.name != record.runner.name:
        return {}
    if any(getattr(known, key) != getattr(record, key) for key in _KIND):
        return {}
    settings = known.runner.model_dump()
    if getattr(RUNNERS.find(record.runner.name), "PLACE", ""):
        del settings["options"]
    return settings

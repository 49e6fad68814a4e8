"""Object formats: how files of each are linked and what is checked in them. :func:`format_for` gives one."""

from __future__ import annotations

from importlib import import_module

from edgepack.config.device import Device
from edgepack.errors import ToolchainError
from edgepack.toolchains.formats.base import ObjectFormat

__all__ = ["format_for"]

_FORMATS = {
    "coff": "edgepack.toolchains.formats.coff:Coff",
    "elf": "edgepack.toolchains.formats.elf:Elf",
    "firmware": "edgepack.toolchains.formats.firmware:Firmware",
    "wasm": "edgepack.toolchains.formats.wasm:Wasm",
}


def format_for(device: Device) -> ObjectFormat:
    """The object format of a device's files; ToolchainError if edgepack does not know it."""
    place = _FORMATS.get("firmware" if device.os == "none" else device.object_format)
    if place is None:
        raise ToolchainError(
            f"device {device.name}: {device.object_format} files can be neither linked nor checked",
            hint=f"Devices with one of these formats can be built for: {', '.join(sorted(_FORMATS))}.",
        )
    module, _, name = place.partition(":")
    found: type[ObjectFormat] = getattr(import_module(module), name)
    return found(device)

"""Object files: how those of each format are linked, what is read and what is checked in them."""

from __future__ import annotations

from edgepack.config.device import Device
from edgepack.objectfiles.base import ObjectFormat
from edgepack.registry import OBJECT_FORMATS

__all__ = ["format_for"]


def format_for(device: Device) -> ObjectFormat:
    """The object format of a device's files."""
    # Bare metal has ELF files too, of another kind.
    found: type[ObjectFormat] = OBJECT_FORMATS.find("firmware" if device.bare_metal else device.object_format)
    return found(device)

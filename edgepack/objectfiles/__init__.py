"""Object formats: how files of each are linked and what is checked in them. :func:`format_for` gives one."""

from __future__ import annotations

from importlib import import_module

from edgepack.config.device import Device
from edgepack.objectfiles.base import ObjectFormat

__all__ = ["format_for"]

_FORMATS = {
    "coff": "edgepack.objectfiles.coff:Coff",
    "elf": "edgepack.objectfiles.elf:Elf",
    "firmware": "edgepack.objectfiles.firmware:Firmware",
    "macho": "edgepack.objectfiles.macho:MachO",
    "wasm": "edgepack.objectfiles.wasm:Wasm",
}


def format_for(device: Device) -> ObjectFormat:
    """The object format of a device's files."""
    # Bare metal has ELF files too, of another kind.
    place = _FORMATS["firmware" if device.os == "none" else device.object_format]
    module, _, name = place.partition(":")
    found: type[ObjectFormat] = getattr(import_module(module), name)
    return found(device)

"""Object files: how those of each format are linked, what is read in them, what is checked and edited.

A package per format, each with the same modules: ``format`` (the linker's options, a subclass of
:class:`edgepack.objectfiles.base.ObjectFormat`), ``audit`` (what is wrong with a file, a subclass of
:class:`edgepack.objectfiles.auditor.Auditor`) and ``relocatable`` (reads and edits what a compiler writes).
"""

from __future__ import annotations

from edgepack.config.device import Device
from edgepack.objectfiles.base import ObjectFormat
from edgepack.registry import OBJECT_FORMATS

__all__ = ["format_for"]


def format_for(device: Device) -> ObjectFormat:
    """The object format of a device's files; that of bare metal is another kind of ELF."""
    name = "firmware" if device.bare_metal else device.object_format
    found: type[ObjectFormat] = OBJECT_FORMATS.find(name)
    return found(device)

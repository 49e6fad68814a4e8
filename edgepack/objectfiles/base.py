"""The base of all object formats: options that link files of a format, edits of its relocatable objects, and
its audit. The drivers of all compiler families (zig, gcc, clang) understand the options."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import ClassVar

from edgepack.config.device import Device
from edgepack.objectfiles.auditor import Auditor
from edgepack.registry import OBJECT_FORMATS

__all__ = ["ObjectFormat", "format_for"]


class ObjectFormat(ABC):
    """The files of one device: options that link them, and what must hold for them. A subclass per format."""

    suffix: ClassVar[str]  # of a shared library, without the dot
    compile_flags: ClassVar[tuple[str, ...]] = ("-fPIC",)  # for C that goes into a library

    #: Whether every linker of the format hides what it is not told to export. Else the objects are made to.
    linker_hides: ClassVar[bool] = True

    def __init__(self, device: Device) -> None:
        self.device = device

    @abstractmethod
    def shared(self, exported: Sequence[str], soname: str, folder: Path) -> list[str]:
        """Options for a library that exports only these symbols. ``folder`` is for files that they need."""

    def beside_shared(self, output: Path) -> list[str]:
        """Options that write what belongs beside a shared library (an import library)."""
        return []

    @abstractmethod
    def program(self) -> list[str]:
        """Options for a program."""

    @abstractmethod
    def plugin(self) -> list[str]:
        """Options for a library whose undefined symbols are found in the process that loads it."""

    def libraries(self, more: Sequence[str]) -> list[str]:
        """Options that name the device's libraries, then ``more``, each once."""
        return [f"-l{name}" for name in dict.fromkeys((*self.device.libraries, *more))]

    def strip_debug(self, source: Path, output: Path) -> bool:
        """Copy a relocatable object without its debug information. False: the toolchain's linker is to do it.

        ToolchainError for a file of another format.
        """
        return False

    @abstractmethod
    def hide_symbols(self, path: Path, keep: Collection[str]) -> None:
        """Hide what a relocatable object defines, but for the names in ``keep``, from all that is outside of
        what it is linked into. ToolchainError for a file of another format."""

    @abstractmethod
    def auditor(self) -> Auditor:
        """What audits the device's files. Loads lief, which takes a quarter of a second, so a format imports
        its auditor here."""


def format_for(device: Device) -> ObjectFormat:
    """The object format of a device's files."""
    # Bare metal has ELF files too, of another kind.
    found: type[ObjectFormat] = OBJECT_FORMATS.find("firmware" if device.bare_metal else device.object_format)
    return found(device)

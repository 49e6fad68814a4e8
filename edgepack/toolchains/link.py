"""Linker options by object format. Drivers of all families (zig, gcc, clang) understand them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from edgepack.config.device import Device
from edgepack.errors import ToolchainError

__all__ = ["ElfLinker", "Linker", "linker_for"]


class Linker(ABC):
    """Options that make a shared library or program of one object format."""

    suffix: ClassVar[str]  # of a shared library, without the dot

    def __init__(self, device: Device) -> None:
        self.device = device

    @abstractmethod
    def shared(self, exported: Sequence[str], soname: str, folder: Path) -> list[str]:
        """Options for a library that exports only these symbols. ``folder`` is for files that they need."""

    @abstractmethod
    def program(self) -> list[str]:
        """Options for a program."""

    @abstractmethod
    def plugin(self) -> list[str]:
        """Options for a library whose undefined symbols are found in the process that loads it."""

    def libraries(self, more: Sequence[str]) -> list[str]:
        """Options that name the device's libraries, then ``more``, each once."""
        return [f"-l{name}" for name in dict.fromkeys((*self.device.libraries, *more))]


class ElfLinker(Linker):
    """Linux, Android, bare metal: GNU ld and lld."""

    suffix = "so"

    def _common(self) -> list[str]:
        return [
            "-Wl,--gc-sections",
            "-Wl,--as-needed",
            "-Wl,--build-id=none",
            "-Wl,-z,noexecstack",
            "-Wl,-z,relro",
            "-Wl,-z,now",
            f"-Wl,-z,max-page-size={self.device.page_size}",
        ]

    def shared(self, exported: Sequence[str], soname: str, folder: Path) -> list[str]:
        script = folder / "exported.map"
        names = " ".join(f"{name};" for name in exported)
        script.write_text(
            f"{{ global: {names} local: *; }};\n" if names else "{ local: *; };\n", encoding="utf-8"
        )
        return [
            "-shared",
            f"-Wl,-soname,{soname}",
            f"-Wl,--version-script={script}",
            "-Wl,-z,defs",
            "-s",
            *self._common(),
        ]

    def program(self) -> list[str]:
        return ["-pie", "-Wl,-z,defs", "-s", *self._common()]

    def plugin(self) -> list[str]:
        return ["-shared", "-fPIC", "-Wl,-z,noexecstack", "-Wl,--build-id=none"]


_LINKERS: dict[str, type[Linker]] = {"elf": ElfLinker}


def linker_for(device: Device) -> Linker:
    """The linker options for a device; ToolchainError if its object format cannot be linked yet."""
    linker = _LINKERS.get(device.object_format)
    if linker is None:
        raise ToolchainError(
            f"device {device.name}: linking {device.object_format} files is not supported",
            hint=f"Devices with one of these formats can be linked: {', '.join(sorted(_LINKERS))}.",
        )
    return linker(device)

"""Names of chips and boards, each of a device that has no instruction that the chip lacks.

They stand in ``toolchains/chips/aliases.yaml``, with what is assumed of the chip. A name of a chip that no
device serves stands there too, with the reason.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from pydantic import Field

from edgepack import resources
from edgepack.config.document import Document, KeyPath, Origin, read
from edgepack.config.memories import MemoryRegion
from edgepack.config.models import Frozen, Name, Size, format_size
from edgepack.config.validate import nearest, validate
from edgepack.config.xtensa import no_xtensa_device
from edgepack.errors import ConfigError

__all__ = ["ALIASES", "Alias", "AliasBudget", "AliasFile", "alias_documents", "load_aliases", "no_device"]

#: The file.
ALIASES = resources.TOOLCHAINS / "chips" / "aliases.yaml"


class AliasBudget(Frozen):
    """Flash and RAM of a microcontroller, in bytes; 0 where it is not limited by the chip."""

    flash: Size = Field(description="Flash inside the chip; 0 where all flash is outside.")
    ram: Size = Field(description="The largest RAM that has no gaps.")


class Alias(Frozen):
    """Another name of a device.

    Attributes:
        device: name of a built-in device.
        about: the chip's core and clock, and what of the chip is not used.
        budget: the chip's own memory, in the place of the device's budget; None where that holds.
        memories: as in a device file; () where params and arena have one section each.
    """

    device: Name = Field(description="Name of a built-in device.")
    about: str = Field(min_length=1, description="The chip's core and clock, and what of it is not used.")
    budget: AliasBudget | None = Field(default=None, description="The chip's own flash and RAM.")
    memories: tuple[MemoryRegion, ...] = Field(
        default=(), description="As in a device file: the sections of the usual linker script."
    )

    @property
    def sentence(self) -> str:
        """What is assumed of the chip, in a line."""
        if self.budget is None:
            return self.about
        flash = f"{format_size(self.budget.flash)} of flash" if self.budget.flash else "flash not limited"
        return f"{self.about}; {flash}, {format_size(self.budget.ram)} of RAM"


class AliasFile(Frozen):
    """The content of ``aliases.yaml``.

    Attributes:
        aliases: by the name of a chip or board, in lower case.
        without: by the name of a chip or board that no device serves: why, as the end of a sentence.
    """

    aliases: dict[Name, Alias] = Field(description="By the name of a chip or board, in lower case.")
    without: dict[Name, str] = Field(default={}, description="Chips that no device serves: why.")


@cache
def _read(path: Path) -> tuple[AliasFile, Document]:
    document = read(path)
    found = validate(AliasFile, document)
    devices = sorted(file.stem for file in resources.DEVICES.glob("*.yaml"))
    for key, names in (("aliases", found.aliases), ("without", found.without)):
        for name in names:
            if name in devices:
                where = document.origin((key, name))
                raise ConfigError(f"{where}: {key}.{name}: is the name of a device", hint="Drop one of them.")
    for name, alias in found.aliases.items():
        if alias.device not in devices:
            where = document.origin(("aliases", name, "device"))
            near = nearest(alias.device, devices)
            raise ConfigError(
                f"{where}: aliases.{name}.device: there is no device {alias.device!r}",
                hint=f"Did you mean {near}?" if near else "",
            )
    return found, document


def load_aliases(path: Path = ALIASES) -> AliasFile:
    """The aliases in a file.

    Raises:
        ConfigError: what is wrong in it, with its line; an alias of a device that is not built in, or of a
            device's name.
    """
    return _read(path)[0]


def alias_documents(path: Path = ALIASES) -> dict[str, Document]:
    """What a device file in the place of each alias would say, by alias. Raises ConfigError as
    :func:`load_aliases` does."""
    found, document = _read(path)
    return {name: _document(name, alias, document) for name, alias in found.aliases.items()}


def _document(name: str, alias: Alias, whole: Document) -> Document:
    at: KeyPath = ("aliases", name)
    data: dict[str, object] = {"extends": alias.device, "description": alias.sentence}
    origins: dict[KeyPath, Origin] = {(): whole.origin(at)}
    origins[("extends",)] = whole.origin((*at, "device"))
    origins[("description",)] = whole.origin((*at, "about"))
    if alias.budget is not None:
        data["budget"] = alias.budget.model_dump()
        origins[("budget",)] = whole.origin((*at, "budget"))
        for part in data["budget"]:  # type: ignore[attr-defined]
            origins[("budget", part)] = whole.origin((*at, "budget", part))
    if alias.memories:
        data["memories"] = whole.data["aliases"][name]["memories"]
        length = len(at)
        for path, origin in whole.origins.items():
            if path[: length + 1] == (*at, "memories"):
                origins[path[length:]] = origin
    return Document(data, origins)


def no_device(name: str) -> str:
    """Why no device serves the chip or board of this name, as the end of a sentence; "" for any other."""
    return no_xtensa_device(name) or load_aliases().without.get(name.lower(), "")

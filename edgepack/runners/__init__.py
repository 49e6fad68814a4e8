"""Places that a bundle's program can run at: one module each, of the protocol
:class:`edgepack.runners.base.Runner`.

The name of a runner is what ``--runner`` and a device's profile say; another package adds its own through the
entry point group ``edgepack.runners``.
"""

from __future__ import annotations

from typing import NamedTuple

from edgepack.errors import ConfigError, ToolchainError
from edgepack.registry import RUNNERS
from edgepack.runners.base import DeviceLike, Runner, at_place, setting

__all__ = ["Selected", "placed", "select_runner"]

_EMULATORS = frozenset({"qemu", "wine"})


class Selected(NamedTuple):
    """A runner that was found to be available, its name, what it uses, and the device with the place that was
    asked for."""

    name: str
    runner: Runner
    where: str
    device: DeviceLike


def placed(device: DeviceLike, name: str, place: str) -> DeviceLike:
    """The device with the place at which the runner of this name is to run its programs; "" leaves it.

    Raises:
        ConfigError: the runner is unknown, or runs nothing elsewhere.
    """
    if not place:
        return device
    if not getattr(RUNNERS.find(name), "PLACE", ""):
        raise ConfigError(
            f"The runner {name} runs programs on this machine only, not at {place!r}.",
            hint=f"Leave out what stands behind the colon: --runner {name}.",
        )
    return at_place(device, name, place)


def select_runner(device: DeviceLike, override: str | None = None) -> Selected:
    """The runner for a device's programs: the one asked for; else this machine itself where it can run them;
    else the one that the device's profile names.

    Args:
        override: the name, or ``NAME:PLACE`` for a runner that runs programs elsewhere (``ssh:pi@board``).

    Raises:
        ConfigError: the name is unknown, or there is no place to be named.
        ToolchainError: the runner cannot run this device's programs here, with what is missing.
    """
    profile = str(setting(device, "name") or "native")
    if override:
        name, _, place = override.partition(":")
        names = [name]
        device = placed(device, name, place)
    elif profile in _EMULATORS:  # it is there for machines of another kind
        names = ["native", profile]
    else:
        names = [profile]
    hints = []
    for name in names:
        runner: Runner = RUNNERS.find(name)
        ok, where, hint = runner.available(device)
        if ok:
            return Selected(name, runner, where, device)
        hints.append(hint)
    raise ToolchainError(f"The runner {names[-1]} cannot run programs of {device.name} here.", hint=hints[-1])

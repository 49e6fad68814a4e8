"""Places that a bundle's program can run at: one module each.

The built-in ones are listed here; another package adds its own through the entry point group
``edgepack.runners`` (the name is what ``--runner`` and a device profile say, the value a module that
satisfies
:class:`edgepack.runners.base.Runner`).
"""

from __future__ import annotations

import difflib
from importlib import import_module
from importlib.metadata import entry_points
from typing import NamedTuple, cast

from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners.base import DeviceLike, Runner, at_place, setting

__all__ = ["Selected", "find_runner", "placed", "runner_names", "select_runner"]

GROUP = "edgepack.runners"

_BUILTIN = {
    "native": "edgepack.runners.native",
    "qemu": "edgepack.runners.qemu_user",
    "qemu-system": "edgepack.runners.qemu_system",
    "node": "edgepack.runners.node",
    "ssh": "edgepack.runners.ssh",
    "adb": "edgepack.runners.adb",
    "wasmtime": "edgepack.runners.wasmtime",
    "chromium": "edgepack.runners.chromium",
    "wine": "edgepack.runners.wine",
}
_EMULATORS = frozenset({"qemu", "wine"})


class Selected(NamedTuple):
    """A runner that was found to be available, its name, what it uses, and the device with the place that was
    asked for."""

    name: str
    runner: Runner
    where: str
    device: DeviceLike


def runner_names() -> list[str]:
    """Names of all runners, built-in and installed."""
    return sorted({*_BUILTIN, *(entry.name for entry in entry_points(group=GROUP))})


def find_runner(name: str) -> Runner:
    """The runner of this name.

    Raises:
        ConfigError: there is none, or the package that brings it cannot be imported.
    """
    for entry in entry_points(group=GROUP):
        if entry.name == name:
            try:
                return cast(Runner, entry.load())
            except Exception as error:  # whatever the other package raises
                raise ConfigError(
                    f"The runner {name!r} ({entry.value}) cannot be imported: {error}.",
                    hint="Install the package that brings it again.",
                ) from error
    if name in _BUILTIN:
        return cast(Runner, import_module(_BUILTIN[name]))
    names = runner_names()
    near = difflib.get_close_matches(name, names, n=1)
    raise ConfigError(
        f"There is no runner {name!r}.",
        hint=(f"Did you mean {near[0]}? " if near else "") + f"There are: {', '.join(names)}.",
    )


def placed(device: DeviceLike, name: str, place: str) -> DeviceLike:
    """The device with the place at which the runner of this name is to run its programs; "" leaves it.

    Raises:
        ConfigError: the runner is unknown, or runs nothing elsewhere.
    """
    if not place:
        return device
    if not getattr(find_runner(name), "PLACE", ""):
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
        runner = find_runner(name)
        ok, where, hint = runner.available(device)
        if ok:
            return Selected(name, runner, where, device)
        hints.append(hint)
    raise ToolchainError(f"The runner {names[-1]} cannot run programs of {device.name} here.", hint=hints[-1])

"""What a runner is: a module with ``available`` and ``run``, that knows one way to run a device's program."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from edgepack.system.process import Completed

__all__ = [
    "PARAMS_AT",
    "Availability",
    "Call",
    "DeviceLike",
    "Runner",
    "arch_of",
    "at_place",
    "host_os",
    "setting",
    "with_settings",
]


#: Of firmware whose params are not in its image: an address and the params file stand behind it, and whoever
#: runs the image puts the file's bytes there first.
PARAMS_AT = "--params-at"


class DeviceLike(Protocol):
    """What a runner may know of a device: the record in a bundle's manifest, or a device profile."""

    @property
    def name(self) -> str:
        """Name of the profile."""
        ...

    @property
    def arch(self) -> str:
        """x86_64, aarch64, arm, ..."""
        ...

    @property
    def os(self) -> str:
        """linux, macos, windows, ..."""
        ...

    @property
    def bare_metal(self) -> bool:
        """Whether it has no operating system."""
        ...

    @property
    def runner(self) -> Any:
        """The profile's choice of a runner and its settings: see :func:`setting`."""
        ...


class Availability(NamedTuple):
    """Whether a runner can run a device's programs on this machine.

    Attributes:
        ok: it can.
        where: what would be used, with its version (``/usr/bin/qemu-aarch64 7.2``); empty if there is
        nothing.
        hint: what is missing and how to get it; empty if nothing is.
    """

    ok: bool
    where: str
    hint: str


class Call(NamedTuple):
    """A command of this machine that runs a program.

    Attributes:
        argv: the command.
        environment: variables to set besides this process's.
        what: what is run, for messages.
        reads: files and folders outside of the bundle that it needs, besides the system's.
    """

    argv: Sequence[str | Path]
    environment: Mapping[str, str]
    what: str
    reads: Sequence[str | Path] = ()


class Runner(Protocol):
    """A module of ``edgepack.runners``, or of another package by the entry point group
    ``edgepack.runners``.

    One that runs programs elsewhere also has ``PLACE``, a text: how a place is written (``USER@HOST``). What
    the user wrote is then the setting ``place``. One that starts a single command of this machine may have
    ``call(device, argv, cwd)``, which returns that :class:`Call` and starts nothing: then it can be confined
    to a sandbox (:mod:`edgepack.runners.sandbox`). One whose clock counts the instructions of a program that
    is told ``--instructions`` has ``COUNTS_INSTRUCTIONS = True``.
    """

    #: Whether its times are the device's own (an emulator's are not).
    REAL_SPEED: bool

    def available(self, device: DeviceLike) -> Availability:
        """Whether it can run this device's programs here."""
        ...

    def run(self, device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
        """Run ``argv`` (the program first; paths of this machine) and wait at most ``timeout`` seconds."""
        ...


class _WithSettings:
    """A device with other settings of its runner; all else is the device's own."""

    def __init__(self, device: DeviceLike, runner: Mapping[str, Any]) -> None:
        self._device = device
        self.runner = runner
        self.name, self.arch, self.os = device.name, device.arch, device.os

    @property
    def bare_metal(self) -> bool:
        return self._device.bare_metal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._device, name)


def at_place(device: DeviceLike, runner: str, place: str) -> DeviceLike:
    """The device with a place for this runner; its other settings stay if the profile names the same one."""
    keys = (
        ("timeout", "program", "environment", "options")
        if setting(device, "name") == runner
        else ("timeout",)
    )
    kept = {key: value for key in keys if (value := setting(device, key))}
    return with_settings(device, {**kept, "name": runner, "place": place})


def with_settings(device: DeviceLike, settings: Mapping[str, Any]) -> DeviceLike:
    """The device with these settings of its runner, and no others."""
    return _WithSettings(device, settings)


def setting(device: DeviceLike, key: str) -> Any:
    """One of the runner's settings in the device's profile (``sysroot``); None if it is not set."""
    settings = device.runner
    value = settings.get(key) if isinstance(settings, Mapping) else getattr(settings, key, None)
    return value or None


_ARCHES = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "x86_64": "x86_64",
    "arm64": "aarch64",
    "aarch64": "aarch64",
    "i386": "x86",
    "i686": "x86",
    "riscv64": "riscv64",
}


def arch_of(machine: str) -> str:
    """The architecture's name in device profiles, from ``platform.machine()`` or the first part of a
    triple."""
    machine = machine.lower()
    if machine in _ARCHES:
        return _ARCHES[machine]
    return "arm" if machine.startswith(("arm", "thumb")) else machine


def host_os() -> str:
    """This machine's operating system, as device profiles call it."""
    return {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")

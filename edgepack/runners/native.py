"""Runs a program on this machine's own CPU."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

from edgepack.runners.base import Availability, Call, DeviceLike, arch_of, host_os, setting
from edgepack.system.process import Completed, execute

__all__ = ["REAL_SPEED", "available", "call", "run"]

REAL_SPEED = True


def available(device: DeviceLike) -> Availability:
    """Whether this machine has the device's architecture and operating system."""
    here = f"{host_os()}-{arch_of(platform.machine())}"
    wanted = f"{device.os}-{arch_of(device.arch)}"
    if here == wanted:
        return Availability(True, f"this machine ({here})", "")
    return Availability(
        False, "", f"This machine is {here}, the device {wanted}: choose a runner that emulates it."
    )


def call(device: DeviceLike, argv: Sequence[str | Path], *, cwd: Path) -> Call:
    """The program itself."""
    del cwd
    # The environment of the profile is for the device's own runner, which may be another one.
    environment = setting(device, "environment") if setting(device, "name") == "native" else None
    return Call(argv, environment or {}, Path(argv[0]).name)


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the program directly; ``device`` was checked by :func:`available`."""
    argv, environment, what, _ = call(device, argv, cwd=cwd)
    return execute(argv, timeout=timeout, cwd=cwd, env=environment, what=what)

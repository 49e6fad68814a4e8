"""What a runner is: a module with ``available`` and ``run``, that knows one way to run a device's program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from edgepack.errors import ToolchainError

__all__ = [
    "Availability",
    "Completed",
    "DeviceLike",
    "Runner",
    "arch_of",
    "execute",
    "host_os",
    "kill_group",
    "printed",
    "setting",
    "signal_name",
]


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


@dataclass(frozen=True)
class Completed:
    """A program that ended; ``returncode`` is negative where a signal ended it."""

    returncode: int
    stdout: str
    stderr: str

    @property
    def printed(self) -> str:
        """The end of what it printed, for an error's detail."""
        return printed(self.stdout, self.stderr)


class Runner(Protocol):
    """A module of ``edgepack.runners``, or of another package by the entry point group
    ``edgepack.runners``."""

    #: Whether its times are the device's own (an emulator's are not).
    REAL_SPEED: bool

    def available(self, device: DeviceLike) -> Availability:
        """Whether it can run this device's programs here."""
        ...

    def run(self, device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
        """Run ``argv`` (the program first; paths of this machine) and wait at most ``timeout`` seconds."""
        ...


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


def execute(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    what: str = "",
) -> Completed:
    """Run a command in its own process group; on a time-out or an interrupt all of it is ended.

    Args:
        argv: the command; nothing is interpreted by a shell.
        timeout: seconds.
        cwd: working directory.
        env: variables to set besides this process's.
        what: what is run, for messages; default the program's name.

    Raises:
        ToolchainError: it cannot be started, or ran out of time; with what it printed.
    """
    command = [str(part) for part in argv]
    what = what or Path(command[0]).name
    options: dict[str, Any] = {}
    if os.name == "posix":
        options["start_new_session"] = True
    try:
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            **options,
        )
    except OSError as error:
        raise ToolchainError(
            f"{what} cannot be started: {error.strerror or error}.", detail=" ".join(command)
        ) from error
    try:
        stdout, stderr = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired as error:
        kill_group(process)
        stdout, stderr = process.communicate()
        raise ToolchainError(
            f"{what} did not end within {timeout:g} s.",
            hint="Give more time with --timeout, or look for what blocks it.",
            detail=printed(stdout, stderr),
        ) from error
    except BaseException:
        kill_group(process)
        process.communicate()
        raise
    return Completed(process.returncode, stdout, stderr)


def kill_group(process: subprocess.Popen[Any]) -> None:
    """End a process and, where the system has process groups and it leads one, all that it started."""
    killpg: Callable[[int, int], None] | None = getattr(os, "killpg", None)
    with suppress(ProcessLookupError, PermissionError):
        if killpg is not None:
            killpg(process.pid, signal.SIGKILL)
    with suppress(OSError):
        process.kill()


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 99`` if it has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def printed(stdout: str, stderr: str, limit: int = 4000) -> str:
    """The end of a program's two streams, for an error's detail."""
    parts = [
        f"{name}:\n{text[-limit:].rstrip()}"
        for name, text in (("stdout", stdout), ("stderr", stderr))
        if text
    ]
    return "\n".join(parts) or "It printed nothing."

"""Runs a firmware image on a board that qemu emulates; semihosting is its console and exit status.

The device's profile names the board (``options: {machine: mps2-an386}``). The image holds its own data: paths
among the arguments are left out. But params may lie beside it: behind ``--params-at ADDRESS`` stands their
file, which is put into the board's flash before the image starts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from edgepack.bundle.firmware.emulator import EMULATORS
from edgepack.errors import ToolchainError
from edgepack.runners.base import PARAMS_AT, Availability, Call, DeviceLike, setting
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, ask, execute

__all__ = ["COUNTS_INSTRUCTIONS", "REAL_SPEED", "available", "call", "run"]

#: Emulated times say nothing about a device.
REAL_SPEED = False

#: Of a program that is told ``--instructions``.
COUNTS_INSTRUCTIONS = True


def available(device: DeviceLike) -> Availability:
    """Whether qemu is here and has the device's board."""
    machine = _machine(device)
    if not device.bare_metal or not machine or device.arch not in EMULATORS:
        return Availability(
            False, "", "qemu-system runs firmware (os: none) on a board, `runner: {options: {machine: ...}}`."
        )
    qemu = _find_qemu(device)
    if qemu is None:
        emulator = EMULATORS[device.arch]
        return Availability(
            False, "", f"{emulator.program} was not found: apt-get install {emulator.package}."
        )
    version, machines = _about(qemu)
    if machine not in machines:
        return Availability(
            False,
            f"{qemu} {version}",
            f"It has no board {machine}: `{qemu} -M help` lists those that it has.",
        )
    return Availability(True, f"{qemu} {version}, board {machine}", "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the image on the emulated board; what it prints is its stdout.

    Raises:
        ToolchainError: qemu is missing or lacks the board, or the image ran out of time.
    """
    argv, environment, what, _ = call(device, argv, cwd=cwd)
    return execute(argv, timeout=timeout, cwd=cwd, env=environment, what=what)


def call(device: DeviceLike, argv: Sequence[str | Path], *, cwd: Path) -> Call:
    """qemu with the image. ToolchainError if it is missing or lacks the board."""
    del cwd
    ok, _, hint = available(device)
    if not ok:
        raise ToolchainError(f"qemu-system cannot run firmware of {device.name}.", hint=hint)
    image, *rest = argv
    rest, loaded = _taken_params(rest)
    words = [Path(image).name, *(word for word in rest if isinstance(word, str))]
    # A comma ends an option's value, two are one comma.
    arguments = ",".join(f"arg={word.replace(',', ',,')}" for word in words)
    emulator = EMULATORS[device.arch]
    command = [
        *emulator.command(_machine(device), str(setting(device, "cpu") or ""), str(_find_qemu(device))),
        *(("-icount", emulator.icount) if "--instructions" in words else ()),
        *("-kernel", image),
        *loaded,
        *("-display", "none", "-serial", "none", "-monitor", "none", "-chardev", "stdio,id=console"),
        *("-semihosting-config", f"enable=on,target=native,chardev=console,{arguments}"),
    ]
    what = f"{Path(image).name} on {_machine(device)} under {emulator.program}"
    environment = setting(device, "environment") or {}
    return Call(command, environment, what, [command[0]])


def _taken_params(arguments: Sequence[str | Path]) -> tuple[list[str | Path], list[str]]:
    """The arguments without params for the board, and qemu's options that load these."""
    rest = list(arguments)
    if PARAMS_AT not in rest:
        return rest, []
    at = rest.index(PARAMS_AT)
    address, file = rest[at + 1 : at + 3]
    loader = f"loader,file={str(file).replace(',', ',,')},addr={address},force-raw=on"
    return rest[:at] + rest[at + 3 :], ["-device", loader]


def _machine(device: DeviceLike) -> str:
    options: Any = setting(device, "options") or {}
    return str(options.get("machine") or "")


def _find_qemu(device: DeviceLike) -> str | None:
    return find_program(str(setting(device, "program") or EMULATORS[device.arch].program))


@cache
def _about(qemu: str) -> tuple[str, frozenset[str]]:
    """Version and boards."""
    words = ask([qemu, "--version"]).split()
    version = words[words.index("version") + 1] if "version" in words[:-1] else ""
    return version, frozenset(
        line.split()[0] for line in ask([qemu, "-M", "help"]).splitlines() if line.strip()
    )

"""Runs a Linux program of another architecture under qemu's user-mode emulation.

A dynamically linked program needs the device's libc here too: Debian's and Ubuntu's cross libc packages
have one. (The libc that zig links against is a stub: it cannot run.)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.runners.base import Availability, Call, DeviceLike, arch_of, host_os, setting
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, ask, execute

__all__ = ["REAL_SPEED", "available", "call", "run"]

#: Emulated times say nothing about a device.
REAL_SPEED = False


@dataclass(frozen=True)
class _Guest:
    """What an architecture needs: qemu's name for it, its dynamic loader, where Debian puts its libc, the
    package."""

    qemu: str
    loader: str
    sysroot: str
    package: str


_GUESTS = {
    "aarch64": _Guest("aarch64", "lib/ld-linux-aarch64.so.1", "/usr/aarch64-linux-gnu", "libc6-arm64-cross"),
    "arm": _Guest("arm", "lib/ld-linux-armhf.so.3", "/usr/arm-linux-gnueabihf", "libc6-armhf-cross"),
    "riscv64": _Guest(
        "riscv64", "lib/ld-linux-riscv64-lp64d.so.1", "/usr/riscv64-linux-gnu", "libc6-riscv64-cross"
    ),
    "x86_64": _Guest("x86_64", "lib64/ld-linux-x86-64.so.2", "/", "libc6-amd64-cross"),
}


def available(device: DeviceLike) -> Availability:
    """Whether qemu and, unless the device's programs are static, its libc are here."""
    if device.os != "linux" or host_os() != "linux":
        return Availability(False, "", "qemu-user runs Linux programs on Linux only.")
    guest = _GUESTS.get(arch_of(device.arch))
    if guest is None:
        return Availability(False, "", f"qemu-user is not set up for the architecture {device.arch}.")
    qemu = _find_qemu(device, guest)
    if qemu is None:
        return Availability(
            False, "", f"qemu-{guest.qemu} was not found: apt-get install qemu-user (or qemu-user-static)."
        )
    where = f"{qemu} {_version(qemu)}".rstrip()
    wanted, cpu = str(setting(device, "cpu") or ""), _cpu(device, qemu)
    if cpu != wanted:
        where += f" (as {cpu}: it does not know {wanted})"
    sysroot = _sysroot(device, guest)
    if sysroot is None:
        return Availability(
            False,
            where,
            f"{where} is here, but no {guest.loader} of {device.arch} that it could load programs with: "
            f"apt-get install {guest.package} (the libc that comes with zig cannot run).",
        )
    return Availability(True, where + (f", libc of {sysroot}" if sysroot != "" else ""), "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the program under ``qemu-<arch> -L SYSROOT``.

    Raises:
        ToolchainError: qemu or the libc is missing, or the program ran out of time.
    """
    argv, environment, what, _ = call(device, argv, cwd=cwd)
    return execute(argv, timeout=timeout, cwd=cwd, env=environment, what=what)


def call(device: DeviceLike, argv: Sequence[str | Path], *, cwd: Path) -> Call:
    """``qemu-<arch> -L SYSROOT PROGRAM``. ToolchainError if qemu or the libc is missing."""
    del cwd
    ok, _, hint = available(device)
    if not ok:
        raise ToolchainError(f"qemu-user cannot run programs of {device.name}.", hint=hint)
    guest = _GUESTS[arch_of(device.arch)]
    qemu = _find_qemu(device, guest)
    sysroot = _sysroot(device, guest)
    prefix: list[str | Path] = [str(qemu)]
    if sysroot:
        prefix += ["-L", sysroot]
    if cpu := _cpu(device, str(qemu)):
        prefix += ["-cpu", cpu]
    what = f"{Path(argv[0]).name} under qemu-{guest.qemu}"
    environment = setting(device, "environment") or {}
    return Call([*prefix, *argv], environment, what, [str(qemu), *([sysroot] if sysroot else [])])


def _find_qemu(device: DeviceLike, guest: _Guest) -> str | None:
    names = [setting(device, "program"), f"qemu-{guest.qemu}", f"qemu-{guest.qemu}-static"]
    return next((found for name in names if name and (found := find_program(str(name)))), None)


@cache
def _version(qemu: str) -> str:
    words = ask([qemu, "--version"]).split()
    return words[words.index("version") + 1] if "version" in words[:-1] else ""


def _cpu(device: DeviceLike, qemu: str) -> str:
    """The CPU to show to the program: the profile's, or all that this qemu has where it is too old for it."""
    wanted = str(setting(device, "cpu") or "")
    known = _cpus(qemu)
    return "max" if wanted and "max" in known and wanted.split(",", maxsplit=1)[0] not in known else wanted


@cache
def _cpus(qemu: str) -> frozenset[str]:
    """Names that this qemu lists; empty if it lists none."""
    return frozenset(ask([qemu, "-cpu", "help"]).split())


def _sysroot(device: DeviceLike, guest: _Guest) -> str | None:
    """A folder with the device's dynamic loader; "" if none is needed; None if there is none."""
    if getattr(device, "libc", "") == "musl":
        return ""  # edgepack's musl programs are static
    for folder in (str(setting(device, "sysroot") or guest.sysroot), guest.sysroot, "/"):
        if (Path(folder) / guest.loader).exists():
            return "" if folder == "/" else folder
    return None

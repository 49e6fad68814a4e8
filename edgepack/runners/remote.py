"""What runners on other machines share: which files of a bundle go there, what is there already, and how its
program is run so that nothing is left running when the connection ends.

The files stay on the device, in a folder of this bundle, so that the next run copies only what has changed
(by SHA-256). All that the device needs is a POSIX shell; without ``sha256sum`` all files are copied anew.
"""

from __future__ import annotations

import difflib
import getpass
import hashlib
import os
import platform
import re
import shlex
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, Protocol

from edgepack.bundle.layout import MANIFEST
from edgepack.bundle.manifest import load_manifest
from edgepack.bundle.paths import inside
from edgepack.errors import ConfigError, ToolchainError
from edgepack.files import sha256_file
from edgepack.process import Completed
from edgepack.runners.base import DeviceLike, arch_of, setting

__all__ = ["Link", "not_written", "options", "run_there"]

#: Folders of a bundle that its program needs; the libraries and sources stay here.
_FOLDERS = ("bin", "params", "test")

#: Least number of seconds for copying, whatever a run may take: a large model over a slow line.
_COPY_SECONDS = 600.0

#: Exit codes of a shell that found a program but could not start it, or did not find it.
_NOT_STARTED = (126, 127)


class Link(Protocol):
    """A way to a device."""

    #: The device as messages name it (``pi@board``).
    name: str

    def shell(self, script: str, *, timeout: float, stdin: int | IO[bytes] | None = None) -> Completed:
        """Let the device's shell run a script.

        Args:
            script: one line.
            stdin: what it reads; default nothing.

        Raises:
            ToolchainError: there is no connection, it broke, or the time is up.
        """
        ...

    def copy(self, files: Mapping[str, Path], folder: str, *, timeout: float) -> None:
        """Write files to a folder of the device: path in it -> file of this machine.

        Raises:
            ToolchainError: not all of them could be written; with what the device said.
        """
        ...


def options(device: DeviceLike, runner: str, known: Sequence[str]) -> dict[str, Any]:
    """The runner's options in the device's profile; none if that profile names another runner.

    Raises:
        ConfigError: one that the runner does not know.
    """
    if setting(device, "name") != runner:
        return {}
    found = dict(setting(device, "options") or {})
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            raise ConfigError(
                f"{device.name}: the runner {runner} has no option {key!r}.",
                hint=(f"Did you mean {near[0]}? " if near else "") + f"It has: {', '.join(known)}.",
            )
    return found


def run_there(
    link: Link, device: DeviceLike, directory: str, argv: Sequence[str | Path], *, timeout: float, cwd: Path
) -> Completed:
    """Copy what is not there yet of the bundle ``cwd``, and run its program.

    Args:
        directory: folder of the device in which this bundle gets one.
        argv: the program first; paths, all inside of ``cwd``, are meant as the same ones on the device.
        timeout: seconds that the program may take.

    Raises:
        ToolchainError: the connection failed, the device has no room, it cannot start the program, or the
            time is up. The program is ended then.
    """
    folder = f"{directory.rstrip('/')}/{_folder_name(cwd)}"
    files = {path.relative_to(cwd).as_posix(): path for path in _needed(cwd)}
    command = [_there(part, cwd) for part in argv]
    machine, sums = _look(link, folder)
    changed = {name: path for name, path in files.items() if sums.get(name) != sha256_file(path)}
    if changed:
        link.copy(changed, folder, timeout=max(timeout, _COPY_SECONDS))
    done = _run(link, _script(folder, command, _environment(device)), timeout, Path(argv[0]).name)
    if done.returncode in _NOT_STARTED:
        raise ToolchainError(
            f"{link.name} cannot start {Path(argv[0]).name} (exit code {done.returncode}).",
            detail=done.printed,
            hint=_why_not_started(device, machine, done),
        )
    return done


def not_written(name: str, folder: str, files: Mapping[str, Path], done: Completed) -> ToolchainError:
    """The error for a device that did not take all files; ``done`` is what was to write them."""
    size = sum(path.stat().st_size for path in files.values())
    return ToolchainError(
        f"The bundle could not be written to {folder} on {name}.",
        detail=done.printed,
        hint=f"It takes {size / 1e6:.1f} MB there: make room, or name another folder in the device's file: "
        "`runner: {options: {directory: ...}}`.",
    )


def _needed(cwd: Path) -> list[Path]:
    """What the program reads, and the program; not the params where they are in it.

    Raises:
        ConfigError: a link leads out of the bundle: nothing but the bundle is copied to a device.
    """
    embedded = (cwd / MANIFEST).is_file() and load_manifest(cwd).params.mode == "embed"
    folders = [name for name in _FOLDERS if not (embedded and name == "params")]
    found = (path for name in folders for path in sorted((cwd / name).rglob("*")))
    return [inside(cwd, path.relative_to(cwd).as_posix()) for path in found if path.is_file()]


def _folder_name(cwd: Path) -> str:
    """A bundle's folder on the device: one for each bundle of each user of each machine."""
    owner = f"{platform.node()} {getpass.getuser()} {cwd}"
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", cwd.name)
    return f"{readable}-{hashlib.sha256(owner.encode()).hexdigest()[:8]}"


def _there(part: str | Path, cwd: Path) -> str:
    if not isinstance(part, Path):
        return part
    if not part.is_relative_to(cwd):
        raise ConfigError(f"{part} is not in the bundle {cwd}: it is not copied to a device.")
    return f"./{part.relative_to(cwd).as_posix()}"


def _look(link: Link, folder: str) -> tuple[str, dict[str, str]]:
    """The device's ``uname -m``, and what is in the folder: path -> SHA-256. The folder is made."""
    what = " ".join(f"{name}/*" for name in _FOLDERS)
    quoted = shlex.quote(folder)
    begin = _marker()
    script = f"mkdir -p {quoted} && cd {quoted} && uname -m && {{ sha256sum {what} 2>/dev/null; true; }}"
    done = link.shell(f"echo {begin}; {script}", timeout=60)
    if done.returncode != 0:
        raise ToolchainError(
            f"The folder {folder} cannot be made on {link.name}.",
            detail=done.printed,
            hint="Name another one in the device's file: `runner: {options: {directory: ...}}`.",
        )
    machine, *lines = done.stdout.rpartition(begin)[2].strip().splitlines() or [""]
    found = (re.match(r"([0-9a-f]{64}) [ *](.+)", line) for line in lines)
    return machine.strip(), {match[2].strip(): match[1] for match in found if match}


def _environment(device: DeviceLike) -> Mapping[str, str]:
    return setting(device, "environment") or {}


def _script(folder: str, command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Runs the command in the folder, and ends it when stdin does: on a time-out, an interrupt, a broken
    connection."""
    variables = " ".join(f"{name}={shlex.quote(value)}" for name, value in environment.items())
    call = f"{variables} {shlex.join(command)}".strip()
    return (
        f"cd {shlex.quote(folder)} && chmod +x {shlex.quote(command[0])} || exit 1; exec 3<&0; "
        f"{call} </dev/null 3<&- & p=$!; "
        "(cat <&3 >/dev/null; kill -9 $p) >/dev/null 2>&1 & w=$!; exec 3<&-; "
        "wait $p; c=$?; kill $w 2>/dev/null"
    )


def _run(link: Link, script: str, timeout: float, program: str) -> Completed:
    # The exit code is printed: not every connection hands it on, and none tells its own failure from one of
    # the program.
    begin, end = _marker(), _marker()
    reading, writing = os.pipe()
    try:
        done = link.shell(f"echo {begin}; {script}; echo; echo {end}$c", timeout=timeout, stdin=reading)
    finally:
        os.close(writing)
        os.close(reading)
    printed, found, code = done.stdout.rpartition(end)
    if not found or not code.strip().isdigit():
        raise ToolchainError(
            f"The connection to {link.name} broke while {program} ran.",
            detail=done.printed,
            hint="Is the device still on, and in the network? It has not run out of memory?",
        )
    number, printed = int(code), printed.rpartition(begin)[2].strip("\r\n")
    return Completed(128 - number if number > 128 else number, printed, done.stderr)


def _marker() -> str:
    """A word that nothing else prints: what stands before it comes from the login (a greeting in .bashrc)."""
    return f"edgepack-{uuid.uuid4().hex}:"


def _why_not_started(device: DeviceLike, machine: str, done: Completed) -> str:
    if "ermission denied" in done.stderr:
        return (
            "Its folder may be on a file system that starts no programs (noexec): name another one in the "
            "device's file, `runner: {options: {directory: ...}}`."
        )
    if machine and arch_of(machine) != device.arch and (arch_of(machine), device.arch) != ("aarch64", "arm"):
        return f"Its machine is {machine} (`uname -m`), the bundle was packed for {device.arch}."
    libc = getattr(device, "libc", "")
    return (
        f"Its C library must be {libc or 'the one that the bundle was packed for'}, with the loader that "
        + ("`readelf -l` shows for the program; a static build (musl) needs neither.")
    )

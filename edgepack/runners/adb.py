"""Runs a bundle on an Android device or emulator that adb reaches.

Which: that of ``--runner adb:SERIAL``, of ``options: {serial: ...}`` in the device's profile, of
ANDROID_SERIAL, or the only one that is attached. The files go to a folder of this bundle in
``/data/local/tmp``, the one place from which a program may be started without an app, and stay there for the
next run.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners.base import Availability, DeviceLike, setting
from edgepack.runners.job import Folder, options, parent_folder, prepare, variables
from edgepack.runners.remote import NotWrittenError, ask, run_there
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, execute
from edgepack.toolchains.ndk import ABIS, android_sdks

__all__ = ["PLACE", "REAL_SPEED", "available", "run"]

REAL_SPEED = True

#: What stands behind the colon of ``--runner adb:``.
PLACE = "SERIAL"

_OPTIONS = ("serial", "directory")
_DIRECTORY = "/data/local/tmp/edgepack"

#: Characters of what a device says that go into a sentence.
_SHOWN = 200

#: For a command that asks for something; adb's server may have to start first.
_ASK_SECONDS = 30

#: Of a device: what it runs, its model, its Android.
_PROPERTIES = ("product.cpu.abilist", "product.model", "build.version.release", "build.version.sdk")

#: By what ``adb devices`` says of a device that cannot be used: what helps.
_STATES = {
    "unauthorized": "Unlock it, and allow USB debugging from this computer in the dialog that it shows.",
    "authorizing": "Unlock it, and allow USB debugging from this computer in the dialog that it shows.",
    "offline": "It does not answer: connect it again, or restart adb (`adb kill-server`).",
    "connecting": "Wait until it has started.",
    "no permissions": "This user may not use it: its udev rules are missing "
    "(apt-get install android-sdk-platform-tools-common), or you are not in the group plugdev.",
}


@dataclass(frozen=True)
class _Attached:
    """A line of ``adb devices -l``."""

    serial: str
    state: str
    model: str

    def __str__(self) -> str:
        return f"{self.serial} ({self.model})" if self.model else self.serial


def available(device: DeviceLike) -> Availability:
    """Whether one device can be used, and has an ABI that the bundle is for."""
    wanted = ABIS.get(device.arch)
    if device.os != "android" or wanted is None:
        return Availability(False, "", "adb runs programs of Android only.")
    adb = _adb(device)
    if adb is None:
        return Availability(
            False,
            "",
            "adb was not found: apt-get install adb, or sdkmanager platform-tools, or set ANDROID_HOME.",
        )
    _directory(device), variables(device)
    try:
        link = _Link(adb, _choose(device, adb))
        asked = "; ".join(f"getprop ro.{name}" for name in _PROPERTIES)
        said, _, _ = ask(link, f"{asked}; c=0", timeout=_ASK_SECONDS)
    except ToolchainError as error:
        return Availability(False, adb, " ".join(part for part in (error.message, error.hint) if part))
    properties = [line.strip()[:_SHOWN] for line in said.splitlines()]
    abis, model, release, level = [*properties, *[""] * 4][:4]
    where = f"{model or 'a device'} ({link.name}, Android {release}, API level {level}, {abis})"
    if wanted not in abis.split(","):
        return Availability(False, where, f"{model} runs {abis}; the bundle is for {wanted}.")
    return Availability(True, where, "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Copy the bundle ``cwd`` to the device, and run its program there.

    Raises:
        ConfigError: a name that cannot be used on a device; see :func:`edgepack.runners.job.prepare`.
        ToolchainError: no device, or it went away; no room; the program cannot be started, or is not done in
            time. With what the device said.
    """
    adb = _adb(device)
    if adb is None:
        raise ToolchainError(f"adb cannot run programs of {device.name}.", hint=available(device).hint)
    # No app may write around the folder, and what adb runs is root today and the user `shell` tomorrow.
    job = prepare(device, _directory(device), argv, cwd, guarded=False)
    return run_there(_Link(adb, _choose(device, adb)), job, timeout=timeout)


def _directory(device: DeviceLike) -> str:
    directory = str(options(device, "adb", _OPTIONS).get("directory") or _DIRECTORY)
    if not directory.startswith("/"):
        raise ConfigError(
            f"{device.name}: the folder {directory[:80]!r} cannot be used on an Android device.",
            hint=f"Write an absolute path, such as {_DIRECTORY}.",
        )
    return parent_folder(device, directory)


def _adb(device: DeviceLike) -> str | None:
    named = setting(device, "program") if setting(device, "name") == "adb" else None
    tools = [str(sdk / "platform-tools" / "adb") for sdk in android_sdks(os.environ)]
    places = [str(named)] if named else ["adb", *tools]
    return next((found for place in places if (found := find_program(place))), None)


def _choose(device: DeviceLike, adb: str) -> str:
    """The serial number of the device to use. ToolchainError if there is none, or more than one."""
    chosen = options(device, "adb", _OPTIONS)
    serial = str(setting(device, "place") or chosen.get("serial") or os.environ.get("ANDROID_SERIAL") or "")
    attached = _attached(adb)
    if serial:
        found = next((one for one in attached if one.serial == serial), None)
        if found is None:
            raise ToolchainError(
                f"The Android device {serial[:_SHOWN]} is not attached; "
                f"attached: {_listed(attached) or 'none'}.",
                hint="`adb devices` lists them; one in the network is attached by `adb connect HOST:PORT`.",
            )
    else:
        found = _only(attached)
    if found.state != "device":
        raise ToolchainError(
            f"The Android device {_listed([found])} cannot be used: adb says {found.state[:_SHOWN]}.",
            hint=_STATES.get(found.state, "Start Android on it."),
        )
    return found.serial


def _only(attached: Sequence[_Attached]) -> _Attached:
    """The one that can be used, or else one that cannot."""
    usable = [one for one in attached if one.state == "device"]
    if len(usable) > 1:
        raise ToolchainError(
            f"Several Android devices are attached: {_listed(usable)}.",
            hint=f"Choose one: --runner {shlex.quote(f'adb:{usable[0].serial}')}, or set ANDROID_SERIAL.",
        )
    if not attached:
        raise ToolchainError(
            "No Android device is attached.",
            hint="Connect one by USB, with USB debugging on in its developer options, or start an emulator; "
            "`adb devices` lists them.",
        )
    return (usable or list(attached))[0]


def _listed(devices: Sequence[_Attached]) -> str:
    text = ", ".join(map(str, devices))
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def _attached(adb: str) -> list[_Attached]:
    done = execute([adb, "devices", "-l"], timeout=_ASK_SECONDS, cwd=Path.cwd(), what="adb devices")
    if done.returncode != 0:
        raise ToolchainError("adb does not work.", detail=done.printed, hint="Try: adb devices")
    _, _, lines = done.stdout.partition("List of devices attached")
    line_of = re.compile(r"(\(no serial number\)|\S+)\s+(no permissions|\S+)(.*)")
    found = (line_of.match(line) for line in lines.splitlines())
    return [
        _Attached(match[1], match[2], model[1] if (model := re.search(r"model:(\S+)", match[3])) else "")
        for match in found
        if match
    ]


class _Link:
    """adb to one device; see :class:`edgepack.runners.remote.Link`."""

    def __init__(self, adb: str, serial: str) -> None:
        self.name = serial
        self.place = f"adb {serial}"
        self.command = [adb, "-s", serial]

    def again(self) -> AbstractContextManager[_Link]:
        return nullcontext(self)

    def shell(
        self, script: str, *, timeout: float, stdin: int | IO[bytes] | None = None, what: str = "shell"
    ) -> Completed:
        # adb hands its argument to the device's shell as it is.
        what = f"The {what} on {self.name}"
        command = [*self.command, "shell", script]
        done = execute(command, timeout=timeout, cwd=Path.cwd(), what=what, stdin=stdin)
        said = re.search(r"^(?:error|adb): (.+)", done.stderr, re.MULTILINE)
        if done.returncode != 0 and said:
            raise ToolchainError(
                f"The connection to {self.name} failed: {said[1][:_SHOWN].rstrip('.')}.",
                detail=done.printed,
                hint="Is it still connected, and on? `adb devices` lists what adb sees.",
            )
        return done

    def copy(self, files: Mapping[str, Path], folder: Folder, *, timeout: float) -> None:
        groups: dict[str, list[Path]] = {}  # all paths are absolute: none is an option
        for name, path in files.items():
            groups.setdefault(f"{folder.path}/{PurePosixPath(name).parent}", []).append(path.absolute())
        self.shell("mkdir -p " + shlex.join(groups), timeout=_ASK_SECONDS)
        for group, paths in groups.items():
            command = [*self.command, "push", *map(str, paths), f"{group}/"]
            done = execute(command, timeout=timeout, cwd=Path.cwd(), what=f"adb push to {self.name}")
            if done.returncode != 0:
                raise NotWrittenError(self.name, folder, files, done)

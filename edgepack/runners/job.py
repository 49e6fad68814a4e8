"""What a program needs on another machine, and the folder that it gets there.

Names are used as they are, or refused before anything is started: no shell, and no program's options, ever
see one that they could take for something else. What the device answers names nothing: the folder's own name
is made here.
"""

from __future__ import annotations

import difflib
import getpass
import hashlib
import os
import platform
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from edgepack.bundle.layout import MANIFEST
from edgepack.bundle.manifest import load_manifest
from edgepack.bundle.paths import check_relative, inside
from edgepack.errors import ConfigError
from edgepack.runners.base import DeviceLike, setting
from edgepack.system.files import sha256_file

__all__ = ["FOLDERS", "Folder", "Job", "options", "parent_folder", "prepare", "variables"]

#: Folders of a bundle that its program needs; the libraries and sources stay here.
FOLDERS = ("bin", "params", "test")

#: Bytes of a folder's path that no system has (Linux' PATH_MAX is 4096), and characters of its name.
_LONGEST_PATH, _LONGEST_NAME = 3000, 80


@dataclass(frozen=True)
class Folder:
    """A bundle's folder on a device.

    Attributes:
        parent: where it is; from the login's home if it is relative.
        name: its name, of letters, digits and ``._-``.
        guarded: whether other users of the device may write around it: then it must belong to the login, and
            is made for it alone.
    """

    parent: str
    name: str
    guarded: bool

    @property
    def path(self) -> str:
        """The folder as messages name it."""
        return str(PurePosixPath(self.parent) / self.name)

    def made(self) -> str:
        """Script that makes it and goes there."""
        umask = "umask 077 && " if self.guarded else ""
        return f"{umask}{self._home} mkdir -p {self._quoted} && cd {self._quoted}"

    def entered(self) -> str:
        """Script that goes there, and fails where that is another folder now."""
        return f"{self._home} cd {self._quoted} && {self.checked()}"

    def removed(self) -> str:
        """Script that removes it with all that is in it, and fails where it is still there."""
        parent = shlex.quote(self.parent if self.path.startswith("/") else f"./{self.parent}")
        gone = f"[ ! -e ./{self.name} ] && [ ! -L ./{self.name} ]"
        return f"({{ {self._home} cd {parent}; }} 2>/dev/null || exit 0; rm -rf ./{self.name}; {gone})"

    def checked(self) -> str:
        """Script that fails where the current folder is not this one, or not the login's."""
        # A shell whose test knows no -O says 2.
        owned = " && { [ -O . ] || [ $? -gt 1 ]; }" if self.guarded else ""
        return f'case "$(pwd -P)" in */{self.name}) ;; *) false ;; esac{owned}'

    @property
    def _home(self) -> str:
        return "" if self.path.startswith("/") else '[ "$HOME" ] && cd "$HOME" &&'

    @property
    def _quoted(self) -> str:
        # Neither an option nor a name that cd looks for in CDPATH.
        return shlex.quote(self.path if self.path.startswith("/") else f"./{self.path}")


@dataclass(frozen=True)
class Job:
    """A bundle's program, and what a device needs to run it.

    Attributes:
        bundle: the bundle's folder on this machine.
        files: path in the folder -> file of this machine.
        sums: path in the folder -> SHA-256.
        command: the program and its arguments, to be started in the folder.
        environment: variables to set.
    """

    device: DeviceLike
    bundle: Path
    folder: Folder
    files: Mapping[str, Path]
    sums: Mapping[str, str]
    command: Sequence[str]
    environment: Mapping[str, str]

    @property
    def program(self) -> str:
        """The program's name, for messages."""
        return PurePosixPath(self.command[0]).name


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


def variables(device: DeviceLike) -> Mapping[str, str]:
    """The variables that the device's profile sets for its programs.

    Raises:
        ConfigError: a name that a shell would take for something else, or a value that no variable has.
    """
    found: Mapping[str, str] = setting(device, "environment") or {}
    for name, value in found.items():
        if not re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) or not _passable(value):
            raise ConfigError(
                f"{device.name}: the variable {name[:80]!r} cannot be set on a device.",
                hint="Its name has letters, digits and _ only, and its value no NUL.",
            )
    return found


def parent_folder(device: DeviceLike, directory: str) -> str:
    """The folder of a device in which bundles get theirs; from the login's home if it is relative.

    Raises:
        ConfigError: no path of a device is written so.
    """
    parent = "." if directory == "~" else directory.removeprefix("~/")
    if parent.startswith("~") or not _passable(parent) or len(os.fsencode(parent)) > _LONGEST_PATH:
        raise ConfigError(
            f"{device.name}: the folder {directory[:80]!r} cannot be used on a device.",
            hint="Write an absolute path, or one from the login's home; ~ and ~/ are that home.",
        )
    return parent


def prepare(
    device: DeviceLike, directory: str, argv: Sequence[str | Path], cwd: Path, *, guarded: bool
) -> Job:
    """What is to be copied for a program, and run. Nothing is started.

    Args:
        directory: folder of the device in which this bundle gets one; from the login's home if it is
            relative.
        argv: the program first; paths, all inside of the bundle ``cwd``, are meant as the same ones there.
        guarded: see :class:`Folder`.

    Raises:
        ConfigError: a name, a path, a variable or an argument that no device has, a file that is not the
            bundle's or cannot be read.
    """
    parent, environment = parent_folder(device, directory), variables(device)
    command = [_there(part, cwd) for part in argv]
    try:
        files = dict(_needed(cwd))
        sums = {name: sha256_file(path) for name, path in files.items()}
    except OSError as error:
        raise ConfigError(f"{error.filename or cwd} cannot be read: {error.strerror or error}.") from error
    return Job(
        device, cwd.resolve(), Folder(parent, _folder_name(cwd), guarded), files, sums, command, environment
    )


def _passable(text: str) -> bool:
    """Whether a text can be an argument of a program."""
    try:
        return b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:  # half of a character
        return False


def _needed(cwd: Path) -> Iterator[tuple[str, Path]]:
    """What the program reads, and the program: of a bundle what its manifest lists; not the params where they
    are in it.

    Raises:
        ConfigError: a link leads out of the bundle: nothing but the bundle is copied to a device. Or a name
            that no bundle has.
    """
    manifest = load_manifest(cwd) if (cwd / MANIFEST).is_file() else None
    listed = None if manifest is None else {file.path for file in manifest.files}
    for folder in FOLDERS:
        if manifest is not None and manifest.params.mode == "embed" and folder == "params":
            continue
        for path in sorted((cwd / folder).rglob("*")):
            name = path.relative_to(cwd).as_posix()
            if path.is_file() and (listed is None or name in listed):
                yield name, inside(cwd, _plain(cwd, name))


def _plain(cwd: Path, name: str) -> str:
    try:
        return check_relative(name)
    except ValueError:
        raise ConfigError(
            f"The bundle {cwd} has a file of a name that is not copied to a device: {name[:80]!r}.",
            hint="It is none of what edgepack packs: remove it, or pack the model again.",
        ) from None


def _folder_name(cwd: Path) -> str:
    """A bundle's folder on the device: one for each bundle of each user of each machine."""
    place = cwd.resolve()  # it may be reached by a link of this run's own
    try:
        user = getpass.getuser()
    except (ImportError, KeyError, OSError):  # a number without a name, in a container
        user = str(os.getuid()) if hasattr(os, "getuid") else ""
    owner = f"{platform.node()} {user} {place}"
    readable = re.sub(r"[^A-Za-z0-9._-]+", "_", place.name)[:_LONGEST_NAME]
    return f"{readable}-{hashlib.sha256(owner.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def _there(part: str | Path, cwd: Path) -> str:
    if not isinstance(part, Path):
        if not _passable(part):
            raise ConfigError(f"The argument {part[:80]!r} cannot be given to a program.")
        return part
    if not part.is_relative_to(cwd):
        raise ConfigError(f"{part} is not in the bundle {cwd}: it is not copied to a device.")
    return f"./{part.relative_to(cwd).as_posix()}"

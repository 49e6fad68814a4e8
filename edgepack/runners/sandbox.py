"""Runs a bundle's program, or an emulator with it, under bubblewrap: it sees the system's libraries and its
bundle, and changes nothing.

In the sandbox there are the folders of the system's programs and libraries, the bundle, what the runner
needs, all of them read-only, and an empty temporary folder; no home, no other process, no network, no
variable of the environment but those of the device's profile. What the program prints is all that leaves it.

The program is never root: the kernel lets root's number write its settings (``/proc/sys``) even where it
has no capabilities and, in a user namespace, is the root of nothing else. So root becomes another user, who
owns nothing, on one of two ways: bubblewrap makes the sandbox as root and the program starts as the other
user; or bubblewrap is started as the other user, and makes the sandbox in a user namespace.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from edgepack.errors import ToolchainError
from edgepack.runners.base import Call, host_os
from edgepack.runners.strangers import STRANGER, readable_paths
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, ask, execute, run_tool

__all__ = ["run_confined", "sandbox_name"]

_PROGRAM = "bwrap"

#: Folders and files of the system, where they are.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    "/sys/devices/system/cpu",
)
_COMMON = ("--die-with-parent", "--new-session", "--clearenv", "--cap-drop", "ALL")
_NAMESPACES = ("--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup-try")
_TEMPORARY = ("--tmpfs", "/tmp")
_VARIABLES = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8"}

_REFUSED_HINT = (
    "Run it in a virtual machine, or on a machine whose users may make user namespaces (on Ubuntu 24.04 "
    "AppArmor's profile bwrap-userns-restrict lets bubblewrap make them). A container with more rights "
    "would open its host to the program."
)


class _Way(NamedTuple):
    """How a sandbox is made.

    Attributes:
        what: for messages.
        before: the command that starts bubblewrap.
        options: bubblewrap's.
        within: the command that starts the program, in the sandbox.
        stranger: the program's user is not this one: files must be open to others.
        by_path: so is bubblewrap's, who goes to the files by their paths.
        proc: there is a ``/proc``. A container whose own is partly masked may not make another.
    """

    what: str
    before: tuple[str, ...] = ()
    options: tuple[str, ...] = ("--unshare-user", *_NAMESPACES, *_TEMPORARY)
    within: tuple[str, ...] = ()
    stranger: bool = False
    by_path: bool = False
    proc: bool = True


def sandbox_name() -> str:
    """``bubblewrap 0.8.0``.

    Raises:
        ToolchainError: it is missing, or cannot make a sandbox here.
    """
    program = _find()
    _way(program)
    return _version(program)


def run_confined(call: Call, *, timeout: float, cwd: Path) -> Completed:
    """Run a command in a sandbox whose bundle is ``cwd``.

    Args:
        call: the command.
        timeout: seconds.
        cwd: the bundle's folder, absolute.

    Raises:
        ToolchainError: there is no sandbox here, its files cannot be shown to its user, or as
            :func:`edgepack.system.process.execute`.
    """
    program = _find()
    way = _way(program)
    with _sources([*map(Path, call.reads), cwd], way) as sources:
        binds = [part for source, to in sources for part in _shown(to, "--ro-bind", source)]
        chosen = ["--chdir", str(cwd)]
        for name, value in {**_VARIABLES, **call.environment}.items():
            chosen += ["--setenv", name, value]
        command = _command(program, way, [*binds, *chosen], list(map(str, call.argv)))
        # The user of bubblewrap may not be let into the bundle's folder.
        done = execute(command, timeout=timeout, cwd=Path("/"), what=call.what)
    # A signal's number reaches bubblewrap, and becomes a shell's code.
    return Completed(128 - done.returncode, done.stdout, done.stderr) if done.returncode > 128 else done


@contextmanager
def _sources(paths: list[Path], way: _Way) -> Iterator[list[tuple[Path, Path]]]:
    """What is shown at each path: it itself, or a copy that the sandbox's user can read."""
    found = [path.resolve() for path in paths]
    if not way.stranger:
        yield list(zip(found, paths, strict=True))
        return
    with readable_paths(found, by_path=way.by_path) as readable:
        yield list(zip(readable, paths, strict=True))


def _command(program: str, way: _Way, options: list[str], argv: list[str]) -> list[str]:
    """bubblewrap with the system's folders, ``options`` and the command ``argv`` in it."""
    command = [*way.before, program, *_COMMON, *way.options, "--dev", "/dev"]
    if way.proc:
        command += ["--proc", "/proc"]
    for path in map(Path, _SYSTEM):
        command += _shown(path, "--ro-bind-try", path)
    # /proc and /dev are mounts of their own, with folders and files of the kernel's.
    closed = (*(["/proc"] if way.proc else []), "/dev", "/")
    return [
        *command,
        *options,
        *(part for path in closed for part in ("--remount-ro", path)),
        *("--", *way.within, *argv),
    ]


def _shown(to: Path, option: str, source: Path) -> list[str]:
    """A mount. bubblewrap itself lets nobody but its user into the folders that it makes around it."""
    around = [part for folder in reversed(to.parents[:-1]) for part in ("--dir", str(folder))]
    return [*around, option, str(source), str(to)]


def _find() -> str:
    program = find_program(_PROGRAM)
    if program is None:
        here = "it is for Linux only." if host_os() != "linux" else "apt-get install bubblewrap."
        raise ToolchainError(
            "A sandbox needs bubblewrap (bwrap), which was not found.", hint=f"Get it: {here}"
        )
    return program


@cache
def _way(program: str) -> _Way:
    """The first way on which bubblewrap can make the sandbox. ToolchainError if there is none."""
    said = []
    for kind in _ways():
        for way in (kind, kind._replace(proc=False)):
            done = run_tool(_command(program, way, [], ["true"]), timeout=20, cwd=Path("/"))
            if done.returncode == 0:
                return way
            said.append(
                f"{way.what}{'' if way.proc else ', without /proc'}: "
                f"{done.stdout.strip() or f'exit code {done.returncode}'}"
            )
    if not said:
        raise ToolchainError(
            "A sandbox of root's needs setpriv, which was not found.",
            hint="Get it (apt-get install util-linux, apk add setpriv), or run edgepack as another user.",
        )
    raise ToolchainError("bubblewrap cannot make a sandbox here.", detail="\n".join(said), hint=_REFUSED_HINT)


def _ways() -> list[_Way]:
    """The ways on which this user's program would not be the kernel's root."""
    root, setpriv = os.geteuid() == 0, find_program("setpriv")
    ways = []
    if root and setpriv:
        user = (f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups")
        change = (setpriv, *user, "--inh-caps=-all", "--ambient-caps=-all")
        ways += [
            _Way(
                "as root, whose program becomes another user",
                options=(
                    *("--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID", *_NAMESPACES),
                    # The folder is root's, and its user another.
                    *("--perms", "1777", *_TEMPORARY),
                ),
                within=(*change, "--no-new-privs", "--"),
                stranger=True,
            ),
            _Way(
                "as another user than root, in a user namespace",
                before=(*change, "--"),
                stranger=True,
                by_path=True,
            ),
        ]
    if not _is_the_kernels_root():
        ways.append(_Way("as this user, in a user namespace"))
    return ways


def _is_the_kernels_root() -> bool:
    """Whether this user owns the kernel's settings, whatever number it has in this user namespace; also true
    where that cannot be seen."""
    try:
        return Path("/proc/sys/kernel").stat().st_uid == os.geteuid()
    except OSError:
        return True


@cache
def _version(program: str) -> str:
    return ask([program, "--version"]).strip() or "bubblewrap"

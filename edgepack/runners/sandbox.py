"""Runs a bundle's program, or an emulator with it, under bubblewrap: it sees the system's libraries and its
bundle, and changes nothing.

In the sandbox there are the folders of the system's programs and libraries, the bundle, what the runner
needs, all of them read-only, and an empty temporary folder; no home, no other process, no network, no
variable of the environment but those of the device's profile. What the program prints is all that leaves it.
"""

from __future__ import annotations

import shutil
from functools import cache
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.process import Completed, ask, execute, run_tool
from edgepack.runners.base import Call, host_os

__all__ = ["run_confined", "sandbox_name"]

_PROGRAM = "bwrap"

#: Folders and files of the system, where they are.
_SYSTEM = (
    *("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store"),
    *("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives"),
    "/sys/devices/system/cpu",
)
_ISOLATION = ("--unshare-all", "--die-with-parent", "--new-session", "--cap-drop", "ALL")
_VARIABLES = {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "TMPDIR": "/tmp", "LC_ALL": "C.UTF-8"}


def sandbox_name() -> str:
    """``bubblewrap 0.8.0``.

    Raises:
        ToolchainError: it is missing, or cannot make a sandbox here.
    """
    program = _find()
    if said := _refusal(program):
        raise ToolchainError(
            "bubblewrap cannot make a sandbox here.",
            detail=said,
            hint="It needs user namespaces: start a container with --security-opt seccomp=unconfined and "
            "--security-opt systempaths=unconfined; on Ubuntu 24.04, see bwrap-userns-restrict of AppArmor.",
        )
    return _version(program)


def run_confined(call: Call, *, timeout: float, cwd: Path) -> Completed:
    """Run a command in a sandbox whose bundle is ``cwd``. Errors as in :func:`edgepack.process.execute`."""
    command = [_find(), *_ISOLATION, "--clearenv"]
    for name, value in {**_VARIABLES, **call.environment}.items():
        command += ["--setenv", name, value]
    command += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"]
    for path in _SYSTEM:
        command += ["--ro-bind-try", path, path]
    for path in (*map(str, call.reads), str(cwd)):
        command += ["--ro-bind", str(Path(path).resolve()), path]
    command += ["--remount-ro", "/", "--chdir", str(cwd), "--", *map(str, call.argv)]
    done = execute(command, timeout=timeout, cwd=cwd, what=call.what)
    # A signal's number reaches bubblewrap, and becomes a shell's code.
    return Completed(128 - done.returncode, done.stdout, done.stderr) if done.returncode > 128 else done


def _find() -> str:
    program = shutil.which(_PROGRAM)
    if program is None:
        here = "it is for Linux only." if host_os() != "linux" else "apt-get install bubblewrap."
        raise ToolchainError(
            "A sandbox needs bubblewrap (bwrap), which was not found.", hint=f"Get it: {here}"
        )
    return program


@cache
def _refusal(program: str) -> str:
    """What bubblewrap says if it cannot make the sandbox; "" if it can."""
    mounts = ("--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--ro-bind", "/usr", "/usr")
    links = [part for path in _SYSTEM for part in ("--ro-bind-try", path, path)]
    done = run_tool([program, *_ISOLATION, *mounts, *links, "--", "true"], timeout=20)
    return "" if done.returncode == 0 else done.stdout or f"exit code {done.returncode}"


@cache
def _version(program: str) -> str:
    return ask([program, "--version"]).strip() or "bubblewrap"

"""Runs a WebAssembly program in wasmtime: its executable if there is one, else the Python package.

wasmtime compiles with Cranelift, not with a browser's compiler: its times are those of a server, or of a
program that has wasmtime in it.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.runners.base import Availability, DeviceLike, setting
from edgepack.runners.node import sandboxed
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, ask, execute

__all__ = ["REAL_SPEED", "available", "run"]

#: WebAssembly has no CPU of its own: this machine's is as real as any.
REAL_SPEED = True

_SCRIPT = Path(__file__).with_name("wasmtime_wasi.py")


def available(device: DeviceLike) -> Availability:
    """Whether wasmtime is here."""
    if device.os != "wasi":
        return Availability(False, "", f"wasmtime runs WASI programs, and {device.name} has {device.os}.")
    if executable := _find_executable(device):
        return Availability(True, f"{executable} {_version(executable)}".rstrip(), "")
    if importlib.util.find_spec("wasmtime") is not None:
        return Availability(True, f"the Python package wasmtime {version('wasmtime')}", "")
    return Availability(False, "", "wasmtime was not found: python -m pip install wasmtime.")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the program; it sees the files in ``cwd`` and no others.

    Raises:
        ToolchainError: wasmtime is missing, or the time is up.
    """
    ok, _, hint = available(device)
    if not ok:
        raise ToolchainError(f"wasmtime cannot run programs of {device.name} here.", hint=hint)
    program, arguments = Path(cwd, argv[0]), sandboxed(argv, cwd)
    if executable := _find_executable(device):
        # HOST::GUEST is split at the first `::`, which the folder's own path may have.
        command: list[str | Path] = [executable, "run", "--dir", ".::.", "--argv0", arguments[0]]
        command += [program, *arguments[1:]]
    else:
        command = [sys.executable, _SCRIPT, program, cwd, *arguments]
    environment = setting(device, "environment") or {}
    what = f"{Path(argv[0]).name} in wasmtime"
    return execute(command, timeout=timeout, cwd=cwd, env=environment, what=what)


def _find_executable(device: DeviceLike) -> str | None:
    # The profile's `program` may be node's.
    named = setting(device, "program") if setting(device, "name") == "wasmtime" else None
    return next((found for name in (named, "wasmtime") if name and (found := find_program(str(name)))), None)


@cache
def _version(executable: str) -> str:
    words = ask([executable, "--version"]).split()
    return words[1] if len(words) > 1 else ""

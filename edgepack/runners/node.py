"""Runs a WebAssembly program in node, by its WASI.

node's engine is V8, the one of Chrome: its times are what this machine's own CPU gives a page. The first runs
are slower, for V8 begins with code of its quick compiler; `bench` warms up.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.runners.base import Availability, Call, DeviceLike, setting
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, ask, execute

__all__ = ["REAL_SPEED", "available", "call", "run", "sandboxed"]

#: WebAssembly has no CPU of its own: this machine's is as real as any.
REAL_SPEED = True

_SCRIPT = Path(__file__).with_name("node_wasi.mjs")
#: The first version with the WASI that the script uses.
_OLDEST = 18
#: What versions want to hear before they do what the next ones do anyway: WASI, relaxed SIMD.
_FLAGS = {
    **dict.fromkeys((18, 19), ("--experimental-wasi-unstable-preview1",)),
    20: ("--experimental-wasm-relaxed-simd",),
}


def available(device: DeviceLike) -> Availability:
    """Whether there is a node that is new enough."""
    if device.os not in {"wasi", "emscripten"}:
        return Availability(False, "", f"node runs WebAssembly, and {device.name} has {device.os}.")
    node = _find_node(device)
    if node is None:
        return Availability(
            False,
            "",
            f"node was not found: install node {_OLDEST} or newer (nodejs.org, or apt-get install nodejs).",
        )
    version = _version(node)
    oldest = int((setting(device, "options") or {}).get("oldest", _OLDEST))
    if _major(version) < oldest:
        hint = f"{device.name} needs node {oldest} or newer (nodejs.org)."
        return Availability(False, f"{node} {version}".rstrip(), hint)
    return Availability(True, f"{node} {version}", "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the program; it sees the files in ``cwd`` and no others.

    Raises:
        ToolchainError: node is missing, or the time is up.
    """
    argv, environment, what, _ = call(device, argv, cwd=cwd)
    return execute(argv, timeout=timeout, cwd=cwd, env=environment, what=what)


def call(device: DeviceLike, argv: Sequence[str | Path], *, cwd: Path) -> Call:
    """node with the program. ToolchainError if it is missing."""
    ok, _, hint = available(device)
    if not ok:
        raise ToolchainError(f"node cannot run programs of {device.name} here.", hint=hint)
    node = str(_find_node(device))
    command: list[str | Path] = [node, "--no-warnings"]
    command += _FLAGS.get(_major(_version(node)), ())
    what, environment = f"{Path(argv[0]).name} in node", setting(device, "environment") or {}
    if device.os == "emscripten":
        program = Path(cwd, argv[0]).with_suffix(".cjs")
        command += [program, *argv[1:]]
        return Call(command, environment, what, [node])
    command += [_SCRIPT, Path(cwd, argv[0]), cwd]
    return Call([*command, *sandboxed(argv, cwd)], environment, what, [node, _SCRIPT])


def sandboxed(argv: Sequence[str | Path], folder: Path) -> list[str]:
    """The arguments for a program whose current folder is ``folder``: paths in it become relative."""
    return [
        part.relative_to(folder).as_posix()
        if isinstance(part, Path) and part.is_relative_to(folder)
        else str(part)
        for part in argv
    ]


def _find_node(device: DeviceLike) -> str | None:
    names = [setting(device, "program"), "node", "nodejs"]
    return next((found for name in names if name and (found := find_program(str(name)))), None)


def _major(version: str) -> int:
    """20 for ``v20.11.1``; 0 for what is no version."""
    first = version.lstrip("v").split(".")[0]
    return int(first) if first.isdigit() else 0


@cache
def _version(node: str) -> str:
    """``v20.11.1``, or "" if it does not say so."""
    return ask([node, "--version"]).strip()

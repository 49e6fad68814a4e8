"""Runs another program: no shell, a time limit, nothing left behind, and what it printed in every error."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from edgepack.errors import ToolchainError

__all__ = ["Completed", "end_with_parent", "execute", "kill_group", "printed", "signal_name"]


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


def execute(
    argv: Sequence[str | Path],
    *,
    timeout: float,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    what: str = "",
    stdin: int | IO[bytes] | None = None,
) -> Completed:
    """Run a command in its own process group; on a time-out or an interrupt all of it is ended.

    Args:
        argv: the command; nothing is interpreted by a shell.
        timeout: seconds.
        cwd: working directory.
        env: variables to set besides this process's.
        what: what is run, for messages; default the program's name.
        stdin: what it reads, a file or its descriptor; default nothing.

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
            stdin=subprocess.DEVNULL if stdin is None else stdin,
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
        stdout, stderr = _rest(process)
        raise ToolchainError(
            f"{what} did not end within {timeout:g} s.",
            hint="Give more time with --timeout, or look for what blocks it.",
            detail=printed(stdout, stderr),
        ) from error
    except BaseException:
        kill_group(process)
        _rest(process)
        raise
    return Completed(process.returncode, stdout, stderr)


def _rest(process: subprocess.Popen[str], patience: float = 5) -> tuple[str, str]:
    """What a process that was ended has printed. Others may hold its streams open (ssh's shared connection):
    they are not waited for much longer."""
    try:
        return process.communicate(timeout=patience)
    except subprocess.TimeoutExpired as late:
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        return _text(late.stdout), _text(late.stderr)


def _text(printed: str | bytes | None) -> str:
    return printed.decode("utf-8", errors="replace") if isinstance(printed, bytes) else printed or ""


def end_with_parent(interval: float = 0.5) -> None:
    """End this process soon after its parent has ended, however that was: nobody waits for its work any more.

    On Windows a process does not learn of that, and runs to its end.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(interval)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="edgepack-parent").start()


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

"""Runs a compiler: no shell, a time limit, and an error that shows the command and what it said."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgepack.errors import ToolchainError

__all__ = ["Finished", "beside", "run", "run_checked", "show_command"]

#: Characters of a tool's output that an error shows: its start (the first error) and its end.
_SHOWN = 6000


@dataclass(frozen=True)
class Finished:
    """A command that ran to its end; ``output`` is stdout and stderr together."""

    command: tuple[str, ...]
    returncode: int
    output: str


def _start(
    command: Sequence[str], cwd: Path | None, env: Mapping[str, str] | None, output: int
) -> subprocess.Popen[bytes]:
    """Starts a command with nothing on stdin; what it prints goes to ``output``."""
    return subprocess.Popen(
        list(command),
        cwd=cwd,
        env=dict(env) if env is not None else None,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=subprocess.STDOUT,
        # A session of its own, so that a driver's children can be ended with it (no effect on Windows).
        start_new_session=True,
    )


def run(
    command: Sequence[str], *, timeout: int, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Finished:
    """Run a command with nothing on stdin.

    Raises ToolchainError if it cannot be started, or takes longer than ``timeout`` seconds; it and what it
    started are then ended.
    """
    try:
        process = _start(command, cwd, env, subprocess.PIPE)
    except OSError as error:
        raise ToolchainError(
            f"{command[0]} cannot be started: {error.strerror}", detail=show_command(command)
        ) from None
    try:
        output, _ = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        _end(process)
        raise ToolchainError(
            f"{Path(command[0]).name} did not finish within {timeout} s",
            detail=show_command(command),
            hint="Raise `timeout:` in the toolchain's file if the machine is slow.",
        ) from None
    except BaseException:
        _end(process)
        raise
    return Finished(tuple(command), process.returncode, output.decode("utf-8", errors="replace"))


def run_checked(
    command: Sequence[str],
    *,
    what: str,
    timeout: int,
    hint: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """As :func:`run`, and ToolchainError unless it returns 0. ``what`` is the task, for the message."""
    done = run(command, timeout=timeout, cwd=cwd, env=env)
    if done.returncode != 0:
        code = done.returncode
        ended = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        raise ToolchainError(
            f"{what} failed ({ended})",
            detail=f"$ {show_command(command)}\n{_shorten(done.output.strip())}",
            hint=hint,
        )
    return done.output


@contextlib.contextmanager
def beside(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[None]:
    """Run a command, of which only what it leaves in a cache is wanted, while the body runs.

    It is ended with the body. What it prints, and whether it fails, is nobody's business: whoever needs what
    it would have made will try, and say why it cannot.
    """
    try:
        process = _start(command, cwd, env, subprocess.DEVNULL)
    except OSError:
        yield
        return
    try:
        yield
    finally:
        _end(process)


def show_command(command: Sequence[str]) -> str:
    """A command as it can be pasted into a shell."""
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def _shorten(text: str) -> str:
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n... ({len(text) - _SHOWN} characters left out) ...\n{text[-half:]}"


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and, where the system has groups, those that it started."""
    if hasattr(os, "killpg"):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
    process.communicate()

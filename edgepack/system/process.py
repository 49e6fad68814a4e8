"""Runs other programs: no shell, a time limit, nothing left running, and errors that show what was run.

By what is wanted of the program:

- :func:`execute` runs a bundle's program for a runner: any exit code is a result, its two streams stay
  apart;
- :func:`run_tool` and :func:`run_checked` run a compiler, a linker, an archiver: its two streams are one
  text, in the order in which they were printed;
- :func:`background` runs a tool for what it leaves in a cache;
- :func:`ask` asks a tool for its version or its abilities;
- :func:`start` starts a program that the caller talks to (a browser, an ssh connection);
- :func:`side_by_side` runs several at once.

Whatever waits for a program wakes up each ``deadline.TICK`` seconds, so that the time of the whole work
(``deadline.time_limit``) and exceptions from outside end it. What a killed edgepack started is ended by
``guardian.py``.
"""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TypeVar

from edgepack.errors import ToolchainError
from edgepack.system import guardian
from edgepack.system.command_text import printed, shorten, show_command, tool_name
from edgepack.system.deadline import TICK, OutOfTimeError, time_left
from edgepack.system.disk_errors import blamed
from edgepack.system.paths import find_program
from edgepack.system.refusals import exhausted
from edgepack.system.streams import Output

__all__ = [
    "Completed",
    "ask",
    "background",
    "ends_with_siblings",
    "execute",
    "kill_group",
    "run_checked",
    "run_tool",
    "side_by_side",
    "start",
]


#: Bytes that a program may print: more would fill the memory.
_MOST_PRINTED = 64 << 20

#: Seconds that is waited for what a program printed that was ended.
_PATIENCE = 5.0

_A = TypeVar("_A")
_R = TypeVar("_R")


@dataclass(frozen=True)
class Completed:
    """A program that ended.

    Attributes:
        returncode: its exit code; negative where a signal ended it.
        stdout: what it printed there, and on stderr too where it ran as a tool.
        stderr: what it printed there.
    """

    returncode: int
    stdout: str
    stderr: str = ""

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
        ToolchainError: it cannot be started, ran out of time (with what it printed), or prints without end.
    """
    command = [str(part) for part in argv]
    what = what or Path(command[0]).name
    variables = {**os.environ, **(env or {})}
    try:
        done, in_time = _communicate(
            lambda: start(command, cwd=cwd, env=variables, stdin=stdin), timeout, what
        )
    except OSError as error:
        raise exhausted(error) or ToolchainError(
            f"{what} cannot be started: {error.strerror or error}.", detail=" ".join(command)
        ) from error
    if not in_time:
        raise ToolchainError(
            f"{what} did not end within {timeout:g} s.",
            hint="Give more time with --timeout, or look for what blocks it.",
            detail=done.printed,
        )
    return done


def run_tool(
    command: Sequence[str], *, timeout: float, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Completed:
    """Run a tool with nothing on stdin; its stdout and stderr together are the result's ``stdout``.

    Args:
        command: the tool and its arguments.
        timeout: seconds; after them it and what it started are ended.
        cwd: working directory; default this process's.
        env: all of its environment; default this process's.

    Raises:
        ToolchainError: it cannot be started, or ran out of time.
    """
    try:
        done, in_time = _communicate(
            lambda: start(command, cwd=cwd, env=env, stderr=subprocess.STDOUT), timeout, tool_name(command)
        )
    except OSError as error:
        raise exhausted(error) or ToolchainError(
            f"{command[0]} cannot be started: {error.strerror}", detail=show_command(command)
        ) from None
    if not in_time:
        raise ToolchainError(
            f"{tool_name(command)} did not end within {timeout:g} s, and was ended.",
            detail=f"$ {show_command(command)}\n{shorten(done.stdout.strip())}".rstrip(),
            hint="Try the command by itself; on a slow machine raise `timeout:` in the toolchain's file.",
        )
    return done


def run_checked(
    command: Sequence[str],
    *,
    what: str,
    timeout: float,
    hint: str = "",
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
) -> str:
    """Run a tool as :func:`run_tool` does, and return what it printed.

    Args:
        what: the task, for the message.
        hint: what to try if it fails.

    Raises:
        ToolchainError: as :func:`run_tool`, and for an exit code that is not 0, with the command and what it
            printed.
        ConfigError: it failed because a folder cannot be written to (``disk_errors.writing_to``).
    """
    done = run_tool(command, timeout=timeout, cwd=cwd, env=env)
    if done.returncode != 0:
        code = done.returncode
        if (refused := blamed(done.stdout, code)) is not None:
            raise refused
        ended = f"exit code {code}" if code > 0 else f"ended by signal {-code}"
        raise ToolchainError(
            f"{what} failed ({ended})",
            detail=f"$ {show_command(command)}\n{shorten(done.stdout.strip())}",
            hint=hint,
        )
    return done.stdout


@contextmanager
def background(
    command: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[Callable[[], bool]]:
    """Run a command, of which only what it leaves in a cache is wanted, while the body of the ``with`` runs;
    what the body is given says whether it still does.

    It is ended with the body. What it prints, and whether it fails, does not matter: whoever needs what it
    would have made will try, and say why it cannot. Arguments are those of :func:`run_tool`.
    """
    try:
        process = start(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.STDOUT)
    except OSError:
        yield lambda: False
        return
    try:
        yield lambda: process.poll() is None
    finally:
        kill_group(process)
        process.wait()


def ask(command: Sequence[str], *, timeout: float = 20) -> str:
    """What a program prints on stdout (its version, what it can do), whatever its exit code; "" if it cannot
    be started or takes longer than ``timeout`` seconds."""
    try:
        done, in_time = _communicate(lambda: start(command, stderr=subprocess.DEVNULL), timeout, command[0])
    except (OSError, ToolchainError):
        return ""
    return done.stdout if in_time else ""


def start(
    command: Sequence[str],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] = subprocess.PIPE,
    stderr: int | IO[bytes] = subprocess.PIPE,
) -> subprocess.Popen[bytes]:
    """Start a program in a session of its own, so that :func:`kill_group` ends its children too (not on
    Windows). ``stdin``: default nothing; ``env``: all of its environment, in whose ``PATH`` the program is
    looked for as :func:`edgepack.system.paths.find_program` does. Raises OSError."""
    variables = dict(os.environ if env is None else env)
    process = guardian.Process(
        [_found(command[0], variables), *command[1:]],
        cwd=cwd,
        env=variables,
        stdin=subprocess.DEVNULL if stdin is None else stdin,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
    )
    ends_with_siblings(process)
    return process


def ends_with_siblings(process: subprocess.Popen[bytes]) -> None:
    """In a thread of :func:`side_by_side`: what ends the others ends this process too, which ``start`` has
    started, perhaps long before."""
    if (siblings := _siblings.get()) is not None:
        siblings.add(process)


def _found(program: str, variables: Mapping[str, str]) -> str:
    """A program's path; Windows itself would look for a name in the current folder."""
    found = program if os.path.split(program)[0] else find_program(program, variables.get("PATH"))
    if found is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), program)
    return found


class _Siblings:
    """What the threads of one :func:`side_by_side` have started."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._processes: list[subprocess.Popen[bytes]] = []
        self._over = False

    def add(self, process: subprocess.Popen[bytes]) -> None:
        with self._lock:
            self._processes.append(process)
            if not self._over:
                return
        kill_group(process)

    def end(self) -> None:
        with self._lock:
            self._over = True
            running = [process for process in self._processes if process.returncode is None]
        for process in running:
            kill_group(process)


_siblings: ContextVar[_Siblings | None] = ContextVar("edgepack_siblings", default=None)


def side_by_side(function: Callable[[_A], _R], items: Iterable[_A]) -> list[_R]:
    """``function`` of each item, in as many threads as there are CPUs. The first exception, or one that comes
    from outside (Ctrl-C), ends what the others run."""
    siblings = _Siblings()
    pool = ThreadPoolExecutor(max_workers=os.cpu_count() or 1)
    token = _siblings.set(siblings)
    try:
        futures = [pool.submit(copy_context().run, function, item) for item in items]
        while True:
            done, waiting = wait(futures, timeout=TICK, return_when=FIRST_EXCEPTION)
            for future in done:
                future.result()
            if not waiting:
                return [future.result() for future in futures]
    except BaseException:
        siblings.end()
        raise
    finally:
        _siblings.reset(token)
        pool.shutdown(cancel_futures=True)


def _communicate(
    begin: Callable[[], subprocess.Popen[bytes]], timeout: float, what: str
) -> tuple[Completed, bool]:
    """What the process that ``begin`` starts printed until it ended, and whether it ended by itself within
    ``timeout`` seconds.

    Else, and if an exception (an interrupt) comes, it is ended with what it started. OutOfTimeError: the time
    of the whole work is over. ToolchainError: it prints more than may be. OSError: it cannot be started.
    """
    end, in_time = time.monotonic() + timeout, True
    process: subprocess.Popen[bytes] | None = None
    output: Output | None = None
    try:
        process = begin()
        output = Output(process, _MOST_PRINTED)
        while not output.wait(max(0.0, min(end - time.monotonic(), time_left(), TICK))):
            if time_left() <= 0:
                raise OutOfTimeError
            if time.monotonic() >= end:
                in_time = False
                kill_group(process)
                # Others may hold its streams open (ssh's shared connection): they are not waited for longer.
                output.wait(_PATIENCE)
                break
        if output.too_much:
            raise ToolchainError(f"{what} printed more than {_MOST_PRINTED >> 20} MiB, and was ended.")
    except BaseException:
        if process is not None:
            kill_group(process)
            process.wait()
        if output is not None and not output.too_much:
            output.wait(_PATIENCE)
        raise
    return Completed(process.wait(), _text(output.stdout), _text(output.stderr)), in_time


def _text(data: bytes | bytearray) -> str:
    """Text with the line ends of this machine's Python, whatever those of the program are."""
    return data.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a process and, where the system has process groups and it leads one, all that it started."""
    killpg: Callable[[int, int], None] | None = getattr(os, "killpg", None)
    with suppress(ProcessLookupError, PermissionError):
        if killpg is not None:
            killpg(process.pid, signal.SIGKILL)
    with suppress(OSError):
        process.kill()

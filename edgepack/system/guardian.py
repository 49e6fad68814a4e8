"""Ends what this process started, even if it is killed and can do nothing itself any more.

The first program that is started gets a guardian beside it: a small process in a session of its own, told of
each program that starts and ends through a pipe, whose other end only this process holds. When the pipe
breaks or the parent is another one, this process has ended, and the guardian kills the process groups of what
it has not seen end. On Linux it also looks for a program that was started and not told of any more, by a
variable in its environment. Windows has no process groups: there is no guardian.

The guardian is this file, run as a script: it imports nothing but a part of the standard library.
"""

from __future__ import annotations

import atexit
import os
import select
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import Any

__all__ = ["MARK", "Process", "end_with_parent"]

#: Variable in a started program's environment: the guardian's token and the program's number.
MARK = "EDGEPACK_STARTED"

#: Seconds between two looks for the parent.
_INTERVAL = 0.5

#: The parent ends as it should: there is nothing to look for beyond what it told.
_BYE = "."


class _Guardian:
    """This process's side of it; a forked child has one of its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.token = os.urandom(8).hex()
        self.count = 0
        self.process: subprocess.Popen[bytes] | None = None
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-I", "-S", __file__, self.token, str(self.pid)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=os.sep,
                env={name: value for name, value in os.environ.items() if name != MARK},
                start_new_session=True,
                bufsize=0,
            )
        except OSError:
            return  # too many processes: what this one starts will say so
        atexit.register(self.close)

    def tell(self, line: str) -> None:
        if self.process is not None and self.process.stdin is not None:
            with suppress(OSError, ValueError):  # somebody ended it
                self.process.stdin.write(line.encode() + b"\n")

    def close(self) -> None:
        if self.process is None or self.process.stdin is None or self.pid != os.getpid():
            return
        self.tell(_BYE)
        self.process.stdin.close()
        try:
            self.process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.process.kill()


class Process(subprocess.Popen[bytes]):
    """A subprocess.Popen with an environment (``env``), known to the guardian as long as it runs.

    An exception from outside (Ctrl-C) that comes before whoever starts it knows it ends it.
    """

    def __init__(self, command: list[str], *, env: dict[str, str], **options: Any) -> None:
        self._mark = _new_mark()
        if self._mark:
            env = {**env, MARK: self._mark}
        try:
            super().__init__(command, env=env, **options)
            if self._mark:
                _tell(f"+ {self._mark} {self.pid}")
        except BaseException:
            if getattr(self, "pid", None) is not None and self.returncode is None:
                _kill(self.pid)
                self.wait()
            raise

    def poll(self) -> int | None:
        """The exit code; None while it runs."""
        return self._told(super().poll())

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises TimeoutExpired."""
        code = super().wait(timeout)
        self._told(code)
        return code

    def _told(self, code: int | None) -> int | None:
        if code is not None and self._mark:
            _tell(f"- {self._mark}")
            self._mark = ""
        return code


_lock = threading.RLock()
#: This process's, under the name "guardian".
_current: dict[str, _Guardian] = {}


def _new_mark() -> str:
    """The mark of what is to be started; the guardian is there when it returns. "" where there is none."""
    if os.name != "posix" or not sys.executable:
        return ""
    with _lock:
        if "guardian" not in _current or _current["guardian"].pid != os.getpid():
            _current["guardian"] = _Guardian()
        _current["guardian"].count += 1
        return f"{_current['guardian'].token}-{_current['guardian'].count}"


def _tell(line: str) -> None:
    with _lock:
        if (guardian := _current.get("guardian")) is not None and guardian.pid == os.getpid():
            guardian.tell(line)


def _forget_after_fork() -> None:
    _lock.release()
    guardian = _current.pop("guardian", None)
    if guardian is not None and guardian.process is not None and guardian.process.stdin is not None:
        guardian.process.stdin.close()  # else the parent's guardian does not see it end


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_forget_after_fork
    )


def end_with_parent() -> None:
    """End this process soon after its parent has ended, however that was: nobody waits for its work any more.

    The parent is looked for twice a second. On Windows a process does not learn of its parent's end, and runs
    to its own.
    """
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_INTERVAL)
        os._exit(1)

    threading.Thread(target=watch, daemon=True, name="edgepack-parent").start()


def _guard(token: str, parent: int) -> None:
    """What the guardian does: listen until the parent has ended, then kill."""
    running: dict[str, int] = {}
    over: set[str] = set()
    rest, bye = b"", False
    while not bye:
        if select.select([0], [], [], _INTERVAL)[0]:
            if not (data := os.read(0, 65536)):
                break
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                sign, *words = line.decode().split()
                bye |= sign == _BYE
                if sign == "+":
                    running[words[0]] = int(words[1])
                elif sign == "-":
                    running.pop(words[0], None)
                    over.add(words[0])
        elif os.getppid() != parent:  # another process holds the pipe's end
            break
    for group in running.values():
        _kill(group)
    # One that was just being started has its environment only a moment later; where the parent said goodbye,
    # an interrupt may have come between the start of a process and its note.
    for _ in range(1 if bye else 5):
        for pid, marked in _marked(token):
            if marked not in over:
                _kill(pid)
        time.sleep(0.1)


def _kill(pid: int) -> None:
    """End a process and its group, if it leads one."""
    for kill in (os.killpg, os.kill):
        with suppress(OSError):
            kill(pid, signal.SIGKILL)


def _marked(token: str) -> list[tuple[int, str]]:
    """The processes whose environment has a mark of this token, and their marks; none where there is no
    ``/proc``."""
    found = []
    wanted = f"{MARK}={token}-".encode()
    for name in os.listdir("/proc") if os.path.isdir("/proc/self") else []:
        if name.isdecimal():
            with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
                ours = [one for one in file.read().split(b"\0") if one.startswith(wanted)]
                found += [(int(name), one[len(MARK) + 1 :].decode()) for one in ours]
    return found


if __name__ == "__main__":
    _guard(sys.argv[1], int(sys.argv[2]))

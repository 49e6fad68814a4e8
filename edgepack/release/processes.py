"""Runs calls in processes of this machine: an executor as ``concurrent.futures`` has them.

Each call has a process of its own, so that one that crashes or is killed takes nothing with it, and no module
of the caller's is imported again, as ``multiprocessing`` would. What is called is a function of a module that
can be imported; it, its arguments and its result are pickled.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from edgepack.errors import ConfigError, InternalError
from edgepack.resources import PACKAGE
from edgepack.system.command_text import signal_name
from edgepack.system.deadline import TICK
from edgepack.system.process import kill_group, start
from edgepack.system.temporary import temporary_folder

__all__ = ["CALL", "RESULT", "ProcessExecutor", "do_call", "job_command", "open_executor"]

#: Files of a call's folder.
CALL, RESULT, _NOISE = "call", "result", "noise"
#: Seconds that a process has to end by itself.
_GRACE = 0.6

_P = ParamSpec("_P")
_R = TypeVar("_R")


def job_command() -> list[str]:
    """The child's command line, before the folder of its call. It imports nothing from the working
    folder."""
    root = str(PACKAGE.parent)
    text = f"import sys; sys.path[0] = {root!r}; from edgepack.cli.job import main; sys.exit(main())"
    return [sys.executable, "-c", text]


def do_call(folder: Path) -> None:
    """What the child does: the call that lies in the folder."""
    function, arguments, keywords = pickle.loads((folder / CALL).read_bytes())
    result = pickle.dumps(function(*arguments, **keywords))
    (folder / f"{RESULT}.new").write_bytes(result)
    (folder / f"{RESULT}.new").replace(folder / RESULT)


class ProcessExecutor(Executor):
    """Runs at most ``jobs`` processes at once. Left by an exception, a ``with`` statement ends them."""

    def __init__(self, jobs: int) -> None:
        self._threads = ThreadPoolExecutor(max_workers=jobs, thread_name_prefix="edgepack-job")
        self._stopping = threading.Event()

    def submit(self, fn: Callable[_P, _R], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_R]:
        """Call ``fn`` in a process. The future raises InternalError where that ends without a result."""
        return self._threads.submit(self._call, pickle.dumps((fn, args, kwargs)))

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Ends what any executor's does; with ``cancel_futures`` also the processes that run."""
        if cancel_futures:
            self._stopping.set()
        self._threads.shutdown(wait=wait, cancel_futures=cancel_futures)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown(cancel_futures=kind is not None)

    def _call(self, call: bytes) -> Any:
        with temporary_folder() as folder:
            (folder / CALL).write_bytes(call)
            with (folder / _NOISE).open("wb") as noise:
                process = start([*job_command(), str(folder)], stdout=noise, stderr=subprocess.STDOUT)
                code = self._wait(process)
            if (folder / RESULT).is_file():
                return pickle.loads((folder / RESULT).read_bytes())
            noise_text = (folder / _NOISE).read_text(encoding="utf-8", errors="replace")
            how = f"was ended by {signal_name(-code)}" if code < 0 else f"ended with exit code {code}"
            hint = "Try again with fewer --jobs: there may be too little memory." if code == -9 else ""
            raise InternalError(f"Its process {how}.", hint=hint, detail=noise_text.strip()[-2000:])

    def _wait(self, process: subprocess.Popen[bytes]) -> int:
        while True:
            with suppress(subprocess.TimeoutExpired):
                return process.wait(timeout=TICK)
            if self._stopping.is_set():
                return _end(process)


def _end(process: subprocess.Popen[bytes]) -> int:
    """Ask a process to end, which cleans up, and kill it where it takes too long. What it started is ended by
    its guardian."""
    with suppress(OSError):
        os.kill(process.pid, signal.SIGTERM)
    end = time.monotonic() + _GRACE
    while time.monotonic() < end:
        with suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=0.05)
    kill_group(process)
    return process.wait()


def open_executor(jobs: int, scheduler: str) -> ProcessExecutor:
    """The executor, by default with a process for each CPU. Raises ConfigError for a scheduler."""
    if scheduler:
        raise ConfigError(
            "The executor processes has no scheduler.", hint="Leave --scheduler out, or add --executor dask."
        )
    return ProcessExecutor(jobs or os.cpu_count() or 1)

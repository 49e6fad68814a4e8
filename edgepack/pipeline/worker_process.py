"""The parent's side of compilation: TVM runs in a child process, so that its crash is only an error here.

The child (``python -m edgepack.compiler.worker``) takes jobs on stdin, prints events as JSON lines and leaves
its results in the jobs' folders; docs/internals/architecture.md has the formats.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import IO, Any

from edgepack import errors
from edgepack.errors import EdgepackError, InternalError, ModelError, ToolchainError
from edgepack.pipeline.bytecode import compile_modules
from edgepack.pipeline.job import UNCONFINED, WARNINGS, Job
from edgepack.pipeline.worker_environment import worker_environment
from edgepack.system.command_text import signal_name
from edgepack.system.confinement import CONFINE_ENV, GRANTED, Access, confining
from edgepack.system.deadline import TICK, check_time
from edgepack.system.disk_errors import blamed
from edgepack.system.log import save_log
from edgepack.system.process import ends_with_siblings, kill_group, start
from edgepack.system.progress import Progress
from edgepack.system.refusals import lacked_memory
from edgepack.system.temporary import temporary_folder

__all__ = ["Worker", "worker_command"]


#: Bytes of the child's stderr that are kept, and seconds that their last part is waited for.
_MOST_KEPT, _LATE = 1 << 20, 5.0
#: Bytes of a line of the child's, and how many lines are kept that are no events (what libraries print).
_LONGEST_LINE, _MOST_NOISE = 64 << 20, 1000

_NOTHING = Access()
#: Letters of why a child was not confined.
_LONGEST_REASON = 200
#: The stage in which ONNX Runtime, or another library, runs the model on inputs that may be anybody's.
_RECORDING = "record"
#: What an integer division ends a process with, by zero or of the least integer by -1.
_DIVISION = -getattr(signal, "SIGFPE", 8)
#: Nobody but the system's out-of-memory killer sends it unasked.
_MEMORY = -9


def worker_command() -> list[str]:
    """The child's command line."""
    return [sys.executable, "-m", "edgepack.compiler.worker"]


class Worker:
    """A child process that does one job after the other, so that TVM is loaded once for all of them.

    It is started with the first job, and again after one that it did not survive. Use it in a ``with``
    statement: the child ends with the block.

    Args:
        progress: is told of each stage and kernel.
        access: what it may open from its start on. A job that needs more gets a child of its own, which takes
            the seconds that TVM takes to load: whoever knows the jobs that come says what they need.
        command: the child's command line, instead of :func:`worker_command`.
    """

    def __init__(
        self,
        *,
        progress: Progress | None = None,
        access: Access = _NOTHING,
        command: Sequence[str] | None = None,
    ) -> None:
        self.progress = progress or (lambda _stage, _detail: None)
        self._access = self._granted = access
        self._unconfined = ""
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: _Kept | None = None
        self._lines: SimpleQueue[bytes] = SimpleQueue()
        self._open = ExitStack()

    def __enter__(self) -> Worker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, job: Job, directory: Path) -> Any:
        """Do ``job``; its results are then in ``directory`` (which must exist), with its warnings.

        Returns:
            the job's answer, plain data; None for one that leaves files only.

        Raises:
            EdgepackError: of the class that the child reported.
            ConfigError: it could not write (:func:`edgepack.system.disk_errors.writing_to`).
            OutOfTimeError: there is no more time; the child has been ended.
            InternalError: it crashed or left no result. The message names the stage or kernel and the saved
                log.
            ModelError: as the child reported; it took more memory than there is, or crashed while somebody
                else's program ran the model.
        """
        text = json.dumps({"task": job.task, **job.to_json()}, indent=1)  # ASCII: not all paths are UTF-8
        (directory / "job.json").write_text(text, encoding="utf-8", newline="\n")
        watch = _Watch(self.progress)
        process = self._started(job.access | Access(writes=(directory.absolute(),)))
        ends_with_siblings(process)
        try:
            assert process.stdin is not None
            with suppress(OSError):  # of one that has ended; what it printed and left is looked at below
                process.stdin.write(json.dumps(str(directory.absolute())).encode() + b"\n")
                process.stdin.flush()
            while line := self._line():
                over = watch.line(line.decode("utf-8", errors="replace"))
                if watch.unconfined is not None:
                    self._unconfined, watch.unconfined = watch.unconfined, None
                    self._refuse_unconfined()
                if over:
                    break
        except BaseException:
            self.close()
            raise
        self._check(watch, job, directory)
        (directory / WARNINGS).write_text(
            json.dumps(watch.warnings, ensure_ascii=False), encoding="utf-8", newline="\n"
        )
        if self._unconfined:
            (directory / UNCONFINED).write_text(self._unconfined, encoding="utf-8", newline="\n")
        return watch.result

    def _refuse_unconfined(self) -> None:
        if self._unconfined and confining() == "required":
            raise ToolchainError(
                f"The process that reads models cannot be confined here: {self._unconfined}.",
                hint=f"Pack it in a virtual machine, or with {CONFINE_ENV}=auto if you trust the model.",
            )

    def why_unconfined(self) -> str:
        """Why the child, which is started, is not confined; "" where it is.

        Raises:
            InternalError: it does not say.
        """
        watch = _Watch(self.progress)
        self._started(_NOTHING)
        while watch.unconfined is None and (line := self._line()):
            watch.line(line.decode("utf-8", errors="replace"))
        if watch.unconfined is None:
            raise InternalError("The process that reads models does not start.")
        return watch.unconfined

    def close(self) -> None:
        """End the child, whatever it does."""
        process, self._process = self._process, None
        if process is not None:
            kill_group(process)
            process.wait()
        self._open.close()

    def _line(self) -> bytes:
        """The next line that the child prints; empty when it has ended."""
        while True:
            check_time()
            with suppress(Empty):
                return self._lines.get(timeout=TICK)

    def _started(self, needed: Access) -> subprocess.Popen[bytes]:
        if self._process is not None and not self._granted.covers(needed):
            self.close()
        if self._process is None:
            self._granted = self._access | needed
            if self._command is None:
                compile_modules()
            # Not the user's working folder: a file `onnx.py` there must not be imported.
            folder = self._open.enter_context(temporary_folder())
            granted = {"confine": confining(), **self._granted.to_json()}
            (folder / GRANTED).write_text(json.dumps(granted), encoding="utf-8")
            self._process = process = start(
                self._command or worker_command(),
                cwd=folder,
                env={**worker_environment(), "TMPDIR": str(folder)},
                stdin=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            assert process.stdin is not None and process.stdout is not None and process.stderr is not None
            self._open.callback(_close, process.stdin)
            self._lines, self._errors = SimpleQueue(), _Kept(process.stderr)
            reader = threading.Thread(target=_read, args=(process.stdout, self._lines), daemon=True)
            reader.start()
        return self._process

    def _check(self, watch: _Watch, job: Job, directory: Path) -> None:
        """Turn how the job ended into an error, unless all is well. A child that it ended is closed."""
        missing = [name for name in job.results if not (directory / name).is_file()]
        if watch.done and not missing:
            return
        if watch.error is not None and not isinstance(watch.error, InternalError):
            raise watch.error
        process = self._process
        assert process is not None and self._errors is not None
        code = None if watch.done or watch.error is not None else process.wait()
        log = "".join(watch.noise) + self._errors.text(ended=code is not None)
        self.close()
        no_memory = bool(code) and lacked_memory(log) and watch.stage != "start"
        if not no_memory and (refused := blamed(log, code or 0)) is not None:
            raise refused
        head = f"model: {job.model.name}\nexit code: {code}\nstage: {watch.stage}\nkernel: {watch.kernel}\n\n"
        hint = _log_hint(job.model.stem, head + log)
        tail = "\n".join(log.strip().splitlines()[-15:])
        if watch.error is not None:
            watch.error.hint = f"{watch.error.hint} {hint}".strip()
            raise watch.error
        if code is None:
            how = f"left no {missing[0]}"
        elif code < 0:
            how = f"was ended by {signal_name(-code)}"
        else:
            how = f"ended with exit code {code}"
        if code == _MEMORY or no_memory:
            raise ModelError(
                f"Compiling {job.model.name} took more memory than there is: it was ended {watch.where}.",
                hint=f"Compile it on a machine with more memory, or cut it (--inputs, --outputs). {hint}",
                detail=tail,
            )
        if watch.running:
            raise ModelError(
                f"{watch.running} does not survive {job.model.name}: it {how} {watch.where}.",
                hint=f"Run the model with it alone to see why: the file may be damaged. {hint}",
                detail=tail,
            )
        if code is not None and _by_numbers(code, watch.stage):
            raise ModelError(
                f"What runs {job.model.name} for comparison was ended by {signal_name(-code)} {watch.where}: "
                "it cannot compute with some number of the model or of its inputs, such as a divisor.",
                hint=f"Give inputs that it can run on with --input NAME=FILE.npy. {hint}",
                detail=tail,
            )
        raise InternalError(f"The compiler of {job.model.name} {how} {watch.where}.", hint=hint, detail=tail)


def _by_numbers(code: int, stage: str) -> bool:
    """Whether numbers ended the child: in a division, or while somebody else's program computed with them."""
    return code == _DIVISION or (code < 0 and code != _MEMORY and stage == _RECORDING)


def _read(stream: IO[bytes], lines: SimpleQueue[bytes]) -> None:
    """Hand a stream's lines on, and an empty one at its end: a thread of its own may wait for them without an
    end, as the thread that does the work may not."""
    with stream, suppress(OSError, ValueError):
        while line := stream.readline(_LONGEST_LINE):
            lines.put(line)
    lines.put(b"")


class _Kept:
    """The end of what a stream brings, in memory: a file would be empty where the disk is full."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._bytes = bytearray()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def text(self, *, ended: bool) -> str:
        """What came so far. ``ended``: nobody writes any more, but for processes that the child left."""
        if ended:
            self._reader.join(_LATE)
        return bytes(self._bytes).decode("utf-8", errors="replace")

    def _read(self) -> None:
        with self._stream, suppress(OSError, ValueError):
            while chunk := os.read(self._stream.fileno(), 1 << 16):
                self._bytes += chunk
                del self._bytes[:-_MOST_KEPT]


def _close(stream: IO[bytes]) -> None:
    with suppress(OSError):  # of what could not be written any more
        stream.close()


class _Watch:
    """Follows the child's events."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.stage = "start"
        self.kernel = ""
        self.running = ""
        self.warnings: list[str] = []
        self.noise: deque[str] = deque(maxlen=_MOST_NOISE)
        self.error: EdgepackError | None = None
        self.done = False
        self.result: Any = None
        self.unconfined: str | None = None

    def line(self, line: str) -> bool:
        """Take in one line of the child's; whether it was the last one of the job."""
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            self.noise.append(line[:_MOST_KEPT])
            return False
        if kind == "stage":
            self.stage, self.kernel = str(event.get("name", "")), ""
            self.progress(self.stage, "")
        elif kind == "kernel":
            self.kernel = str(event.get("name", ""))
            self.progress(self.stage, self.kernel)
        elif kind == "started":
            self.unconfined = str(event.get("unconfined", ""))[:_LONGEST_REASON]
        elif kind == "running":
            self.running = str(event.get("name", ""))
        elif kind == "warning":
            self.warnings.append(str(event.get("text", "")))
        elif kind == "error":
            self.error = _error(event)
        elif kind == "done":
            self.done, self.result = True, event.get("result")
        return self.done or self.error is not None

    @property
    def where(self) -> str:
        """Where the child was, for a message."""
        return (
            f"in kernel {self.kernel} (stage {self.stage})" if self.kernel else f"in the stage {self.stage}"
        )


def _error(event: Mapping[str, Any]) -> EdgepackError:
    name = str(event.get("class", ""))
    kind = getattr(errors, name, InternalError) if name in errors.__all__ else InternalError
    message = str(event.get("message", "")) or "The compiler reported an error without a message."
    error: EdgepackError = kind(
        message, hint=str(event.get("hint") or ""), detail=str(event.get("detail") or "")
    )
    if isinstance(error, ModelError):
        error.refused = tuple(event.get("refused") or ())
        error.cuts = tuple(event.get("cuts") or ())
    return error


def _log_hint(name: str, text: str) -> str:
    path = save_log(name, text)
    return f"The log is in {path}; please report it." if path else "No log could be saved."

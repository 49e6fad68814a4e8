"""The parent's side of compilation: TVM runs in a child process, so that its crash is only an error here.

The child (``python -m edgepack.compiler.worker JOB_DIR``) prints events as JSON lines and leaves its
results in the job's folder; docs/architecture.md has both formats.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import edgepack
from edgepack import errors
from edgepack.errors import EdgepackError, InternalError, ModelError
from edgepack.log import save_log
from edgepack.pipeline.job import WORKER_FILES, Job
from edgepack.process import kill_group, signal_name
from edgepack.progress import Progress

__all__ = ["DEFAULT_TIMEOUT", "run_worker", "worker_command"]

#: Seconds after which a compilation counts as hung.
DEFAULT_TIMEOUT = 3600.0


def worker_command(directory: Path) -> list[str]:
    """The child's command line."""
    return [sys.executable, "-m", "edgepack.compiler.worker", str(directory)]


def run_worker(
    job: Job,
    directory: Path,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    progress: Progress | None = None,
    command: Callable[[Path], Sequence[str]] | None = None,
) -> None:
    """Compile ``job`` in a child process; RESULT_FILES are then in ``directory`` (which must exist).

    Raises:
        EdgepackError: of the class that the child reported.
        ModelError: it ran out of time.
        InternalError: it crashed or left no result. The message names the stage or kernel and the saved log.
    """
    (directory / "job.json").write_text(
        json.dumps(job.to_json(), indent=1, ensure_ascii=False), encoding="utf-8", newline="\n"
    )
    watch = _Watch(progress or (lambda _stage, _detail: None))
    with tempfile.TemporaryFile() as stderr:
        process = subprocess.Popen(
            (command or worker_command)(directory),
            cwd=directory,  # and not the user's: a file `onnx.py` there must not be imported
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            start_new_session=os.name == "posix",
        )
        timer = threading.Timer(timeout, watch.give_up, [process])
        timer.daemon = True
        timer.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                watch.line(line.decode("utf-8", errors="replace"))
            code = process.wait()
        except BaseException:
            kill_group(process)
            process.wait()
            raise
        finally:
            timer.cancel()
            if process.stdout is not None:
                process.stdout.close()
        stderr.seek(0)
        log = "".join(watch.noise) + stderr.read().decode("utf-8", errors="replace")
    _check(watch, code, job, directory, timeout=timeout, log=log)
    (directory / "warnings.json").write_text(
        json.dumps(watch.warnings, ensure_ascii=False), encoding="utf-8", newline="\n"
    )


class _Watch:
    """Follows the child's events."""

    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.stage = "start"
        self.kernel = ""
        self.warnings: list[str] = []
        self.noise: list[str] = []
        self.error: EdgepackError | None = None
        self.timed_out = False

    def give_up(self, process: subprocess.Popen[bytes]) -> None:
        self.timed_out = True
        kill_group(process)

    def line(self, line: str) -> None:
        try:
            event = json.loads(line)
            kind = event["event"]
        except (ValueError, TypeError, KeyError):
            self.noise.append(line)
            return
        if kind == "stage":
            self.stage, self.kernel = str(event.get("name", "")), ""
            self.progress(self.stage, "")
        elif kind == "kernel":
            self.kernel = str(event.get("name", ""))
            self.progress(self.stage, self.kernel)
        elif kind == "warning":
            self.warnings.append(str(event.get("text", "")))
        elif kind == "error":
            self.error = _error(event)

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
    return error


def _check(watch: _Watch, code: int, job: Job, directory: Path, *, timeout: float, log: str) -> None:
    """Turn how the child ended into an error, unless all is well."""
    missing = [name for name in WORKER_FILES if not (directory / name).is_file()]
    if watch.error is None and not watch.timed_out and code == 0 and not missing:
        return
    head = f"model: {job.model.name}\nexit code: {code}\nstage: {watch.stage}\nkernel: {watch.kernel}\n\n"
    if watch.error is not None:
        if isinstance(watch.error, InternalError):
            watch.error.hint = f"{watch.error.hint} {_log_hint(job.name, head + log)}".strip()
        raise watch.error
    tail = "\n".join(log.strip().splitlines()[-15:])
    if watch.timed_out:
        raise ModelError(
            f"Compiling {job.model.name} did not end within {timeout:g} s; it was {watch.where}.",
            hint=f"Give it more time with --timeout. {_log_hint(job.name, head + log)}",
            detail=tail,
        )
    if code < 0:
        how = f"was ended by {signal_name(-code)}"
    elif code != 0:
        how = f"ended with exit code {code}"
    else:
        how = f"left no {missing[0]}"
    hint = _log_hint(job.name, head + log)
    if -code == 9:  # nobody but the system's out-of-memory killer sends it unasked
        hint = f"Perhaps there was not enough memory. {hint}"
    raise InternalError(f"The compiler of {job.model.name} {how} {watch.where}.", hint=hint, detail=tail)


def _log_hint(name: str, text: str) -> str:
    path = save_log(name, text)
    return f"The log is in {path}; please report it." if path else "No log could be saved."


def _environment() -> dict[str, str]:
    # ONNX Runtime's variables (ORT_INTRA_OP_NUM_THREADS and others) must not decide about a bundle's bytes.
    kept = {name: value for name, value in os.environ.items() if not name.startswith("ORT_")}
    environment = {**kept, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    root = Path(edgepack.__file__).resolve().parent.parent
    if root.name not in {"site-packages", "dist-packages"}:  # run from a source tree that is not installed
        rest = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = f"{root}{os.pathsep}{rest}" if rest else str(root)
    return environment

"""edgepack with the worker of :mod:`tests.support.worker`: everything but TVM, in seconds.

    python tests/support/fake.py MODE ARGUMENT...

is the ``edgepack`` program with that worker, and with ``job MODE FOLDER`` one call of a release.
"""

from __future__ import annotations

import atexit
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from pathlib import Path
from typing import Any

import edgepack.commands.pack
import edgepack.pipeline.cache
import edgepack.pipeline.worker_process
import edgepack.release.processes
from edgepack.pipeline.sources import source_digest
from edgepack.pipeline.worker_process import Worker
from edgepack.system.confinement import Access
from edgepack.system.files import combined_digest
from edgepack.system.progress import Progress

ROOT = Path(__file__).resolve().parents[2]

#: Modes in which a worker goes on after a job: all packs of a process are made by one.
GOES_ON = ("ok", "network", "retrained")

#: What a worker that is lent is started with, whatever the test that asks first has put there.
_ENVIRONMENT, _TEMPORARY = dict(os.environ), tempfile.gettempdir()

#: What a worker may open that does all jobs of a process of pytest.
EVERYTHING = Access(reads=(Path("/"),), writes=(Path("/"),))

_lent = threading.Lock()


def command(mode: str) -> Callable[[], list[str]]:
    """A ``worker_command`` that runs the fake worker."""
    return lambda: [sys.executable, str(ROOT / "tests" / "support" / "worker.py"), mode]


def install(mode: str, replace: Callable[[Any, str, Any], None] = setattr) -> None:
    """Packs of this process are made by the fake worker, and kept in the cache under keys of its own.

    Args:
        mode: of the fake worker.
        replace: sets an attribute; that of pytest's MonkeyPatch puts it back later.
    """
    replace(edgepack.pipeline.worker_process, "worker_command", command(mode))
    if replace is not setattr and mode in GOES_ON:
        replace(edgepack.commands.pack, "Worker", lambda *, progress, access: _lend(mode, progress))
    replace(edgepack.pipeline.cache, "source_digest", _source_digest)
    job = [sys.executable, str(Path(__file__)), "job", mode]
    replace(edgepack.release.processes, "job_command", lambda: job)


@contextmanager
def _lend(mode: str, progress: Progress) -> Iterator[Worker]:
    """The worker of this process, or one that ends afterwards where another thread has that."""
    if not _lent.acquire(blocking=False):
        with Worker(progress=progress) as worker:
            yield worker
        return
    try:
        worker = _kept(mode)
        worker.progress = progress
        yield worker
    finally:
        _lent.release()


@cache
def _kept(mode: str) -> Worker:
    """A worker that has been started, and ends with this process."""
    import pytest

    worker = Worker(command=command(mode)(), access=EVERYTHING)
    atexit.register(worker.close)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", _TEMPORARY)
        for name in os.environ.keys() - _ENVIRONMENT.keys():
            patch.delenv(name)
        for name, value in _ENVIRONMENT.items():
            patch.setenv(name, value)
        worker._started(EVERYTHING)
    return worker


def _source_digest(task: str, frontend: str = "") -> str:
    """As :func:`edgepack.pipeline.sources.source_digest`, over the fake worker's own sources too."""
    own = [] if task == "objects" else sorted(Path(__file__).parent.glob("*.[cp]*"))
    return source_digest(task, frontend) + combined_digest(own)


def run(
    mode: str, *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """The program with the fake worker, in this process: one of its own would import for a second first."""
    import pytest

    from edgepack.cli.main import main

    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(streams[0]), redirect_stderr(streams[1]):
        install(mode, patch.setattr)
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.chdir(cwd or Path.cwd())
        code = main([*map(str, arguments)])
    out, err = (stream.buffer.getvalue().decode() for stream in streams)  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(["edgepack", *map(str, arguments)], code, out, err)


def run_program(
    mode: str, *arguments: str | Path, cwd: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """As :func:`run`, in a process of its own."""
    return subprocess.run(
        argv(mode, *arguments),
        cwd=cwd,
        env=env(**environment),
        capture_output=True,
        encoding="utf-8",
        timeout=300,
        check=False,
    )


def argv(mode: str, *arguments: str | Path) -> list[str]:
    return [sys.executable, str(Path(__file__)), mode, *map(str, arguments)]


def env(**environment: str) -> dict[str, Any]:
    return {**os.environ, "PYTHONPATH": str(ROOT), **environment}


if __name__ == "__main__":
    from edgepack.cli.main import main

    if sys.argv[1] == "job":
        from edgepack.cli import job

        install(sys.argv[2])
        del sys.argv[1:3]
        sys.exit(job.main())
    install(sys.argv[1])
    sys.exit(main(sys.argv[2:]))

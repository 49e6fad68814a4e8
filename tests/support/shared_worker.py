"""One worker for all that a process of pytest packs: TVM is loaded once, which takes a second and a half, and
not for each pack. A test in other circumstances (another environment, another command) has one of its own."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from edgepack.pipeline import worker_process
from edgepack.pipeline.worker_process import Worker
from edgepack.system.confinement import Access
from edgepack.system.progress import Progress

__all__ = ["MOST", "installed"]

#: Modules that start a worker.
_STARTERS = (
    *(
        f"edgepack.commands.{name}"
        for name in ("check", "compare", "layers", "look_inside", "pack", "quantize")
    ),
    *("edgepack.commands.tune_programs", "edgepack.commands.tvm_library", "edgepack.pipeline.compile"),
    "edgepack.pipeline.exported_file",
)
#: What a worker does not look at.
_PARENTS_ALONE = (
    *("PYTEST_CURRENT_TEST", "EDGEPACK_CACHE_DIR", "EDGEPACK_CACHE_BYTES", "EDGEPACK_CACHE_KEY"),
    "TORCHINDUCTOR_CACHE_DIR",  # which an import of PyTorch sets
)

#: What one that does the jobs of many tests may open: these write below the folder for temporary files.
MOST = Access(reads=(Path("/"),), writes=(Path(tempfile.gettempdir()),))


def _circumstances() -> tuple[Any, ...]:
    """What a worker that is started now would have from this process."""
    known = {
        name: value
        for name, value in worker_process.worker_environment().items()
        if name not in _PARENTS_ALONE
    }
    return known, tempfile.gettempdir(), worker_process.worker_command


@contextmanager
def installed(replace: Callable[[Any, str, Any], None]) -> Iterator[None]:
    """While it is open, packs of this process are made by one worker.

    Args:
        replace: sets an attribute, and puts it back later.
    """
    usual, busy = _circumstances(), threading.Lock()
    with Worker(access=MOST) as shared:

        @contextmanager
        def lend(*, progress: Progress | None = None, access: Access = Access()) -> Iterator[Worker]:  # noqa: B008
            if _circumstances() != usual or not busy.acquire(blocking=False):
                with Worker(progress=progress, access=access) as worker:
                    yield worker
                return
            try:
                shared.progress = progress or (lambda _stage, _detail: None)
                yield shared
            finally:
                busy.release()

        for name in _STARTERS:
            replace(import_module(name), "Worker", lend)
        yield

"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import edgepack.packing
import edgepack.pipeline.worker_process
from edgepack.api import Bundle, pack
from edgepack.pipeline.worker_process import Worker
from edgepack.progress import Progress
from tests.support import fake
from tests.support.model import write_model

#: CPU seconds of the files that take longest, on a machine that has their compilers' libraries in its cache;
#: `tools/suite_seconds.py` measures them.
SECONDS: dict[str, int] = {}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process of pytest-xdist waits for another one's last file."""
    root = Path(__file__).parent
    items.sort(key=lambda item: -SECONDS.get(item.path.relative_to(root).as_posix(), 0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder whose name holds what names of folders may hold."""
    path = tmp_path / "a folder, é"
    path.mkdir()
    return path


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ONNX file that tests/support/worker.py has results for, in a folder with a difficult name."""
    return write_model(tmp_path_factory.mktemp("mödel folder") / "small.onnx")


@pytest.fixture(scope="session")
def small_bundle(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    """The small model packed for this machine by the fake worker; not to be changed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edgepack.pipeline.worker_process, "worker_command", fake.command("ok"))
        return pack(small_model, "host", tmp_path_factory.mktemp("bündle folder") / "small", cache=False)


@pytest.fixture(scope="session")
def _worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


@pytest.fixture(scope="module")
def shared_worker(_worker: Worker) -> Iterator[None]:
    """All packs of this process are compiled by one child: TVM is loaded once, not for each of them."""

    @contextmanager
    def lend(*, progress: Progress, timeout: float) -> Iterator[Worker]:
        _worker.progress = progress
        yield _worker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edgepack.packing, "Worker", lend)
        yield

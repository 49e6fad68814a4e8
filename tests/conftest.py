"""Fixtures that several rooms share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import edgepack.commands.pack
import edgepack.pipeline.worker_process
from edgepack.api import Bundle, pack
from edgepack.pipeline.worker_process import Worker
from edgepack.system.progress import Progress
from tests.support import fake
from tests.support.model import write_model

#: About how many seconds the longest files take (`pytest --durations=0` says how long their tests do).
SECONDS = {
    "test_end_to_end.py": 50,
    "cli/test_pack.py": 35,
    "compiler/kernels/test_operators.py": 35,
    "release/test_strangers.py": 30,
    "cli/test_devices.py": 25,
    "targets/test_chromium.py": 22,
    "compiler/kernels/test_gpu.py": 20,
    "runtime/test_c_programs.py": 20,
    "commands/test_update.py": 18,
    "targets/test_linux.py": 18,
    "runtime/test_portability.py": 17,
    "runners/test_ssh.py": 17,
    "targets/test_wasm.py": 16,
    "targets/test_cortex_m.py": 16,
    "compiler/planner/test_networks.py": 15,
    "runners/test_ssh_boards.py": 15,
    "targets/test_apple.py": 14,
    "release/archives/test_ordinary.py": 13,
    "release/test_release.py": 13,
    "system/test_process.py": 13,
    "runtime/test_project.py": 12,
    "runners/test_adb.py": 12,
    "runners/test_adb_hostile.py": 12,
    "formats/test_aar.py": 12,
    "test_install.py": 12,
    "cli/test_bundle_commands.py": 11,
    "compiler/backends/test_cuda.py": 11,
    "compiler/graph/test_layout.py": 11,
    "bundle/test_compile_sources.py": 11,
    "compiler/kernels/test_winograd.py": 10,
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files first, so that no process of pytest-xdist waits for another one's last file.

    ``make test`` hands out whole files, for what a file compiles is compiled in each process that has a part
    of it.
    """
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
        fake.install("ok", patch.setattr)
        return pack(small_model, "host", tmp_path_factory.mktemp("bündle folder") / "small")


@pytest.fixture(scope="session")
def _worker() -> Iterator[Worker]:
    with Worker() as worker:
        yield worker


@pytest.fixture(scope="module")
def shared_worker(_worker: Worker) -> Iterator[None]:
    """All packs of this process are compiled by one child: TVM is loaded once, not for each of them."""

    @contextmanager
    def lend(*, progress: Progress) -> Iterator[Worker]:
        _worker.progress = progress
        yield _worker

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(edgepack.commands.pack, "Worker", lend)
        yield

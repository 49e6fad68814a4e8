"""Builds by Dask: a scheduler and workers, each a process on loopback; a worker that is killed loses nothing.

They need ``python -m pip install -e ".[dask]"``.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgepack.errors import ConfigError
from edgepack.release.dask_executor import open_executor
from edgepack.release.executing import State
from edgepack.release.run import ReleaseOptions, release
from tests.release.conftest import content
from tests.support import fake

pytestmark = pytest.mark.slow
pytest.importorskip("distributed")
Write = Callable[..., Path]


class Cluster:
    """A scheduler and its workers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        file = folder / "scheduler.json"
        self.start(
            "scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", file, "--no-dashboard"
        )
        until = time.monotonic() + 60
        while not file.exists() and time.monotonic() < until:
            time.sleep(0.1)
        self.address: str = json.loads(file.read_text())["address"]

    def start(self, part: str, *arguments: str | Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed.cli.dask_" + part, *map(str, arguments)]
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(
                command, cwd=self.folder, env=fake.env(), stdout=log, stderr=subprocess.STDOUT
            )
        self.processes.append(process)
        return process

    def worker(self, mode: str) -> subprocess.Popen[bytes]:
        """One whose packs are made by the fake worker in a mode."""
        preload = self.folder / f"{mode.replace(':', '_')}.py"
        preload.write_text(f"from tests.support import fake\nfake.install({mode!r})\n")
        return self.start("worker", self.address, "--no-nanny", "--nthreads", "1", "--preload", preload)

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    (tmp_path / "dask").mkdir()
    made = Cluster(tmp_path / "dask")
    yield made
    made.end()


def test_a_worker_that_is_killed_loses_nothing(
    cluster: Cluster, project: Write, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.install("ok", monkeypatch.setattr)
    path = project()
    doomed = cluster.worker("hang:read")
    cluster.worker("ok")
    hung = False

    def show(state: State) -> None:
        nonlocal hung
        # What the good worker has was built long ago, what the other one has will never be.
        if not hung and state.done == 1 and state.running and state.running[0].seconds > 3:
            hung = True
            doomed.kill()

    options = ReleaseOptions(executor="dask", scheduler=cluster.address)
    made = release(path, tmp_path / "made", options, show)
    assert hung
    assert (made.ok, set(made.built)) == (True, {"net@linux-x86_64", "net@my-board"})
    assert content(tmp_path / "made") == content(dist)


def test_what_dask_cannot_do_is_said(cluster: Cluster) -> None:
    with pytest.raises(ConfigError, match="needs a scheduler"):
        open_executor(0, "")
    with pytest.raises(ConfigError, match="up to Dask's workers"):
        open_executor(2, cluster.address)
    with open_executor(0, cluster.address) as executor:
        cluster.worker("ok")
        assert executor.submit(pow, 2, 10).result(timeout=60) == 1024


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgepack.release.dask_executor._PATIENCE", 1)
    with pytest.raises(ConfigError, match=r"tcp://127\.0\.0\.1:1 does not answer"):
        open_executor(0, "tcp://127.0.0.1:1")

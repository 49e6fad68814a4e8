"""Releases of the fake worker's model."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from edgepack.release.run import ReleaseOptions, release
from edgepack.system.files import list_files
from tests.support import fake

PROJECT = """\
name: fleet
version: 1.2.0
license: Apache-2.0
models:
  net: {{path: {path}}}
devices:
  linux-x86_64:
  my-board: {{extends: linux-x86_64, formats: [zip]}}
"""


def content(root: Path) -> dict[str, tuple[int, bytes]]:
    """Mode and bytes of every file."""
    return {
        name: ((root / name).stat().st_mode & 0o777, (root / name).read_bytes()) for name in list_files(root)
    }


@pytest.fixture
def fake_worker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packs of this process and of its jobs are made by the fake worker."""
    fake.install("ok", monkeypatch.setattr)
    yield


@pytest.fixture
def project(small_model: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes a project file of one model for two devices that run here; what is added comes behind it."""

    def write(more: str = "", *, folder: Path | None = None, text: str = PROJECT) -> Path:
        place = folder or tmp_path
        place.mkdir(exist_ok=True)
        model = place / "net.onnx"
        if not model.exists():
            model.write_bytes(small_model.read_bytes())
        path = place / "edgepack.yaml"
        path.write_text(text.format(path="net.onnx") + more, encoding="utf-8")
        return path

    return write


@pytest.fixture(scope="session")
def _released(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("released")
    (folder / "net.onnx").write_bytes(small_model.read_bytes())
    (folder / "edgepack.yaml").write_text(PROJECT.format(path="net.onnx"), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(2) as executor:
        fake.install("ok", patch.setattr)
        made = release(folder / "edgepack.yaml", folder / "dist", ReleaseOptions(), executor=executor)
    assert made.built == ("net@linux-x86_64", "net@my-board")
    return folder / "dist"


@pytest.fixture
def dist(_released: Path, tmp_path: Path) -> Path:
    """The release of the project, as it was made in another folder."""
    shutil.copytree(_released, tmp_path / "dist")
    return tmp_path / "dist"

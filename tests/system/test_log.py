"""Logs of failures: found again, few, and never a failure themselves."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.system import log
from edgepack.system.log import save_log


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "cache"))


def test_holds_the_text_and_is_named_after_what_failed(tmp_path: Path) -> None:
    path = save_log("net", "größe\n")
    assert path is not None
    assert path.parent == tmp_path / "cache" / "logs"
    assert path.name.startswith("edgepack-net-")
    assert path.read_text(encoding="utf-8") == "größe\n"


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    paths = [save_log("net", str(number)) for number in range(25)]
    left = list((tmp_path / "cache" / "logs").iterdir())
    assert len(left) == 20
    assert paths[-1] in left


def test_without_a_cache_folder_it_goes_to_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "temp").mkdir()
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(log.tempfile, "gettempdir", lambda: str(tmp_path / "temp"))
    path = save_log("net", "text")
    assert path is not None
    assert path.parent == tmp_path / "temp"
    monkeypatch.setattr(log.tempfile, "gettempdir", lambda: str(tmp_path / "file"))
    assert save_log("net", "text") is None


def test_logs_of_others_are_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the folder for temporary files a name that begins alike says nothing."""
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "file"))
    monkeypatch.setattr(log.tempfile, "gettempdir", lambda: str(tmp_path))
    mine = tmp_path / "edgepack-benchmark.log"
    mine.write_text("weeks of work")
    for number in range(22):
        save_log("net", str(number))
    assert mine.exists()
    assert len(list(tmp_path.glob("edgepack-net-*.log"))) == 20

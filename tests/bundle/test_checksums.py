"""SHA256SUMS: complete, readable by sha256sum, and any change is found."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from edgepack.bundle.checksums import check_sums, write_sums
from edgepack.errors import CheckFailedError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libü net.so").write_bytes(b"\x00\x01")
    (tmp_path / "b").write_text("b")
    (tmp_path / "a").write_text("a")
    write_sums(tmp_path)
    return tmp_path


def test_lists_every_file_but_itself_sorted(folder: Path) -> None:
    names = [line.split("  ")[1] for line in (folder / "SHA256SUMS").read_text(encoding="utf-8").splitlines()]
    assert names == ["a", "b", "lib/libü net.so"]
    assert check_sums(folder) == 3


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="coreutils are not on this system")
def test_sha256sum_accepts_it(folder: Path) -> None:
    subprocess.run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, check=True)


def test_changed_and_missing_files_are_all_named(folder: Path) -> None:
    (folder / "a").write_text("A")
    (folder / "b").unlink()
    with pytest.raises(CheckFailedError, match="2 files of 3") as caught:
        check_sums(folder)
    assert "a: differs" in caught.value.detail
    assert "b: missing" in caught.value.detail


def test_a_folder_without_sums_is_damaged(tmp_path: Path) -> None:
    with pytest.raises(CheckFailedError, match="cannot be read"):
        check_sums(tmp_path)


@pytest.mark.parametrize("text", ["", "nonsense\n", "abc  file\n"])
def test_a_malformed_list_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "SHA256SUMS").write_text(text)
    with pytest.raises(CheckFailedError, match=r"is empty|not a line of sha256sum"):
        check_sums(tmp_path)

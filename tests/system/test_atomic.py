"""What is new takes its place at once, and is on the disk by then."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from edgepack.system import atomic
from edgepack.system.atomic import replace_file, replace_folder


def folder(path: Path, text: str) -> Path:
    (path / "in").mkdir(parents=True)
    (path / "in" / "file").write_text(text)
    return path


@pytest.mark.skipif(sys.platform not in ("linux", "darwin"), reason="the system cannot exchange two folders")
def test_at_no_moment_is_there_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No name goes: not one rename, by which the destination would be gone before the new one is there."""
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")
    monkeypatch.setattr(os, "rename", None)
    monkeypatch.setattr(os, "replace", None)
    replace_folder(new, target, tmp_path / "old")
    assert (target / "in" / "file").read_text() == "new"
    assert (new / "in" / "file").read_text() == "old"
    assert not (tmp_path / "old").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a descriptor is of")
def test_all_is_on_the_disk_before_it_takes_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")
    flushed: list[str] = []
    fsync = os.fsync

    def record(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        there = "new" if (target / "in" / "file").read_text() == "new" else "old"
        flushed.append(f"{path.relative_to(tmp_path).as_posix()} {there}")
        fsync(descriptor)

    monkeypatch.setattr(atomic.os, "fsync", record)
    replace_folder(new, target, tmp_path / "old")
    assert sorted(flushed) == [". new", "new old", "new/in old", "new/in/file old"]
    flushed.clear()
    (tmp_path / "file").write_text("file")
    replace_file(tmp_path / "file", target / "file")
    assert flushed == ["file new", "target new"]


def test_where_folders_cannot_be_exchanged_the_old_one_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(atomic, "_exchanged", lambda one, other: False)
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")
    replace_folder(new, target, tmp_path / "old")
    assert (target / "in" / "file").read_text() == "new"
    assert (tmp_path / "old" / "in" / "file").read_text() == "old"
    (tmp_path / "old").rename(tmp_path / "away")
    rename = Path.rename

    def fail(path: Path, to: Path) -> Path:
        if path.name == "new":
            raise OSError(errno.EIO, "the disk is broken")
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="the disk is broken"):
        replace_folder(folder(tmp_path / "new", "newer"), target, tmp_path / "old")
    assert (target / "in" / "file").read_text() == "new"


def test_a_disk_that_cannot_hold_it_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new, target = folder(tmp_path / "new", "new"), folder(tmp_path / "target", "old")

    def full(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace_folder(new, target, tmp_path / "old")
    assert (target / "in" / "file").read_text() == "old"

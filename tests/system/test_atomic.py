"""What is new takes its place at once, and is on the disk by then."""

from __future__ import annotations

import errno
import os
import sys
from pathlib import Path

import pytest

from edgepack.system import atomic
from edgepack.system.atomic import replace_file, replace_folder, write_file


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


def left(target: Path, token: str = "0123456789ab") -> Path:
    path = target.with_name(f".{target.name}.{token}")
    path.write_text("half")
    return path


def test_what_a_killed_process_left_of_a_file_is_removed_by_the_next(tmp_path: Path) -> None:
    """And nothing that is similar: of another file, another token, a link, a folder, what has two names."""
    target = tmp_path / "it.json"
    gone = left(target)
    others = [left(tmp_path / "other.json"), left(target, "0123"), left(target, "0123456789AB")]
    link, folder = left(target, "a" * 12), tmp_path / f".{target.name}.{'b' * 12}"
    link.unlink()
    link.symlink_to(others[0])
    folder.mkdir()
    os.link(others[0], tmp_path / f".{target.name}.{'c' * 12}")
    before = {path.name for path in tmp_path.iterdir()}
    write_file(target, b"new")
    assert {path.name for path in tmp_path.iterdir()} == (before - {gone.name}) | {target.name}
    assert target.read_bytes() == b"new"


@pytest.mark.skipif(os.name == "nt", reason="files are not locked there")
def test_what_another_process_is_writing_stays(tmp_path: Path) -> None:
    target = tmp_path / "it.json"
    with left(target).open("r+b") as file:
        assert atomic._locked(file.fileno())
        write_file(target, b"new")
    assert Path(file.name).exists()
    new, file_of_new = atomic._new(target)
    write_file(target, b"newer")
    assert new.exists()
    os.close(file_of_new)


def test_a_disk_that_takes_no_file_leaves_the_old_one_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "it.json"
    write_file(target, b"old")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_file(target, b"new")
    assert [path.name for path in tmp_path.iterdir()] == ["it.json"] and target.read_bytes() == b"old"

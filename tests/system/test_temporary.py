"""What killed processes left is removed, and nothing else, whoever else writes to the same folder."""

from __future__ import annotations

import errno
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import edgepack.system.temporary
from edgepack.system.temporary import LOCK, MARKER, OLD, _remove_own, remove_dead, temporary_folder

TOKEN = "0123456789ab"


def left(parent: Path, *, prefix: str = ".b.", token: str = TOKEN, destination: object = "b") -> Path:
    """What a process that was killed leaves."""
    root = parent / f"{prefix}edgepack-{TOKEN}"
    root.mkdir(mode=0o700)
    for name, text in {LOCK: "", MARKER: json.dumps({"token": token, "destination": destination})}.items():
        (root / name).write_text(text)
        (root / name).chmod(0o600)
    (root / "job").mkdir()
    (root / "job" / "kernels.o").write_text("x")
    return root


def test_what_was_left_is_removed(tmp_path: Path) -> None:
    left(tmp_path)
    left(tmp_path, prefix="", destination="")
    remove_dead(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("had", ["nothing", LOCK, MARKER])
def test_what_was_killed_before_its_marker_was_written_is_removed(had: str, tmp_path: Path) -> None:
    root = left(tmp_path)
    shutil.rmtree(root / "job")
    (root / MARKER).write_text("")
    for name in {"nothing": (LOCK, MARKER), LOCK: (MARKER,), MARKER: ()}[had]:
        (root / name).unlink()
    remove_dead(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_was_killed_while_it_cleaned_up_is_still_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed_here(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), temporary_folder(tmp_path) as root:
        for name in ("a", "job", "z"):
            (root / name).mkdir()
        monkeypatch.setattr(shutil, "rmtree", killed_here)
    monkeypatch.undo()
    assert root.exists()
    remove_dead(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_is_still_written_to_is_waited_for_and_else_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A compiler that was killed may have a child that ends a moment later."""
    removed = shutil.rmtree
    left_over = [1, 1]

    def written_again(path: Path, **options: bool) -> None:
        removed(path, **options)
        if left_over and left_over.pop():
            Path(path).mkdir()

    monkeypatch.setattr(shutil, "rmtree", written_again)
    with temporary_folder(tmp_path) as root:
        (root / "job").mkdir()
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    monkeypatch.setattr(edgepack.system.temporary, "_PAUSE", 0)
    with temporary_folder(tmp_path) as root:
        (root / "job").mkdir()
    remove_dead(tmp_path)
    assert sorted(path.name for path in root.iterdir()) == [MARKER, LOCK, "job"]
    monkeypatch.undo()
    remove_dead(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_signal_kept_from_being_removed_goes_when_python_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def signal_here(*_: object, **__: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(edgepack.system.temporary, "_own", {})  # those of this process' worker stay
    monkeypatch.setattr(edgepack.system.temporary, "_marked", signal_here)
    with pytest.raises(KeyboardInterrupt), temporary_folder(tmp_path):
        pass
    assert len(list(tmp_path.iterdir())) == 1
    _remove_own()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_another_process_takes_for_a_dead_one_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between its making and its lock it looks as if its process had been killed."""
    try_lock, times = edgepack.system.temporary.try_lock, []

    def once_taken(lock: int) -> bool:
        times.append(lock)
        return len(times) > 1 and try_lock(lock)

    monkeypatch.setattr(edgepack.system.temporary, "try_lock", once_taken)
    with temporary_folder(tmp_path) as root:
        assert (root / MARKER).is_file()
        assert list(tmp_path.iterdir()) == [root]


def _nothing(root: Path) -> None:
    shutil.rmtree(root)
    root.mkdir()
    (root / "thesis.txt").write_text("x")


def _other_token(root: Path) -> None:
    root.rename(root.with_name(root.name.replace(TOKEN, TOKEN[::-1])))


def _linked_marker(root: Path) -> None:
    (root / MARKER).rename(root.parent / "marker")
    (root / MARKER).symlink_to(root.parent / "marker")


def _linked_folder(root: Path) -> None:
    root.rename(root.parent / "elsewhere")
    root.symlink_to(root.parent / "elsewhere")


def _pipe(root: Path) -> None:
    (root / MARKER).unlink()
    os.mkfifo(root / MARKER)


CHANGES: dict[str, Callable[[Path], object]] = {
    "without our marker": _nothing,
    "with the marker of another": _other_token,
    "with a link for a marker": _linked_marker,
    "with a pipe for a marker": _pipe,
    "behind a link": _linked_folder,
    "that others may write to": lambda root: root.chmod(0o777),
    "with a marker that others may write to": lambda root: (root / MARKER).chmod(0o666),
    "with a lock that others may write to": lambda root: (root / LOCK).chmod(0o666),
    "without a lock": lambda root: (root / LOCK).unlink(),
    "with brackets for a marker": lambda root: (root / MARKER).write_text("[" * 4096),
    "with a list for a marker": lambda root: (root / MARKER).write_text("[]"),
}


def content(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


@pytest.mark.skipif(os.name != "posix", reason="owners, modes and links are POSIX's")
@pytest.mark.parametrize("change", CHANGES)
def test_a_folder_of_such_a_name_is_left_alone(change: str, tmp_path: Path) -> None:
    CHANGES[change](left(tmp_path))
    before = content(tmp_path)
    remove_dead(tmp_path)
    assert content(tmp_path) == before


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root makes files of others")
@pytest.mark.parametrize("whose", ["", MARKER, LOCK])
def test_what_another_user_made_is_left_alone(whose: str, tmp_path: Path) -> None:
    """Else another user of the same machine decides what is made where, in this user's name."""
    root = left(tmp_path)
    (root / OLD).mkdir()
    os.chown(root / whose, 12345, 12345)
    before = content(tmp_path)
    remove_dead(tmp_path)
    assert content(tmp_path) == before


@pytest.mark.parametrize("destination", ["../b", "/tmp/b", "c/d", "..", ".", "a\0b", 3, None, ["b"]])
def test_a_destination_that_is_no_sibling_is_not_one_of_ours(destination: object, tmp_path: Path) -> None:
    parent = tmp_path / "shared"
    parent.mkdir()
    root = left(parent, destination=destination)
    (root / OLD).mkdir()
    before = content(tmp_path)
    remove_dead(parent)
    assert content(tmp_path) == before


def test_what_was_replaced_comes_back_unless_its_place_is_taken(tmp_path: Path) -> None:
    (left(tmp_path) / OLD).mkdir()
    (tmp_path / f".b.edgepack-{TOKEN}" / OLD / "manifest.json").write_text("old")
    remove_dead(tmp_path)
    assert content(tmp_path) == ["b", "b/manifest.json"]
    (left(tmp_path) / OLD).mkdir()
    remove_dead(tmp_path)
    assert (tmp_path / "b" / "manifest.json").read_text() == "old"
    assert content(tmp_path) == ["b", "b/manifest.json"]


def test_links_in_it_are_removed_and_not_followed(tmp_path: Path) -> None:
    keep = tmp_path / "keep"
    keep.mkdir()
    (keep / "thesis.txt").write_text("x")
    root = left(tmp_path)
    (root / "link").symlink_to(keep)
    (root / "job" / "link").symlink_to(keep)
    remove_dead(tmp_path)
    assert content(tmp_path) == ["keep", "keep/thesis.txt"]


def test_only_this_user_may_enter_it(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with temporary_folder(tmp_path) as root:
            modes = {path.name: path.stat().st_mode & 0o077 for path in (root, root / LOCK)}
            assert (root / MARKER).stat().st_mode & 0o022 == 0
    finally:
        os.umask(old)
    assert set(modes.values()) == {0}


def test_a_folder_whose_marker_cannot_be_written_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(json, "dump", full)
    with pytest.raises(OSError, match="No space"), temporary_folder(tmp_path):
        pass
    assert list(tmp_path.iterdir()) == []


def test_that_somebody_removed_all_of_it_is_no_error(tmp_path: Path) -> None:
    parent = tmp_path / "parent"
    parent.mkdir()
    with temporary_folder(parent, destination="b"):
        shutil.rmtree(parent)
    assert list(tmp_path.iterdir()) == []


KILLED = """
import os, signal
from edgepack.system.temporary import temporary_folder
with temporary_folder() as root:
    (root / "big").write_text("x")
    print("ready", flush=True)
    if os.environ.get("WAIT"):
        input()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(folder: Path, **environment: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", KILLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(folder), **environment},
        cwd=Path(__file__).parents[2],
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


@pytest.mark.skipif(os.name != "posix", reason="SIGKILL is POSIX's")
def test_the_next_process_removes_what_sigkill_left_in_the_temporary_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed(tmp_path).communicate()
    living = killed(tmp_path, WAIT="1")
    try:
        assert len(list(tmp_path.iterdir())) == 1  # the living one took the dead one's away
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        with temporary_folder() as root:
            assert len(list(tmp_path.iterdir())) == 2
        assert not root.exists()
    finally:
        living.communicate("\n")
    (dead,) = tmp_path.iterdir()
    assert time.time() - dead.stat().st_mtime < 3600
    killed(tmp_path).communicate()
    assert dead not in tmp_path.iterdir()

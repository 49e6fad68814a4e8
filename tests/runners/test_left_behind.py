"""What bundles that are here for a while only have on a board goes with them, whatever ends edgepack."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from edgepack.errors import EdgepackWarning
from edgepack.runners import adb, remote
from edgepack.runners.base import host_os
from edgepack.runners.job import Folder, prepare
from edgepack.runners.left_behind import Left, left_at, note
from edgepack.system.temporary import temporary_folder
from tests.support.boards import Device, like_a_bundle, run
from tests.support.sshd import Board
from workbench.stand_ins.adb import Phones, phone

pytestmark = pytest.mark.skipif(host_os() != "linux", reason="the tests' sshd is set up for Linux")

ROOT = Path(__file__).resolve().parents[2]

#: A run of a bundle in a temporary folder, which says when the program runs and is killed then.
KILLED = """
import sys
from pathlib import Path
from edgepack.system.temporary import temporary_folder
from tests.support.boards import like_a_bundle, run
with temporary_folder() as folder:
    root = like_a_bundle(folder / "program1", f"touch '{sys.argv[1]}'; exec sleep 1000")
    run(root, timeout=1000)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache and temporary files of the test's own."""
    for name in ("cache", "temporary"):
        (tmp_path / name).mkdir(mode=0o700)
    monkeypatch.setenv("EDGEPACK_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))


def kept(board: Board) -> list[str]:
    """Bundles' folders that it has."""
    return sorted(path.name for path in (board.home / ".cache" / "edgepack").glob("*"))


def test_what_a_temporary_bundle_has_on_a_board_is_removed_with_it(board: Board, tmp_path: Path) -> None:
    """Of several, those that are gone by the next run, the last one in the end; other bundles' folders, and
    those of others, stay."""
    run(like_a_bundle(tmp_path / "kept", "exit 3"))
    (other,) = kept(board)
    (board.home / ".cache" / "edgepack" / "program1-01234567").mkdir()
    with temporary_folder() as folder:
        first = like_a_bundle(folder / "program1", "exit 3")
        assert run(first).returncode == 3
        assert run(first, "again").returncode == 3
        assert len(kept(board)) == 3
        shutil.rmtree(first)
        assert run(like_a_bundle(folder / "program2", "exit 4")).returncode == 4
        assert [name for name in kept(board) if name.startswith("program2")] and len(kept(board)) == 3
    assert kept(board) == sorted([other, "program1-01234567"])
    assert not list((tmp_path / "cache" / "boards-1").iterdir())


def test_an_exception_removes_it_too(board: Board) -> None:
    with pytest.raises(KeyboardInterrupt), temporary_folder() as folder:
        run(like_a_bundle(folder / "program1", "exit 3"))
        raise KeyboardInterrupt
    assert kept(board) == []


def test_the_next_run_removes_what_a_killed_process_left(board: Board, tmp_path: Path) -> None:
    """And the program on the board ended with it."""
    running = tmp_path / "running"
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-c", KILLED, str(running)]
    with subprocess.Popen(command, env=environment) as process:
        while not running.exists():
            assert process.poll() is None
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    (left,) = kept(board)
    assert left.startswith("program1-")
    run(like_a_bundle(tmp_path / "bundle", "exit 3"))
    assert [name for name in kept(board) if name.startswith("program1-")] == []


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_program_ends_by_itself_when_a_line_is_cut_without_a_word(shell: str, tmp_path: Path) -> None:
    """Its stdin stays open, as a board sees it whose cable was pulled; nothing is left running."""
    root = like_a_bundle(tmp_path / "bundle", "exec sleep 1000")
    job = prepare(Device(), str(tmp_path), [root / "bin" / "it"], root, guarded=True)
    job = replace(job, folder=Folder(str(tmp_path), "bundle", guarded=True))
    script = f"{remote._script(job, 1)}; echo ended $c"
    with subprocess.Popen(
        [shell, "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdout is not None and process.stdin is not None
        assert process.stdout.readline() == "ended 137\n"
        process.wait()
        process.stdin.close()
        assert gone(process.pid)


def gone(group: int) -> bool:
    """Whether nothing of a process group runs any more, after a while."""
    for _ in range(600):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


def test_a_program_that_ends_leaves_no_process(tmp_path: Path) -> None:
    root = like_a_bundle(tmp_path / "bundle", "exit 5")
    job = prepare(Device(), str(tmp_path), [root / "bin" / "it"], root, guarded=True)
    job = replace(job, folder=Folder(str(tmp_path), "bundle", guarded=True))
    command = ["sh", "-c", f"{remote._script(job, 1000)}; echo ended $c"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ended 5\n"
        process.communicate()
        assert gone(process.pid)


def test_a_board_without_sleep_lets_programs_run(tmp_path: Path) -> None:
    """They take longer than the shell needs to find that there is none."""
    tools = tmp_path / "path"
    tools.mkdir()
    for name in ("sh", "cat", "chmod"):
        (tools / name).symlink_to(str(shutil.which(name)))
    root = like_a_bundle(tmp_path / "bundle", "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; exit 5")
    job = prepare(Device(), str(tmp_path), [root / "bin" / "it"], root, guarded=True)
    job = replace(job, folder=Folder(str(tmp_path), "bundle", guarded=True))
    command = ["sh", "-c", f"{remote._script(job, 1000)}; echo ended $c"]
    done = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={"PATH": str(tools)}
    )
    assert done.stdout is not None and done.stdin is not None
    assert done.stdout.readline() == "ended 5\n"
    done.communicate()


def test_a_board_that_is_gone_at_the_end_is_named_and_looked_for_again(board: Board, tmp_path: Path) -> None:
    named = r"board keeps \.cache/edgepack/program1-\w+, which the next run there removes"
    with pytest.warns(EdgepackWarning, match=named), temporary_folder() as folder:
        run(like_a_bundle(folder / "program1", "exit 3"))
        board.behave("exit 1")
    assert len(kept(board)) == 1
    board.behave()
    run(like_a_bundle(tmp_path / "bundle", "exit 3"))
    assert [name.partition("-")[0] for name in kept(board)] == ["bundle"]


def test_a_link_in_its_place_is_removed_and_not_followed(board: Board, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "file").touch()
    with temporary_folder() as folder:
        run(like_a_bundle(folder / "program1", "exit 3"))
        (name,) = kept(board)
        place = board.home / ".cache" / "edgepack" / name
        shutil.rmtree(place)
        place.symlink_to(precious)
    assert (precious / "file").exists() and not place.is_symlink()


@pytest.mark.parametrize(
    "name", ["..", ".", "-rf", "a/../b-01234567", "$(id)-01234567", "home", "/-01234567"]
)
def test_a_note_names_no_folder_but_a_bundles(name: str) -> None:
    note(Left("ssh board", ".cache/edgepack", name, "/nonexistent", "/"))
    assert left_at("ssh board", ".cache/edgepack") == []


def test_notes_are_of_one_place_and_one_folder_of_bundles(tmp_path: Path) -> None:
    note(Left("ssh board", "a", "x-01234567", "/nonexistent", "/"))
    note(Left("ssh board", "a", "y-01234567", str(tmp_path), "/"))
    note(Left("ssh board", "a", "z-01234567", "/nonexistent", "/", machine="another"))
    assert [one.name for one in left_at("ssh board", "a")] == ["x-01234567"]
    assert left_at("ssh another", "a") == left_at("ssh board", "b") == []


def test_a_phone_keeps_nothing_of_a_temporary_bundle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    phones = Phones(tmp_path / "adb")
    monkeypatch.setenv("PATH", f"{phones.path}{os.pathsep}{os.environ['PATH']}")
    phones.attach(phone())
    device = Device("our-phone", "aarch64", "android", "bionic", {"name": "adb", "options": {}})
    with temporary_folder() as folder:
        root = like_a_bundle(folder / "program1", "exit 3")
        assert adb.run(device, [root / "bin" / "it"], timeout=30, cwd=root).returncode == 3
        (files,) = (phones.files("28151FDH300ABC") / "edgepack").iterdir()
    assert not files.exists()

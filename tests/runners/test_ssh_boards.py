"""Boards behind ssh that are full, wrong, hostile or gone: one sentence says it, and nothing is left."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.errors import ToolchainError
from edgepack.runners import remote, ssh
from edgepack.runners.base import at_place, host_os
from tests.support.boards import Device, like_a_bundle, program, run
from tests.support.processes import ends
from tests.support.sshd import Board

pytestmark = pytest.mark.skipif(host_os() != "linux", reason="the tests' sshd is set up for Linux")

slow = pytest.mark.slow

root_only = pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="only root can do that")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return like_a_bundle(tmp_path / "bundle", "exit 3")


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Temporary files are in a folder of the test's own, which is empty at the end."""
    place = Path(tempfile.mkdtemp(prefix="boards-"))
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    yield
    left = list(place.iterdir())
    shutil.rmtree(place)
    assert not left


def kept(board: Board) -> list[Path]:
    """Bundles' folders that it has."""
    return sorted((board.home / ".cache" / "edgepack").glob("*"))


@contextmanager
def mounted(place: Path, size: str) -> Iterator[Path]:
    """A file system of its own."""
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "edgepack-test", place]
    if subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("nothing can be mounted here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@root_only
def test_a_disk_that_is_full_keeps_nothing_of_what_did_not_fit(board: Board, folder: Path) -> None:
    with mounted(board.home / "small", "128k") as disk:
        device = Device.with_options(directory=str(disk / "it"))
        with pytest.raises(ToolchainError, match=r"could not be written to .* on board") as caught:
            run(folder, device=device)
        assert "No space left on device" in caught.value.detail and "0.2 MB" in caught.value.hint
        assert not list((disk / "it").iterdir())
        (disk / "filler").write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize))
        with pytest.raises(ToolchainError, match=r"(could not be written to|cannot be made on) "):
            run(folder, device=device)


@root_only
def test_a_disk_that_is_read_only_runs_what_is_there_and_takes_no_more(board: Board, folder: Path) -> None:
    with mounted(board.home / "disk", "1m") as disk:
        device = Device.with_options(directory=str(disk))
        run(folder, device=device)
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        assert run(folder, device=device).returncode == 3
        program(folder, "exit 4")
        with pytest.raises(ToolchainError, match=r"could not be written to .* on board") as caught:
            run(folder, device=device)
        assert "It is read-only." in caught.value.detail
        other = Device.with_options(directory=str(disk / "more"))
        with pytest.raises(ToolchainError, match=r"The folder .* cannot be made on board"):
            run(folder, device=other)


def test_a_home_that_is_not_there_is_said_and_not_made(board: Board, folder: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for home in ("/nonexistent/home", ""):
        board.behave(f"export HOME={home}; cd '{elsewhere}'")
        with pytest.raises(ToolchainError, match=r"The folder \.cache/edgepack/.* cannot be made on board"):
            run(folder)
    assert not list(elsewhere.iterdir()) and not Path("/nonexistent").exists()


def test_noise_around_everything_is_not_taken_for_an_answer(board: Board, folder: Path) -> None:
    """Before and after, with no line's end, of the command itself, and of another's markers."""
    board.behave(
        'echo "$SSH_ORIGINAL_COMMAND"; echo "$SSH_ORIGINAL_COMMAND" >&2; printf "edgepack-0: no end"\n'
        "trap 'echo; echo Bye; echo edgepack-0:0; echo Bye >&2' EXIT"
    )
    program(folder, "echo out; exit 5")
    for _ in range(2):  # the second run finds all that is there
        done = run(folder)
        assert (done.returncode, done.stdout) == (5, "out")
    assert ssh.available(Device()).where == f"board (Linux {os.uname().machine})"


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param("exit 0", marks=slow),
        pytest.param("exit 1", marks=slow),
        pytest.param("echo '<html>404</html>'; exit 0", marks=slow),
        pytest.param("echo 'sh: not found' >&2; exit 127", marks=slow),
        pytest.param("head -c 300000 /dev/urandom; exit 0", marks=slow),
        r"printf '\033]0;title\007\033[2J/\n-rf ~\n'; exit 0",
        'echo "$SSH_ORIGINAL_COMMAND"; exit 0',
        "head -c 2000000 /dev/zero",
        pytest.param("echo / ; echo '-rf ~'; echo '0000 bin/it'; exit 0", marks=slow),
    ],
)
def test_a_login_that_is_no_shell_is_said(board: Board, folder: Path, answer: str) -> None:
    board.behave(answer)
    with pytest.raises(ToolchainError, match="board does not answer as a POSIX shell does") as caught:
        run(folder)
    text = str(caught.value)
    assert "\x1b" not in text and "\x07" not in text and len(text) < 20_000
    assert not ssh.available(Device()).ok
    assert not kept(board) or "exit" not in answer


@pytest.mark.parametrize(
    "stream", [pytest.param("stdout", marks=slow), pytest.param("stderr", marks=slow), "program"]
)
def test_a_device_that_answers_without_end_is_left(
    board: Board, folder: Path, tmp_path: Path, stream: str
) -> None:
    """At the login, on either stream, and from the program, which is ended."""
    program(folder, f"echo $$ > '{tmp_path}/pid'; exec yes 'a long line that has no end'")
    board.behave({"stdout": "exec cat /dev/zero", "stderr": "exec cat /dev/zero >&2"}.get(stream, ""))
    with pytest.raises(ToolchainError, match=r"on board printed more than 64 MiB, and was ended"):
        run(folder)
    if stream == "program":
        assert ends(int((tmp_path / "pid").read_text()))


@slow
def test_a_device_that_never_answers_is_left(board: Board, folder: Path, monkeypatch: Any) -> None:
    board.behave("exec sleep 1000")
    monkeypatch.setattr(remote, "_ASK_SECONDS", 1)
    with pytest.raises(ToolchainError, match="The shell on board did not end within 1 s"):
        run(folder)


def test_a_host_that_takes_connections_and_says_nothing(board: Board, folder: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(ssh._SETTINGS, "ConnectTimeout", "1")
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(ToolchainError, match=r"The connection to .* failed") as caught:
            run(folder, device=at_place(Device(), "ssh", place))
    assert "Try: ssh -p" in caught.value.hint


def test_a_host_that_is_no_ssh_server(board: Board, folder: Path) -> None:
    """And talks garbage, with control characters, for as long as it is listened to."""
    garbage = b"HTTP/1.1 400 \x1b]0;title\x07\r\n" * 4000
    with socket.create_server(("127.0.0.1", 0)) as server:

        def talk() -> None:
            with server.accept()[0] as peer:
                peer.sendall(garbage)
                peer.close()

        threading.Thread(target=talk, daemon=True).start()
        place = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(ToolchainError, match=r"The connection to .* failed") as caught:
            run(folder, device=at_place(Device(), "ssh", place))
    assert "\x1b" not in str(caught.value) and len(caught.value.message) < 400


def test_a_connection_that_breaks_while_it_looks(board: Board, folder: Path) -> None:
    board.behave("case $SSH_ORIGINAL_COMMAND in *umask*) kill -9 $PPID; exit ;; esac")
    with pytest.raises(ToolchainError, match="The connection to board failed"):
        run(folder)


def test_a_folder_in_the_place_of_the_bundles_is_not_used(board: Board, folder: Path, tmp_path: Path) -> None:
    """A link that somebody put there, before the first run and in the middle of one."""
    run(folder)
    (place,) = kept(board)
    target = tmp_path / "precious"
    (target / "bin").mkdir(parents=True)
    (target / "bin" / "it").write_text("precious")
    shutil.rmtree(place)
    place.symlink_to(target)
    with pytest.raises(ToolchainError, match="belongs to somebody else, or is a link: it is not used"):
        run(folder)
    for part in ("tar", "chmod.+x"):
        place.unlink()
        swap = f"mv '{place}' '{place}-away'; ln -s '{target}' '{place}'"
        board.behave(f"case $SSH_ORIGINAL_COMMAND in *{part.replace('.', '?')}*) {swap} ;; esac")
        with pytest.raises(ToolchainError, match=r"(could not be written to|belongs to somebody else)"):
            run(folder)
        shutil.rmtree(place.with_name(f"{place.name}-away"))
    assert [path.name for path in target.rglob("*")] == ["bin", "it"]
    assert (target / "bin" / "it").read_text() == "precious"
    assert target.stat().st_mode & 0o777 != 0o700


@root_only
def test_another_users_folder_is_not_used(board: Board, folder: Path) -> None:
    run(folder)
    (place,) = kept(board)
    os.chown(place, 65534, 65534)
    with pytest.raises(ToolchainError, match="belongs to somebody else") as caught:
        run(folder)
    assert "Remove it" in caught.value.hint


def test_exit_codes_and_lines_of_the_command(
    board: Board, small_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    board.behave(r"printf '\033]0;title\007 not a shell \342\200\256\n'; exit 0")
    assert main(["verify", str(small_bundle.path), "--runner", "ssh:board", "--quiet"]) == 4
    first, *more = capsys.readouterr().err.splitlines()
    assert first.startswith("edgepack: error: ") and first.endswith(".")
    assert all(line.isprintable() for line in more)
    board.behave(
        "uname() { printf 'Li\\033[2Jnux \\302\\233 x\\n'; }; " + 'eval "$SSH_ORIGINAL_COMMAND"; exit'
    )
    assert "\x1b" not in capsys.readouterr().out
    board.behave("export HOME=/nonexistent")
    assert main(["verify", str(small_bundle.path), "--runner", "ssh:board", "--quiet"]) == 4
    assert "cannot be made on board" in capsys.readouterr().err

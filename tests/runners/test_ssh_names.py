"""Places and names that a shell, or an option of ssh, could take for something else: each is used exactly as
it is meant, or refused before anything is started."""

from __future__ import annotations

import getpass
import json
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners import ssh
from edgepack.runners.base import at_place, host_os
from tests.support.boards import Device, like_a_bundle, program, run
from tests.support.sshd import Board

pytestmark = pytest.mark.skipif(host_os() != "linux", reason="the tests' sshd is set up for Linux")

#: What a shell, csh's history, fish's escapes, ``printf``, an option or a text's encoding could be taken by.
HOSTILE = (
    '-rf it\'s "a" $(touch hacked) `touch hacked`; touch hacked & * ? ! !! \\ \\0101 %s ~ # '
    "\n touch hacked \t \x1b[2J ü \udcff"
)


#: Relatives of ``sh``.
_SHELLS = ("busybox sh", "mksh", "bash", "zsh", "yash")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return like_a_bundle(tmp_path / HOSTILE, 'printf "%s|%s" "$*" "$COLOUR"; exit 3')


@pytest.fixture
def recorder(tmp_path: Path) -> Path:
    """An ``ssh`` that writes down what it was called with, and fails."""
    script = (
        f"#!{sys.executable}\nimport json, sys\n"
        f"with open({str(tmp_path / 'calls')!r}, 'a') as calls:\n"
        "    print(json.dumps(sys.argv[1:]), file=calls)\n"
        "sys.exit(255)\n"
    )
    path = tmp_path / "recorder"
    path.write_text(script)
    path.chmod(0o755)
    return path


def calls(recorder: Path) -> list[list[str]]:
    """What it was called with."""
    file = recorder.with_name("calls")
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def placed(program: Path, place: str) -> Any:
    return at_place(Device(runner={"name": "ssh", "program": str(program)}), "ssh", place)


@pytest.mark.parametrize(
    "place",
    [
        *("-oProxyCommand=id", "[-oProxyCommand=id]", "me@-oProxyCommand=id", "-l@board", "-F/tmp/x:22"),
        *("$(id)", "`id`", "a;b", "a|b", "a&b", "a'b", 'a"b', "a\\b", "a*", "a?", "a<b", "{a,b}", "~", "#a"),
        *("$(id)@board", "`id`@board", "a;b@board", "a'b@board", "me\\@board", "!!@board", "-me@board"),
        *(
            "a b",
            "a\tb",
            "a\nb",
            "board\n",
            "me@board\n",
            "a\0b",
            "a\x1b[2J",
            "bo\udcffard",
            "a\u202eb",
            "\u200b",
        ),
        *("me@", "@board", "a@b@board", "host:port", "host:", "host:0", "host:65536", "host:-1", "host:²"),
        *("fe80::1", "[::1", "::1]", "[]", "[::1%$(id)]", "[::1]x", "[board]"),
        *("a" * 5000, "a@" + "b" * 5000, "board:" + "9" * 5000),
    ],
)
def test_a_place_that_is_none_is_refused_before_ssh_is_started(recorder: Path, place: str) -> None:
    with pytest.raises(ConfigError, match="is no place for ssh") as caught:
        ssh.available(placed(recorder, place))
    assert "IPv6 address in [ ]" in caught.value.hint
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    assert len(caught.value.message) < 200
    assert not calls(recorder)


@pytest.mark.parametrize(
    ("place", "meant"),
    [
        ("board", ["--", "board"]),
        ("me@board.example.org.", ["--", "me@board.example.org."]),
        ("me.too+1@my_board-2:22", ["-p", "22", "--", "me.too+1@my_board-2"]),
        ("HOME\\me@böard", ["--", "HOME\\me@böard"]),
        ("board%eth0:65535", ["-p", "65535", "--", "board%eth0"]),
        ("me@[fe80::1%eth0]:2222", ["-p", "2222", "--", "me@fe80::1%eth0"]),
        ("[::ffff:192.168.1.7]", ["--", "::ffff:192.168.1.7"]),
        ("//me@board:22/", ["-p", "22", "--", "me@board"]),
    ],
)
def test_a_place_reaches_ssh_as_it_was_written(recorder: Path, place: str, meant: list[str]) -> None:
    assert not ssh.available(placed(recorder, place)).ok
    (call, *_) = calls(recorder)
    assert [word for word in call if not word.startswith("-o") and word != "-N"] == meant


def test_the_command_line_refuses_a_place_in_one_sentence(
    small_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    place = "me@-oProxyCommand=touch hacked\x1b[2J\n"
    assert main(["verify", str(small_bundle.path), "--runner", f"ssh:{place}"]) == 2
    error, hint = capsys.readouterr().err.splitlines()[-2:]
    assert "is no place for ssh." in error and error.isprintable() and hint.startswith("  hint: ")


@pytest.mark.parametrize("port", ["abc", "22 -oProxyCommand=id", 0, 65536, -1, True, "9" * 5000])
def test_a_port_that_is_none_is_refused(recorder: Path, port: Any) -> None:
    device = Device(runner={"name": "ssh", "program": str(recorder), "options": {"host": "a", "port": port}})
    with pytest.raises(ConfigError, match=r"board: .* is no port for ssh"):
        ssh.available(device)
    assert not calls(recorder)


@pytest.mark.parametrize("directory", ["a\0b", "a" * 5000, "~other/cache"])
def test_a_folder_that_no_device_has_is_refused(recorder: Path, folder: Path, directory: str) -> None:
    options = {"host": "board", "directory": directory}
    device = Device(runner={"name": "ssh", "program": str(recorder), "options": options})
    with pytest.raises(ConfigError, match=r"board: the folder .* cannot be used on a device"):
        run(folder, device=device)
    assert not calls(recorder)


@pytest.mark.parametrize("name", ["A;touch hacked", "A B", "$(id)", "-A", "1A", "", "A\n", "Ä"])
def test_a_variable_that_is_none_is_refused(recorder: Path, folder: Path, name: str) -> None:
    device = Device(
        runner={
            "name": "ssh",
            "program": str(recorder),
            "options": {"host": "board"},
            "environment": {name: "red"},
        }
    )
    with pytest.raises(ConfigError, match=r"board: .* cannot be set on a device"):
        run(folder, device=device)
    assert not calls(recorder)


@pytest.mark.parametrize(
    "directory",
    [HOSTILE, *(pytest.param(name, marks=pytest.mark.slow) for name in ("--help", "~", "~/mine", "/"))],
)
def test_a_folder_on_the_device_is_used_as_it_is_written(
    board: Board, folder: Path, tmp_path: Path, directory: str
) -> None:
    there = {"~": board.home, "~/mine": board.home / "mine"}.get(directory, board.home / directory)
    if directory == "/":
        directory = f"/{board.home}/abs//"
        there = board.home / "abs"
    done = run(folder, HOSTILE, device=Device.with_options({"COLOUR": HOSTILE}, directory=directory))
    assert done.returncode == 3
    assert done.stdout.encode("utf-8", "surrogateescape").replace(b"\xef\xbf\xbd", b"\xff") == (
        f"{HOSTILE}|{HOSTILE}".encode("utf-8", "surrogateescape")
    )
    (kept,) = (path for path in there.iterdir() if path.is_dir())
    assert (kept / "bin" / "it").is_file() and kept.name.isascii() and len(kept.name) < 100
    assert not [*board.folder.rglob("hacked"), *tmp_path.rglob("hacked")]


@pytest.mark.parametrize(
    "shell", ["fish", "tcsh", *(pytest.param(shell, marks=pytest.mark.slow) for shell in _SHELLS)]
)
def test_whatever_shell_the_login_has_names_are_what_they_are(board: Board, folder: Path, shell: str) -> None:
    program, *more = shell.split()
    found = shutil.which(program)
    if found is None:
        pytest.skip(f"no {program} here")
    board.behave(f'exec {" ".join([found, *more])} -c "$SSH_ORIGINAL_COMMAND"')
    done = run(folder, HOSTILE, device=Device.with_options(directory=HOSTILE))
    assert done.stdout.encode("utf-8", "surrogateescape").replace(b"\xef\xbf\xbd", b"\xff") == (
        f"{HOSTILE}|".encode("utf-8", "surrogateescape")
    )
    assert not list(board.folder.rglob("hacked"))


def test_files_of_a_bundle_are_copied_under_their_own_names(board: Board, folder: Path) -> None:
    names = ["-rf", 'it\'s "a" $(touch hacked) `touch hacked`; * ! #.bin', "ü" * 60, "a" * 200, "test/-x"]
    for name in names:
        path = folder / "test" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    run(folder)
    (kept,) = (board.home / ".cache" / "edgepack").iterdir()
    assert {(kept / "test" / name).read_text() for name in names} == set(names)
    assert not list(board.folder.rglob("hacked"))


@pytest.mark.parametrize("name", ["a\nb", "a\\b", "\udcff", "\x1b[2J"])
def test_a_file_whose_name_is_no_text_is_refused_before_ssh_is_started(
    recorder: Path, folder: Path, name: str
) -> None:
    (folder / "test" / name).write_text("")
    with pytest.raises(ConfigError, match="has a file of a name that is not copied to a device: 'test/"):
        run(folder, device=Device(runner={"name": "ssh", "program": str(recorder), "options": {"host": "a"}}))
    assert not calls(recorder)


def test_times_of_files_do_not_matter(board: Board, folder: Path) -> None:
    """Those of this machine's, before 1970 and after 2242, nor the device's clock."""
    for name, seconds in (("bin/it", -1), ("params/it.params", 1 << 34), ("test/input_0.bin", 0)):
        os.utime(folder / name, (seconds, seconds))
    run(folder)
    before = {path.name: path.stat().st_ctime_ns for path in board.cached()}
    for path in board.cached():
        os.utime(path, (1 << 32, 1 << 32))
    program(folder, "exit 4")
    os.utime(folder / "bin" / "it", (-1, -1))
    assert run(folder).returncode == 4
    after = {path.name: path.stat().st_ctime_ns for path in board.cached()}
    assert set(before) == {"it", "it.params", "input_0.bin"} == set(after)


def test_a_bundle_in_a_folder_that_is_no_text_has_one_folder_on_the_device(
    board: Board, small_bundle: Bundle, tmp_path: Path
) -> None:
    place = tmp_path / "b\udcff"
    shutil.copytree(small_bundle.path, place)
    for _ in range(2):
        assert Bundle(place).verify(runner="ssh:board").ok
    assert len(list((board.home / ".cache" / "edgepack").iterdir())) == 1


def test_a_bundle_in_a_folder_of_the_longest_name(board: Board, tmp_path: Path) -> None:
    assert run(like_a_bundle(tmp_path / ("b" * 255), "exit 3")).returncode == 3


def test_temporary_folders_of_any_name(board: Board, folder: Path, tmp_path: Path, monkeypatch: Any) -> None:
    odd = tmp_path / "a b%h ${HOME} ' \""
    odd.mkdir()
    short = Path(tempfile.mkdtemp(prefix="e "))
    try:
        for place in (odd, short):
            monkeypatch.setattr(tempfile, "tempdir", str(place))
            assert run(folder).returncode == 3
            assert not list(place.iterdir())
    finally:
        shutil.rmtree(short)


def test_a_user_without_a_name(board: Board, folder: Path, monkeypatch: Any) -> None:
    def unknown() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", unknown)
    assert run(folder).returncode == 3


def test_a_file_that_cannot_be_read_is_named(board: Board, folder: Path, monkeypatch: Any) -> None:
    def refuse(path: Path) -> str:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("edgepack.runners.job.sha256_file", refuse)
    with pytest.raises(ConfigError, match=r"bin/it cannot be read: Permission denied\."):
        run(folder)


def test_no_room_for_temporary_files_is_said(board: Board, folder: Path, monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(ssh.tarfile, "open", full)
    with pytest.raises((ConfigError, ToolchainError), match=r"No space left|is full"):
        run(folder)


def test_what_the_users_configuration_says_stays_and_no_connection_is_kept(
    board: Board, folder: Path
) -> None:
    """ControlPersist would keep ssh in the background when all is done."""
    config = board.folder / "ssh_config"
    text = config.read_text()
    try:
        config.write_text(f"{text}    ControlMaster auto\n    ControlPersist yes\n    SetEnv MINE=theirs\n")
        assert run(folder).returncode == 3
    finally:
        config.write_text(text)
    assert not [words for words in commands() if str(config) in words and "-N" in words]


def commands() -> list[list[str]]:
    """What runs on this machine."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue
        found.append(words)
    return found


def test_the_bundles_folder_is_its_owners_alone(board: Board, folder: Path) -> None:
    board.behave("umask 0")
    run(folder)
    (kept,) = (board.home / ".cache" / "edgepack").iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700

"""A device behind ssh: what is copied, how it runs, and what a user reads when something breaks."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.commands.doctor import examine_runners
from edgepack.config.device import load_device
from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners import select_runner, ssh
from edgepack.runners.base import at_place, host_os
from tests.support.boards import Device, like_a_bundle, program, run
from tests.support.processes import ends, printed_before_the_end
from tests.support.sshd import Board

pytestmark = pytest.mark.skipif(host_os() != "linux", reason="the tests' sshd is set up for Linux")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Something like a bundle, in a folder with a difficult name, whose program is a script."""
    root = tmp_path / "a bündle's $HOME"
    like_a_bundle(root, 'echo "$PWD|$*|$COLOUR"; echo warned >&2; exit 3')
    (root / "src").mkdir()
    (root / "src" / "model.c").write_text("not needed there")
    return root


def test_a_bundle_is_verified_and_measured_on_the_device(
    board: Board, small_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    result = small_bundle.verify(runner="ssh:board")
    assert result.ok
    assert (result.runner, result.where) == ("ssh", f"board (Linux {os.uname().machine})")
    names = {path.name for path in board.cached()}
    assert {"small", "small.params", "input_0.bin", "tolerances.txt"} <= names
    assert not {"libsmall.so", "model.c"} & names
    measured = small_bundle.bench(runner="ssh:board", runs=3, warmup=0)
    assert measured.real_speed and len(measured.runs_ms) == 3
    assert main(["verify", str(small_bundle.path), "--runner", f"ssh:127.0.0.1:{board.port}"]) == 0
    assert f"on 127.0.0.1:{board.port} (Linux" in capsys.readouterr().out


def test_arguments_exit_code_and_streams_come_through(board: Board, folder: Path) -> None:
    device = Device(
        runner={
            "name": "ssh",
            "options": {"host": "board", "directory": "my cache"},
            "environment": {"COLOUR": "it's $HOME"},
        }
    )
    done = run(folder, "a b", "it's", '"$HOME" `id` \\ * ;', folder / "test", device=device)
    (there,) = (board.home / "my cache").iterdir()
    assert done.stdout == f"{there}|a b it's \"$HOME\" `id` \\ * ; ./test|it's $HOME"
    assert (done.returncode, done.stderr.strip()) == (3, "warned")


def test_a_login_that_greets_is_not_taken_for_the_program(board: Board, folder: Path) -> None:
    board.behave("echo Welcome; echo 'Last login: never' >&2")
    assert run(folder).stdout == f"{board.cached('it')[0].parents[1]}||"
    before = board.cached("it.params")[0].stat().st_ctime_ns
    run(folder)
    assert board.cached("it.params")[0].stat().st_ctime_ns == before
    assert ssh.available(Device()).where == f"board (Linux {os.uname().machine})"


def test_a_folder_from_which_nothing_can_be_started_is_explained(board: Board, folder: Path) -> None:
    tools = board.home / "tools"
    tools.mkdir()
    (tools / "chmod").write_text('#!/bin/sh\nexec /bin/chmod a-x "$2"\n')
    (tools / "chmod").chmod(0o755)
    board.behave(f"PATH='{tools}':$PATH")
    with pytest.raises(ToolchainError, match=r"board cannot start it \(exit code 126\)") as caught:
        run(folder)
    assert "ermission denied" in caught.value.detail
    assert "noexec" in caught.value.hint


def test_a_program_that_a_signal_ends_is_reported_as_such(board: Board, folder: Path) -> None:
    program(folder, "echo before; kill -SEGV $$")
    done = run(folder)
    assert (done.returncode, done.stdout.strip()) == (-11, "before")


def test_only_what_changed_is_copied_again(board: Board, folder: Path) -> None:
    run(folder)
    assert [path.name for path in board.cached()] == ["it", "it.params", "input_0.bin"]
    before = {path.name: path.stat().st_ctime_ns for path in board.cached()}
    program(folder, "cat test/input_0.bin")
    (folder / "test" / "input_0.bin").write_text("other")
    assert run(folder).stdout == "other"
    after = {path.name: path.stat().st_ctime_ns for path in board.cached()}
    assert before["it.params"] == after["it.params"]
    assert before["it"] != after["it"]
    (damaged,) = board.cached("it.params")
    damaged.write_bytes(b"damaged there")
    run(folder)
    assert damaged.read_bytes() == bytes(200_000)


def test_two_bundles_of_one_name_do_not_meet(board: Board, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / folder.name
    shutil.copytree(folder, other)
    run(folder)
    run(other)
    assert len(board.cached("it")) == 2


def test_a_device_without_sha256sum_gets_all_files_each_time(board: Board, folder: Path) -> None:
    tools = board.folder / "few tools"
    if not tools.exists():
        tools.mkdir()
        for name in ("sh", "mkdir", "uname", "tar", "chmod", "cat"):
            (tools / name).symlink_to(str(shutil.which(name)))
    board.behave(f"PATH='{tools}'")
    for _ in range(2):
        assert run(folder).returncode == 3


def test_a_time_out_ends_the_program_there(board: Board, folder: Path) -> None:
    program(folder, "echo so far; echo $$ > pid; sleep 600")
    printed_before_the_end(lambda time: run(folder, timeout=time), "so far", "The program on board")
    gone(board)


def test_a_connection_that_breaks_while_it_runs(board: Board, folder: Path) -> None:
    program(folder, "echo so far; echo $$ > pid; sleep 60")
    board.behave("case $SSH_ORIGINAL_COMMAND in *bin/it*) (sleep 1; kill -9 $PPID) & ;; esac")
    with pytest.raises(ToolchainError, match="The connection to board broke") as caught:
        run(folder)
    assert "so far" in caught.value.detail
    gone(board)


def test_a_connection_that_breaks_while_it_copies(board: Board, folder: Path) -> None:
    board.behave(
        "case $SSH_ORIGINAL_COMMAND in *tar*) "
        "cd .cache/edgepack/*; head -c 90000 | tar -xf -; kill -9 $PPID; exit ;; esac"
    )
    with pytest.raises(ToolchainError, match="The connection to board failed"):
        run(folder)
    assert board.cached("it")
    board.behave()
    assert run(folder).returncode == 3
    (params,) = board.cached("it.params")
    assert params.read_bytes() == bytes(200_000)


def test_a_full_disk_is_said(board: Board, folder: Path, tmp_path: Path) -> None:
    """Writing fails after 64 KiB, as the kernel lets it fail when there is no room."""
    source = tmp_path / "full.c"
    source.write_text(
        "#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n#include <unistd.h>\n"
        "static size_t room = 65536;\n"
        "ssize_t write(int file, const void *bytes, size_t size) {\n"
        "    ssize_t (*real)(int, const void *, size_t);\n"
        '    *(void **)&real = dlsym(RTLD_NEXT, "write");\n'
        "    if (file > 2 && size > room) { errno = ENOSPC; return -1; }\n"
        "    if (file > 2) room -= size;\n"
        "    return real(file, bytes, size);\n}\n"
    )
    library = tmp_path / "full.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    board.behave(f"export LD_PRELOAD='{library}'")
    with pytest.raises(ToolchainError, match=r"could not be written to .* on board") as caught:
        run(folder)
    assert "No space left on device" in caught.value.detail
    assert "0.2 MB" in caught.value.hint


def test_a_folder_that_cannot_be_made_is_named(board: Board, folder: Path) -> None:
    device = Device(runner={"name": "ssh", "options": {"host": "board", "directory": "/proc/none"}})
    with pytest.raises(ToolchainError, match=r"The folder /proc/none/.* cannot be made on board") as caught:
        run(folder, device=device)
    assert "mkdir" in caught.value.detail
    assert "directory" in caught.value.hint


def test_a_missing_library_is_named_by_the_devices_loader(board: Board, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "x.c").write_text("int x(void) { return 0; }\n")
    (tmp_path / "main.c").write_text("int x(void); int main(void) { return x(); }\n")
    gcc = ["gcc", "-o"]
    subprocess.run([*gcc, tmp_path / "libgone.so", "-shared", "-fPIC", tmp_path / "x.c"], check=True)
    command = [*gcc, folder / "bin" / "it", tmp_path / "main.c", f"-L{tmp_path}", "-lgone"]
    subprocess.run(command, check=True)
    with pytest.raises(ToolchainError, match=r"board cannot start it \(exit code 127\)") as caught:
        run(folder)
    assert "libgone.so: cannot open shared object file" in caught.value.detail


def test_a_device_without_the_programs_libc_is_explained(board: Board, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }\n")
    command = ["gcc", "-o", folder / "bin" / "it", tmp_path / "main.c"]
    subprocess.run([*command, "-Wl,--dynamic-linker=/lib/ld-gone.so.1"], check=True)
    with pytest.raises(ToolchainError, match="board cannot start it") as caught:
        run(folder)
    assert "not found" in caught.value.detail
    assert "Its C library must be glibc" in caught.value.hint


def test_a_program_for_another_machine_is_explained(board: Board, folder: Path) -> None:
    code = bytearray(Path("/bin/true").read_bytes())
    code[18:20] = (0x9026).to_bytes(2, "little")  # Alpha
    (folder / "bin" / "it").write_bytes(code)
    with pytest.raises(ToolchainError, match="board cannot start it") as caught:
        run(folder, device=Device(arch="alpha"))
    assert f"Its machine is {os.uname().machine}" in caught.value.hint


@pytest.mark.parametrize(
    ("place", "said", "hint"),
    [
        ("nobody@no-such-host.invalid", "Could not resolve", "Check the name"),
        ("127.0.0.1:1", "Connection refused", "on this port?"),
        ("no-one@127.0.0.1:{port}", "Permission denied", "ssh-copy-id -p {port} no-one@127.0.0.1"),
        ("[::1]:1", "", ""),
        ("no-one-is-called-so@board", "Permission denied", "ssh-copy-id no-one-is-called-so@board"),
    ],
)
def test_no_connection_says_why_and_what_to_try(
    board: Board, folder: Path, place: str, said: str, hint: str
) -> None:
    place, hint = place.format(port=board.port), hint.format(port=board.port)
    device = at_place(Device(), "ssh", place)
    with pytest.raises(ToolchainError, match=r"The connection to .* failed") as caught:
        run(folder, device=device)
    assert said in caught.value.detail
    assert hint in caught.value.hint
    with pytest.raises(ToolchainError, match="The runner ssh cannot run programs of board here") as caught:
        select_runner(Device(), f"ssh:{place}")
    assert hint in caught.value.hint


def test_a_host_whose_key_is_not_known_is_not_trusted(board: Board, folder: Path) -> None:
    known = board.folder / "known_hosts"
    text = known.read_text()
    try:
        known.write_text("")
        with pytest.raises(ToolchainError) as caught:
            run(folder)
    finally:
        known.write_text(text)
    assert "Host key verification failed" in caught.value.detail
    assert caught.value.hint == "Connect once by hand, and accept its key: ssh board"


@pytest.mark.parametrize("place", ["-oProxyCommand=id", "a b", "me@", "host:port", "fe80::1"])
def test_what_is_no_place_is_refused(place: str, board: Board, folder: Path) -> None:
    with pytest.raises(ConfigError, match="is no place for ssh"):
        run(folder, device=at_place(Device(), "ssh", place))


def test_mistakes_in_the_profile_are_named(board: Board, folder: Path) -> None:
    with pytest.raises(ConfigError, match="the runner ssh has no option 'hots'") as caught:
        ssh.available(Device(runner={"name": "ssh", "options": {"hots": "board"}}))
    assert "Did you mean host?" in caught.value.hint
    ok, where, hint = ssh.available(Device(runner={"name": "qemu", "options": {"host": "board"}}))
    assert not ok and where.endswith("ssh")
    assert "--runner ssh:USER@HOST" in hint
    with pytest.raises(ConfigError, match="The runner native runs programs on this machine only"):
        select_runner(Device(), "native:board")


def test_without_a_shared_connection_each_command_makes_its_own(
    board: Board, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Windows."""
    monkeypatch.setattr(ssh, "SHARED", False)
    assert run(folder).returncode == 3
    with pytest.raises(ToolchainError, match="failed") as caught:
        run(folder, device=at_place(Device(), "ssh", "127.0.0.1:1"))
    assert "Connection refused" in caught.value.detail


def test_doctor_tries_the_device(board: Board, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--runner", "ssh:board", "--quiet"]) == 0
    out = capsys.readouterr().out
    assert "ssh *" in out and f"board (Linux {os.uname().machine})" in out
    found = {one.name: one for one in examine_runners(load_device("host"), "ssh:127.0.0.1:1")}
    assert found["ssh"].chosen and not found["native"].chosen
    assert not found["ssh"].ok and found["ssh"].hint.startswith("The connection to 127.0.0.1:1 failed")
    assert main(["doctor", "--runner", "shh:board"]) == 2


def gone(board: Board) -> None:
    """The program on the device ends soon."""
    (pid,) = board.cached("pid")
    assert ends(int(pid.read_text()))

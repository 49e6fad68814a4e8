"""In the sandbox, a bundle's program sees its bundle and the system's libraries, and changes nothing."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError, ToolchainError
from edgepack.options import RunOptions
from edgepack.runners import sandbox
from edgepack.runners.base import Call, arch_of, host_os
from edgepack.runners.program import Result, run_program
from edgepack.runners.strangers import STRANGER
from edgepack.toolchains import resolve
from tests.runners.test_recorded import bundle
from tests.support.c_sources import SOURCES

pytestmark = pytest.mark.skipif(host_os() != "linux", reason="bubblewrap is for Linux")

Escape = Callable[[str, bool], Result]


@pytest.fixture
def works() -> None:
    """Skips where there is no sandbox, with what is missing."""
    try:
        sandbox.sandbox_name()
    except ToolchainError as error:
        pytest.skip(f"{error.message} {error.hint} {error.detail}")


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file in this user's home."""
    path = Path.home() / f".edgepack-test-{os.getpid()}"
    path.write_text("secret")
    monkeypatch.setenv("EDGEPACK_TEST_TOKEN", "secret")
    yield path
    path.unlink()


@pytest.fixture
def escape(tmp_path: Path, secret: Path) -> Escape:
    """Runs a hostile program for a device, with a sandbox or without; what it could do."""

    def run(device: str, confined: bool) -> Result:
        profile = load_device(device)
        root = tmp_path / f"{device} {confined}"
        kind = {"arch": profile.arch, "os": profile.os, "libc": profile.libc}
        bundle(root, {**kind, "runner": {"name": profile.runner.name}})
        toolchain = resolve(profile, "zig")
        toolchain.compile_c(SOURCES / "escape.c", tmp_path / "escape.o")
        toolchain.link_program([tmp_path / "escape.o"], root / "bin" / "net")
        temporary = Path(f"/tmp/left_behind-{os.getpid()}")
        with socket.create_server(("127.0.0.1", 0)) as server:
            arguments = [str(secret), str(server.getsockname()[1]), f"{secret}-written", str(temporary)]
            _, result = run_program(root, Bundle(root).manifest, arguments, RunOptions(sandbox=confined))
        left = (Path(f"{secret}-written"), root / "left_behind", temporary)
        assert [path.exists() for path in left] == [not confined] * 3
        for path in left:
            path.unlink(missing_ok=True)
        return result

    return run


#: What a program can do, and in the sandbox.
FREE = dict.fromkeys(
    ("reads", "connects", "writes", "in_bundle", "temporary", "manifest", "token", "parent"), 1
)
CONFINED = {**dict.fromkeys(FREE, 0), "temporary": 1, "manifest": 1}


@pytest.mark.usefixtures("works")
@pytest.mark.parametrize(
    # For musl zig builds a libc from its sources: a minute of CPU time.
    "device",
    ["host", pytest.param("linux-aarch64-musl", marks=pytest.mark.slow)],
)
def test_a_program_reads_the_home_the_network_and_its_parent_only_without_it(
    device: str, escape: Escape
) -> None:
    if device != "host" and (
        arch_of(os.uname().machine) == "aarch64" or shutil.which("qemu-aarch64") is None
    ):
        pytest.skip("qemu-aarch64 is not here, or not needed")
    assert {key: value for key, value in escape(device, False).items() if key in FREE} == FREE
    assert {key: value for key, value in escape(device, True).items() if key in FREE} == CONFINED


@pytest.mark.usefixtures("works")
def test_a_bundle_is_verified_and_measured_in_it(
    small_bundle: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    result = small_bundle.verify(sandbox=True)
    assert result.ok
    assert ", in bubblewrap " in result.where
    assert main(["bench", str(small_bundle.path), "--sandbox", "--runs", "2", "--json", "-q"]) == 0
    assert len(json.loads(capsys.readouterr().out)["runs_ms"]) == 2


@pytest.mark.usefixtures("works")
def test_what_a_program_leaves_running_ends_with_it(tmp_path: Path) -> None:
    """In sessions of their own, with the program's streams and without: neither is waited for."""
    machine = load_device("host")
    kind = {"arch": machine.arch, "os": machine.os, "libc": machine.libc, "runner": {"name": "native"}}
    children = "setsid sleep 98765 & setsid sleep 98765 >/dev/null 2>&1 </dev/null &"
    root = bundle(tmp_path / "bundle", kind, f'{children} echo \'{{"status": "ok"}}\'; exit 0')
    _, result = run_program(root, Bundle(root).manifest, [], RunOptions(sandbox=True, timeout=600))
    assert result == {"status": "ok"}
    running = (path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline"))
    assert not [line for line in running if b"98765" in line]


@pytest.mark.usefixtures("works")
def test_a_crash_and_a_program_that_never_ends_are_told_as_without_it(tmp_path: Path) -> None:
    machine = load_device("host")
    kind = {"arch": machine.arch, "os": machine.os, "libc": machine.libc, "runner": {"name": "native"}}
    crashing = bundle(tmp_path / "crashing", kind, "kill -SEGV $$")
    with pytest.raises(CheckFailedError, match=r"was ended by SIGSEGV \(native\)"):
        Bundle(crashing).verify(sandbox=True)
    endless = bundle(tmp_path / "endless", kind, "sleep 1000")
    with pytest.raises(ToolchainError, match=r"did not end within 0\.5 s"):
        Bundle(endless).verify(sandbox=True, timeout=0.5)


@pytest.fixture
def ways(works: None) -> list[sandbox._Way]:
    """The ways, with /proc and without, on which bubblewrap can make a sandbox here."""
    del works
    bwrap = sandbox._find()
    found = [way._replace(proc=proc) for way in sandbox._ways() for proc in (True, False)]
    return [way for way in found if _starts(sandbox._command(bwrap, way, [], ["true"]))]


def _starts(command: list[str]) -> bool:
    return subprocess.run(command, cwd="/", capture_output=True, timeout=20, check=False).returncode == 0


@pytest.fixture(scope="module")
def looking(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that looks for what it may write, and a file that only its owner may read."""
    folder = tmp_path_factory.mktemp("looking")
    toolchain = resolve(load_device("host"), "zig")
    toolchain.compile_c(SOURCES / "writable.c", folder / "writable.o")
    toolchain.link_program([folder / "writable.o"], folder / "writable")
    folder.chmod(0o755)
    return folder


def test_a_program_can_write_no_setting_of_the_kernel_and_is_not_root(
    ways: list[sandbox._Way], looking: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for way in ways:
        monkeypatch.setattr(sandbox, "_way", lambda _, way=way: way)
        call = Call([looking / "writable"], {}, "writable")
        done = sandbox.run_confined(call, timeout=60, cwd=looking)
        seen = json.loads(done.stdout)
        assert (seen["opened"], seen["paths"]) == (0, ""), way.what
        assert seen["seen"] > (1000 if way.proc else 10)
        assert seen["uid"] == (os.geteuid() or STRANGER)
        assert seen["groups"] == 0 or os.geteuid() != 0
        assert [value for key, value in seen.items() if key.startswith("Cap") and key != "CapBnd"] == (
            [0] * 4 * way.proc
        )


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="root has files that others cannot read")
def test_what_only_root_may_read_in_a_folder_that_is_shown_stays_so(
    ways: list[sandbox._Way], looking: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bundle and what the runner names are copied for the program where others cannot read them; what
    is beside them in the system's folders is not."""
    usr = tmp_path / "usr"
    usr.mkdir()
    (usr / "secret").write_text("secret")
    (usr / "secret").chmod(0o600)
    tmp_path.chmod(0o755)
    monkeypatch.setattr(sandbox, "_SYSTEM", (*sandbox._SYSTEM, str(usr)))
    for way in ways:
        if way.by_path:
            continue  # it cannot even mount what is in a folder of root's
        monkeypatch.setattr(sandbox, "_way", lambda _, way=way: way)
        call = Call([looking / "writable", usr / "secret"], {}, "writable")
        assert json.loads(sandbox.run_confined(call, timeout=60, cwd=looking).stdout)["secret"] == 0


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="root has files that others cannot read")
def test_a_bundle_that_only_root_may_read_is_run_and_nothing_else_shown(
    ways: list[sandbox._Way], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = load_device("host")
    kind = {"arch": machine.arch, "os": machine.os, "libc": machine.libc, "runner": {"name": "native"}}
    said = """printf '{"status": "mismatch", "read": "%s", "link": "%s"}' "$(cat test/data)" "$(cat link)" """
    root = bundle(tmp_path / "bundle", kind, said)
    (tmp_path / "outside").write_text("outside")
    (root / "link").symlink_to(tmp_path / "outside")
    (root / "test" / "data").write_text("inside")
    os.mkfifo(root / "fifo")
    for path in (root / "bin" / "net", root / "test", root):
        path.chmod(0o700)
    (root / "test" / "data").chmod(0o600)
    for way in ways:
        monkeypatch.setattr(sandbox, "_way", lambda _, way=way: way)
        monkeypatch.setattr(sandbox, "sandbox_name", lambda: "")
        _, result = run_program(root, Bundle(root).manifest, [], RunOptions(sandbox=True))
        assert (result["read"], result["link"]) == ("inside", "")


def test_it_works_where_no_proc_can_be_mounted(
    ways: list[sandbox._Way], small_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a container whose /proc is partly masked."""
    for way in ways:
        if not way.proc:
            monkeypatch.setattr(sandbox, "_way", lambda _, way=way: way)
            assert small_bundle.verify(sandbox=True).ok


def test_roots_sandbox_needs_a_program_that_gives_root_up(
    small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, works: None
) -> None:
    del works
    (tmp_path / "bwrap").symlink_to(sandbox._find())
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(sandbox, "_is_the_kernels_root", lambda: True)
    with pytest.raises(ToolchainError, match="needs setpriv") as caught:
        small_bundle.verify(sandbox=True)
    assert "run edgepack as another user" in caught.value.hint


def test_without_bubblewrap_nothing_is_run_and_its_package_named(
    small_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("edgepack.runners.native.execute", None)
    with pytest.raises(ToolchainError, match=r"A sandbox needs bubblewrap \(bwrap\)") as caught:
        small_bundle.verify(sandbox=True)
    assert caught.value.hint == "Get it: apt-get install bubblewrap."


def test_where_it_cannot_work_it_is_said_why(
    small_bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "bwrap"
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    with pytest.raises(ToolchainError, match="bubblewrap cannot make a sandbox here") as caught:
        small_bundle.bench(sandbox=True)
    assert "No permissions to create new namespace" in caught.value.detail
    assert "user namespaces" in caught.value.hint
    # What would let a container's program do more to its host.
    assert not {"unconfined", "privileged", "SYS_ADMIN"} & set(re.findall(r"\w+", caught.value.hint))


def test_a_runner_of_another_machine_is_refused_in_it(
    tmp_path: Path, small_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgepack.runners.ssh.available", lambda device: (True, "board", ""))
    with pytest.raises(ConfigError, match="The runner ssh cannot be run in a sandbox") as caught:
        small_bundle.verify(runner="ssh:board", sandbox=True)
    assert "native, qemu, qemu-system and node can" in caught.value.hint
    with pytest.raises(ConfigError, match="sandbox is True or False"):
        small_bundle.verify(sandbox="yes")  # type: ignore[arg-type]

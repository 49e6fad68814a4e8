"""In the sandbox, a bundle's program sees its bundle and the system's libraries, and changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgepack.api import Bundle
from edgepack.cli.main import main
from edgepack.config.device import load_device
from edgepack.errors import CheckFailedError, ConfigError, ToolchainError
from edgepack.options import RunOptions
from edgepack.runners import sandbox
from edgepack.runners.base import arch_of, host_os
from edgepack.runners.program import Result, run_program
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
def test_a_crash_and_a_program_that_never_ends_are_told_as_without_it(tmp_path: Path) -> None:
    machine = load_device("host")
    kind = {"arch": machine.arch, "os": machine.os, "libc": machine.libc, "runner": {"name": "native"}}
    crashing = bundle(tmp_path / "crashing", kind, "kill -SEGV $$")
    with pytest.raises(CheckFailedError, match=r"was ended by SIGSEGV \(native\)"):
        Bundle(crashing).verify(sandbox=True)
    endless = bundle(tmp_path / "endless", kind, "sleep 1000")
    with pytest.raises(ToolchainError, match=r"did not end within 0\.5 s"):
        Bundle(endless).verify(sandbox=True, timeout=0.5)


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


def test_a_runner_of_another_machine_is_refused_in_it(
    tmp_path: Path, small_bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edgepack.runners.ssh.available", lambda device: (True, "board", ""))
    with pytest.raises(ConfigError, match="The runner ssh cannot be run in a sandbox") as caught:
        small_bundle.verify(runner="ssh:board", sandbox=True)
    assert "native, qemu, qemu-system and node can" in caught.value.hint
    with pytest.raises(ConfigError, match="sandbox is True or False"):
        small_bundle.verify(sandbox="yes")  # type: ignore[arg-type]

"""A device behind adb: which one is used, what is copied, and what a user reads when something is wrong.

The devices are those of :mod:`workbench.stand_ins.adb`; their programs are this machine's shell scripts.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from edgepack.cli.main import main
from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners import adb, select_runner
from edgepack.runners.base import at_place, host_os
from edgepack.system.process import Completed
from tests.support.processes import printed_before_the_end
from workbench.stand_ins.adb import Phones, phone

pytestmark = pytest.mark.skipif(host_os() == "windows", reason="the tests' adb is a shell script")


@dataclass(frozen=True)
class Device:
    name: str = "our-phone"
    arch: str = "aarch64"
    os: str = "android"
    libc: str = "bionic"
    runner: dict[str, Any] = field(default_factory=lambda: {"name": "adb"})


@pytest.fixture
def phones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Phones:
    """adb, with one phone."""
    found = Phones(tmp_path / "adb")
    monkeypatch.setenv("PATH", f"{found.path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv("ANDROID_SERIAL", raising=False)
    found.attach(phone())
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Something like a bundle, whose program is a script."""
    root = tmp_path / "a bündle's $HOME"
    for name in ("bin", "params", "test"):
        (root / name).mkdir(parents=True)
    program(root, 'echo "$*|$COLOUR"; cat test/input_0.bin; echo warned >&2; exit 3')
    (root / "params" / "it.params").write_bytes(bytes(200_000))
    (root / "test" / "input_0.bin").write_text("input")
    return root


def program(root: Path, script: str) -> None:
    (root / "bin" / "it").write_text(f"#!/bin/sh\n{script}\n")


def run(root: Path, *arguments: str | Path, device: Any = None, timeout: float = 30) -> Completed:
    argv = [root / "bin" / "it", *arguments]
    return adb.run(device or Device(), argv, timeout=timeout, cwd=root)


def test_arguments_exit_code_and_streams_come_through(phones: Phones, folder: Path) -> None:
    device = Device(runner={"name": "adb", "environment": {"COLOUR": "it's $HOME"}})
    done = run(folder, "a b", "it's", '"$HOME" `id` \\ * ;', folder / "test", device=device)
    assert done.stdout == "a b it's \"$HOME\" `id` \\ * ; ./test|it's $HOME\ninput"
    assert (done.returncode, done.stderr.strip()) == (3, "warned")
    (bundle,) = (phones.files("28151FDH300ABC") / "edgepack").iterdir()
    assert sorted(path.name for path in bundle.rglob("*") if path.is_file()) == [
        "input_0.bin",
        "it",
        "it.params",
    ]


def test_only_what_changed_is_pushed_again(phones: Phones, folder: Path) -> None:
    run(folder)
    (params,) = phones.files("28151FDH300ABC").rglob("it.params")
    before = params.stat().st_mtime_ns
    (folder / "test" / "input_0.bin").write_text("other")
    assert run(folder).stdout.endswith("other")
    assert params.stat().st_mtime_ns == before


def test_the_device_is_described(phones: Phones) -> None:
    selected = select_runner(Device())
    assert selected.name == "adb" and selected.runner.REAL_SPEED
    assert selected.where == "Pixel 7 (28151FDH300ABC, Android 14, API level 34, arm64-v8a)"


def test_one_of_several_is_chosen_by_option_profile_or_environment(
    phones: Phones, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phones.attach(phone("AAA"), phone("emulator-5554"), phone("CCC", "offline"))
    with pytest.raises(
        ToolchainError, match=r"Several Android devices are attached: AAA \(Pixel_7\)"
    ) as caught:
        run(folder)
    assert caught.value.hint == "Choose one: --runner adb:AAA, or set ANDROID_SERIAL."
    assert "CCC" not in caught.value.message
    monkeypatch.setenv("ANDROID_SERIAL", "AAA")
    assert "(AAA," in select_runner(Device()).where
    profile = Device(runner={"name": "adb", "options": {"serial": "emulator-5554"}})
    assert "(emulator-5554," in select_runner(profile).where
    assert "(AAA," in select_runner(profile, "adb:AAA").where


def test_the_only_one_that_can_be_used_is_used(phones: Phones) -> None:
    phones.attach(phone("AAA", "unauthorized"), phone("BBB"))
    assert "(BBB," in select_runner(Device()).where


@pytest.mark.parametrize(
    ("state", "hint"),
    [
        ("unauthorized", "allow USB debugging"),
        ("offline", "connect it again"),
        ("no permissions", "udev rules"),
        ("recovery", "Start Android on it"),
    ],
)
def test_a_device_that_cannot_be_used_is_explained(
    phones: Phones, folder: Path, state: str, hint: str
) -> None:
    phones.attach(phone("AAA", state))
    with pytest.raises(
        ToolchainError, match=f"The Android device AAA cannot be used: adb says {state}"
    ) as caught:
        run(folder)
    assert hint in caught.value.hint
    with pytest.raises(
        ToolchainError, match="The runner adb cannot run programs of our-phone here"
    ) as caught:
        select_runner(Device())
    assert hint in caught.value.hint


def test_no_device_and_another_one_are_explained(phones: Phones, folder: Path) -> None:
    with pytest.raises(ToolchainError, match=r"ZZZ is not attached; attached: 28151FDH300ABC \(Pixel_7\)"):
        run(folder, device=at_place(Device(), "adb", "ZZZ"))
    phones.attach()
    with pytest.raises(ToolchainError, match="No Android device is attached") as caught:
        run(folder)
    assert "USB debugging" in caught.value.hint


def test_a_device_of_another_kind_is_refused(phones: Phones) -> None:
    phones.attach(phone(abis="x86_64,arm64-v8a"))
    assert adb.available(Device()).ok
    assert adb.available(Device(arch="x86_64")).ok
    ok, _, hint = adb.available(Device(arch="arm"))
    assert not ok and hint == "Pixel 7 runs x86_64,arm64-v8a; the bundle is for armeabi-v7a."
    assert adb.available(Device(os="linux")).hint == "adb runs programs of Android only."


def test_adb_is_found_in_androids_sdk(
    phones: Phones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nobody")
    monkeypatch.setenv("ANDROID_HOME", str(tmp_path / "sdk"))
    monkeypatch.delenv("ANDROID_SDK_ROOT", raising=False)
    assert "apt-get install adb" in adb.available(Device()).hint
    with pytest.raises(ToolchainError, match="adb cannot run programs"):
        run(tmp_path)
    tools = tmp_path / "sdk" / "platform-tools"
    tools.mkdir(parents=True)
    (tools / "adb").symlink_to(phones.path / "adb")
    assert adb.available(Device()).ok


def test_a_time_out_shows_what_was_printed(phones: Phones, folder: Path) -> None:
    program(folder, "echo so far; sleep 600")
    printed_before_the_end(lambda time: run(folder, timeout=time), "so far", "The program on 28151FDH300ABC")


def test_a_device_that_is_unplugged_meanwhile(phones: Phones, folder: Path) -> None:
    run(folder)
    program(folder, "echo so far; sleep 6")
    phones.attach(phone(vanish=2))
    with pytest.raises(ToolchainError, match="The connection to 28151FDH300ABC broke while it ran") as caught:
        run(folder)
    assert "so far" in caught.value.detail


def test_a_full_device_is_said(phones: Phones, folder: Path) -> None:
    phones.attach(phone(room=100_000))
    with pytest.raises(ToolchainError, match=r"could not be written to /data/local/tmp/.* on 2815") as caught:
        run(folder)
    assert "No space left on device" in caught.value.detail
    assert "0.2 MB" in caught.value.hint
    phones.attach(phone())
    assert run(folder).returncode == 3


def test_a_program_that_cannot_start_is_explained(phones: Phones, folder: Path) -> None:
    (folder / "bin" / "it").write_text("#!/system/bin/none\n")
    with pytest.raises(ToolchainError, match=r"28151FDH300ABC cannot start it \(exit code 12") as caught:
        run(folder)
    assert "not found" in caught.value.detail


def test_an_unknown_option_of_the_profile_is_named(phones: Phones) -> None:
    with pytest.raises(ConfigError, match="the runner adb has no option 'seriel'"):
        adb.available(Device(runner={"name": "adb", "options": {"seriel": "AAA"}}))


def test_doctor_describes_the_device(phones: Phones, capsys: pytest.CaptureFixture[str]) -> None:
    main(["doctor", "--device", "android-arm64", "--quiet"])
    assert "Pixel 7 (28151FDH300ABC, Android 14" in capsys.readouterr().out
    phones.attach(phone(state="unauthorized"))
    assert main(["doctor", "--device", "android-arm64", "--quiet"]) == 4
    assert "adb says unauthorized. Unlock it" in capsys.readouterr().out

"""Names that adb or a device's shell could take for something else, and devices that are wrong or hostile."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import ConfigError, ToolchainError
from edgepack.runners import adb, remote, select_runner
from edgepack.runners.base import at_place, host_os
from edgepack.system.process import Completed
from tests.support.boards import Device, like_a_bundle, program
from workbench.stand_ins.adb import Phones, phone

pytestmark = pytest.mark.skipif(host_os() == "windows", reason="the tests' adb is a shell script")

#: What a shell, an option or a text's encoding could be taken by.
HOSTILE = (
    '-rf it\'s "a" $(touch hacked) `touch hacked`; touch hacked & * ? ! \\ \\0101 %s ~ # '
    "\n touch hacked \t \x1b[2J ü \udcff"
)
SERIAL = "28151FDH300ABC"


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
    return like_a_bundle(tmp_path / HOSTILE, 'printf "%s|%s" "$*" "$COLOUR"; exit 3')


def device(environment: dict[str, str] | None = None, **options: Any) -> Device:
    runner = {"name": "adb", "options": options, "environment": environment or {}}
    return Device("our-phone", "aarch64", "android", "bionic", runner)


def run(root: Path, *arguments: str, on: Any = None, timeout: float = 30) -> Completed:
    return adb.run(on or device(), [root / "bin" / "it", *arguments], timeout=timeout, cwd=root)


def hacked(tmp_path: Path) -> list[Path]:
    return [*tmp_path.rglob("hacked"), *(path for path in (Path("hacked"), Path("/hacked")) if path.exists())]


def kept(phones: Phones) -> list[Path]:
    """Bundles' folders that the phone has."""
    return sorted((phones.files(SERIAL) / "edgepack").glob("*"))


def test_names_are_used_as_they_are(phones: Phones, folder: Path, tmp_path: Path) -> None:
    names = ["-rf", "--sync", 'it\'s "a" $(touch hacked) `touch hacked`; * !.bin', "ü" * 60]
    for name in names:
        (folder / "test" / name).write_text(name)
    there = device({"COLOUR": HOSTILE}, directory=f"/data/local/tmp/{HOSTILE}")
    done = run(folder, HOSTILE, on=there)
    assert done.stdout.encode("utf-8", "surrogateescape").replace(b"\xef\xbf\xbd", b"\xff") == (
        f"{HOSTILE}|{HOSTILE}".encode("utf-8", "surrogateescape")
    )
    (bundle,) = (phones.files(SERIAL) / HOSTILE).iterdir()
    assert {(bundle / "test" / name).read_text() for name in names} == set(names)
    assert not hacked(tmp_path)


def test_a_bundle_in_the_current_folder_is_no_option(
    phones: Phones, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    like_a_bundle(tmp_path / "-p", "exit 3")
    monkeypatch.chdir(tmp_path)
    assert run(Path("-p")).returncode == 3


@pytest.mark.parametrize(
    "serial",
    [
        "-e",
        "-x;$(touch${IFS}hacked)'\"`id`*",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("--help", "[fe80::1%eth0]:5555")),
    ],
)
def test_a_serial_number_is_no_option_and_no_command(
    phones: Phones, folder: Path, tmp_path: Path, serial: str
) -> None:
    phones.attach(phone(serial))
    assert run(folder, on=at_place(device(), "adb", serial)).returncode == 3
    phones.attach(phone(serial), phone("other"))
    with pytest.raises(ToolchainError, match="Several Android devices") as caught:
        run(folder)
    quoted = caught.value.hint.partition("--runner ")[2].partition(", or set")[0]
    shown = subprocess.run(["sh", "-c", f"printf %s {quoted}"], capture_output=True, text=True, check=True)
    assert shown.stdout == f"adb:{serial}"
    assert not hacked(tmp_path)


@pytest.mark.parametrize("serial", ["-e", "a b", "a\nb", "a\0b", "\x1b[2J", "\udcff", "$(id)", "a" * 100_000])
def test_a_serial_number_that_is_not_attached_is_not_given_to_adb(
    phones: Phones, folder: Path, serial: str
) -> None:
    with pytest.raises(ToolchainError, match="is not attached; attached: 28151FDH300ABC") as caught:
        run(folder, on=at_place(device(), "adb", serial))
    assert str(caught.value).replace("\n", "").isprintable() and len(caught.value.message) < 400


def test_a_device_without_a_serial_number_is_named_as_such(phones: Phones, folder: Path) -> None:
    phones.attach(phone(""))
    with pytest.raises(ToolchainError, match=r"\(no serial number\)"):
        run(folder)


@pytest.mark.parametrize("directory", ["-x", "tmp/x", "~", "~/x", "/a\0b", "/" + "a" * 5000])
def test_a_folder_that_no_device_has_is_refused(phones: Phones, folder: Path, directory: str) -> None:
    phones.attach()
    for ask in (adb.available, lambda there: run(folder, on=there)):
        with pytest.raises(ConfigError, match=r"our-phone: the folder .* cannot be used on a"):
            ask(device(directory=directory))


def test_a_variable_that_is_none_is_refused(phones: Phones, folder: Path) -> None:
    phones.attach()
    with pytest.raises(ConfigError, match="'A;touch hacked' cannot be set on a device"):
        run(folder, on=device({"A;touch hacked": "red"}))


def test_noise_is_not_taken_for_an_answer(phones: Phones, folder: Path) -> None:
    login = 'echo "$COMMAND"; echo "$COMMAND" >&2; printf noise; sh -c "$COMMAND"; echo; echo Bye; exit 0'
    phones.attach(phone(login=login))
    assert (run(folder).returncode, run(folder, "a").stdout) == (3, "a|")
    assert select_runner(device()).where == f"Pixel 7 ({SERIAL}, Android 14, API level 34, arm64-v8a)"


@pytest.mark.parametrize(
    "answer",
    [
        *("exit 0", "head -c 300000 /dev/urandom"),
        pytest.param("exit 1", marks=pytest.mark.slow),
        pytest.param('echo "$COMMAND"', marks=pytest.mark.slow),
        pytest.param("head -c 2000000 /dev/zero", marks=pytest.mark.slow),
        r"printf '\033]0;title\007\033[2J/\n-rf ~\n'",
    ],
)
def test_a_device_that_has_no_shell_is_said(phones: Phones, folder: Path, answer: str) -> None:
    phones.attach(phone(login=answer))
    with pytest.raises(ToolchainError, match=f"{SERIAL} does not answer as a POSIX shell does") as caught:
        run(folder)
    text = str(caught.value)
    assert "\x1b" not in text and "\x07" not in text and len(text) < 20_000
    assert not adb.available(device()).ok and not kept(phones)


def test_a_device_that_answers_without_end_or_never_is_left(
    phones: Phones, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phones.attach(phone(login="exec cat /dev/zero"))
    with pytest.raises(ToolchainError, match="printed more than 64 MiB, and was ended"):
        run(folder)
    monkeypatch.setattr(remote, "_ASK_SECONDS", 1)
    phones.attach(phone(login="exec sleep 1000"))
    with pytest.raises(ToolchainError, match=f"The shell on {SERIAL} did not end within 1 s"):
        run(folder)


def test_what_a_device_says_of_itself_is_shown_and_short(phones: Phones, capsys: Any) -> None:
    from edgepack.cli.main import main

    phones.attach(phone(model="\x1b[2J\u202e" + "x" * 100_000))
    where = adb.available(device()).where
    assert len(where) < 1000
    main(["doctor", "--device", "android-arm64", "--quiet"])
    shown = capsys.readouterr().out
    assert "\x1b" not in shown and "\u202e" not in shown and "xxx" in shown


def test_what_does_not_fit_is_removed_there(phones: Phones, folder: Path) -> None:
    phones.attach(phone(room=100_000))
    with pytest.raises(ToolchainError, match=r"could not be written to /data/local/tmp/.* on 2815"):
        run(folder)
    assert not kept(phones)
    phones.attach(phone())
    run(folder)
    program(folder, "exit 4")
    (folder / "test" / "large").write_bytes(bytes(150_000))
    phones.attach(phone(room=100_000))
    with pytest.raises(ToolchainError, match="could not be written to"):
        run(folder)
    assert {path.name for path in kept(phones)[0].rglob("*") if path.is_file()} == {
        "it.params",
        "input_0.bin",
    }


def test_a_link_in_the_place_of_the_bundles_folder_is_not_used(
    phones: Phones, folder: Path, tmp_path: Path
) -> None:
    run(folder)
    (place,) = kept(phones)
    place.rename(tmp_path / "away")
    (tmp_path / "precious").mkdir()
    place.symlink_to(tmp_path / "precious")
    with pytest.raises(ToolchainError, match="belongs to somebody else, or is a link: it is not used"):
        run(folder)
    assert not list((tmp_path / "precious").iterdir())


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 1", "adb does not work"),
        (r"printf '\033[2Jx\n'; exit 3", "adb does not work"),
        ("exit 0", "No Android device is attached"),
        ("head -c 300000 /dev/urandom", "No Android device is attached|adb does not work"),
        ("echo List of devices attached; yes 'a device' | head -n 100000", "Several Android devices"),
        ("exec yes", "printed more than 64 MiB"),
    ],
)
def test_an_adb_that_says_anything(phones: Phones, folder: Path, script: str, said: str) -> None:
    (phones.path / "adb").write_text(f"#!/bin/sh\n{script}\n")
    with pytest.raises(ToolchainError, match=said) as caught:
        run(folder)
    assert str(caught.value).replace("\n", "").replace("\t", "").isprintable()
    assert len(caught.value.message) < 1000

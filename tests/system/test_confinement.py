"""A confined process opens its files and no others, reaches no network, and sees no other process."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from edgepack.errors import ConfigError
from edgepack.system import landlock, seccomp
from edgepack.system.confinement import Access, confining, what_is_missing

HERE = Path(__file__).parent
#: What works for who is not root, or in a container, only where it is set up so.
OF_THE_MACHINE = {"make a namespace", "trace its parent", "use io_uring", "leave its group", "link to a file"}

confined_here = pytest.mark.skipif(bool(what_is_missing()), reason=what_is_missing() or "it can be confined")


def tried(version: int, tmp_path: Path) -> dict[str, str]:
    """What became of each attempt of a process that is confined with this version."""
    secrets, own = tmp_path / "secrets", tmp_path / "own"
    for folder in (secrets, own):
        folder.mkdir()
    (secret := secrets / "secret").write_text("a secret")
    (readable := tmp_path / "readable").write_text("to be read")
    command = [sys.executable, str(HERE / "confined.py"), str(version), str(secret), str(own), str(readable)]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    if version:
        assert secret.read_text() == "a secret" and readable.read_text() == "to be read"
        assert list(secrets.iterdir()) == [secret]
    return found


def attempts(kind: str) -> list[str]:
    """The names in one of the tables of ``confined.py``, which this process must not import."""
    source = (HERE / "confined.py").read_text(encoding="utf-8")
    table = source[source.index(f"{kind}: dict") :].partition("\n}\n")[0]
    return re.findall(r'^    "([^"]+)":', table, re.MULTILINE)


@confined_here
@pytest.mark.parametrize("version", [1, 3, 1000])
def test_a_confined_process_opens_its_files_and_nothing_else(version: int, tmp_path: Path) -> None:
    found = tried(version, tmp_path)
    assert found.pop("missing") == ""
    assert [name for name in attempts("ALLOWED") if found[name]] == []
    assert [name for name in attempts("ATTEMPTS") if not found[name]] == []


@confined_here
def test_all_of_that_works_for_who_is_not_confined(tmp_path: Path) -> None:
    """Else the test above could not fail. The order is that of the table: what is removed comes late."""
    found = tried(0, tmp_path)
    failed = {name for name, error in found.items() if error} - OF_THE_MACHINE
    # Of what a process has done before: the file is gone, nobody listens, a program of another user.
    assert failed <= {"connect", "take a file", "link to a file", "change a mode", "change a time", "missing"}


@confined_here
def test_numbers_of_system_calls_are_those_of_the_machines_header() -> None:
    headers = [Path("/usr/include/x86_64-linux-gnu/asm/unistd_64.h"), Path("/usr/include/asm/unistd_64.h")]
    generic = [Path("/usr/aarch64-linux-gnu/include/asm-generic/unistd.h")]
    for column, files in enumerate((headers, generic)):
        header = next((file for file in files if file.is_file()), None)
        if header is None:
            continue
        text = header.read_text(encoding="utf-8")
        there = {name: int(n) for name, n in re.findall(r"#define __NR(?:3264)?_(\w+)\s+(\d+)", text)}
        ours = {name: numbers[column] for name, numbers in seccomp._REFUSED.items()}
        assert ours == {name: there.get(name) for name in ours}
        newer = {number for number in there.values() if number >= 424}
        assert {n for n in seccomp._NEWER if n <= max(newer)} <= newer


def test_where_there_is_no_landlock_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(seccomp, "is_known", lambda: True)
    monkeypatch.setattr(landlock, "abi", lambda: 0)
    assert "no Landlock" in what_is_missing()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert "only Linux" in what_is_missing()


def test_an_unknown_wish_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDGEPACK_CONFINE", "yes")
    with pytest.raises(ConfigError, match="EDGEPACK_CONFINE is 'yes'"):
        confining()


def test_access_covers_what_lies_below() -> None:
    folder, other = Path("/folder"), Path("/other")
    granted = Access(reads=(other,), writes=(folder,))
    assert granted.covers(Access(reads=(folder / "a", other / "b"), writes=(folder / "c",)))
    assert not granted.covers(Access(writes=(other,)))
    assert not granted.covers(Access(reads=(Path("/folder2"),)))
    assert Access.from_json(json.loads(json.dumps(granted.to_json()))) == granted

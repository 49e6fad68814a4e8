"""Builds in processes: what is killed goes on later, what is interrupted ends with all that it started."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from edgepack.errors import ConfigError, InternalError
from edgepack.release.processes import ProcessExecutor, open_executor
from edgepack.release.run import ReleaseOptions, release
from tests.release.conftest import content
from tests.support import fake
from tests.support.processes import ends

Write = Callable[..., Path]


def test_a_call_has_a_process_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "edgepack.py").write_text("raise SystemExit('from the working folder')")
    monkeypatch.chdir(tmp_path)
    with ProcessExecutor(2) as executor:
        assert executor.submit(os.getpid).result() != os.getpid()
        with pytest.raises(InternalError, match="exit code 1") as caught:
            executor.submit(int, "no number").result()
        assert "ValueError" in caught.value.detail
        with pytest.raises(InternalError, match="was ended by SIGKILL"):
            executor.submit(signal.raise_signal, signal.SIGKILL).result()
    with pytest.raises(ConfigError, match="has no scheduler"):
        open_executor(1, "tcp://127.0.0.1:8786")


def started(*arguments: str | Path) -> subprocess.Popen[bytes]:
    """The program, whose jobs hang when they compile."""
    command = fake.argv("hang:compile", *arguments)
    return subprocess.Popen(
        command, env=fake.env(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )


def children(pid: int) -> set[int]:
    """All that a process started, by /proc."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, new = set(), {pid}
    while new := {one for one, parent in parents.items() if parent in new}:
        found |= new
    return found


def working(process: subprocess.Popen[bytes], least: int) -> set[int]:
    """The processes of a release, when two workers of its jobs hang."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        found = children(process.pid)
        commands = [Path(f"/proc/{pid}/cmdline") for pid in found]
        texts = [path.read_bytes() for path in commands if path.exists()]
        if sum(b"worker.py" in text and b"hang:compile" in text for text in texts) >= least:
            return found
        time.sleep(0.1)
    raise AssertionError("no worker was started")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="looks at /proc")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_nothing_runs_on_and_what_was_built_is_kept(
    number: signal.Signals, project: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The unit that was built before is not built again."""
    path, dist = project(), tmp_path / "dist"
    fake.install("ok", monkeypatch.setattr)
    assert release(path, dist, ReleaseOptions(only=("*@my*",))).ok
    shutil.copytree(dist, tmp_path / "before")
    new = int.from_bytes(os.urandom(4), "big")  # so that nothing is in the cache
    more = f"  third: {{extends: linux-x86_64, cpu: {{l2: {new}}}}}\n"
    text = path.read_text(encoding="utf-8") + more
    changed = f"linux-x86_64: {{cpu: {{l2: {new + 1}}}}}\n"
    path.write_text(text.replace("linux-x86_64:\n", changed), encoding="utf-8")
    process = started("release", path, "-o", dist, "--jobs", "2")
    every = working(process, 2)
    os.killpg(process.pid, number)
    _, err = process.communicate(timeout=60)
    assert all(ends(pid, 10) for pid in every)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert b"nothing was left behind" in err
    assert content(dist) == content(tmp_path / "before")
    made = release(path, dist, ReleaseOptions())
    assert (made.ok, set(made.built)) == (True, {"net@linux-x86_64", "net@third"})
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(".")] == []

"""What the system refuses is said in a sentence, and is nobody's defect."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import ConfigError
from edgepack.system.boundary import guarded
from edgepack.system.disk_errors import blamed
from edgepack.system.process import execute, run_tool
from edgepack.system.refusals import exhausted

EXHAUSTED = {
    "descriptors": (OSError(errno.EMFILE, "Too many open files"), "Too many files are open"),
    "the system's descriptors": (OSError(errno.ENFILE, "Too many open files"), "Too many files are open"),
    "a library": (ImportError("libc.so: cannot open: Too many open files"), "Too many files are open"),
    "memory": (MemoryError(), "There is too little memory"),
    "memory for a process": (OSError(errno.ENOMEM, "Cannot allocate memory"), "There is too little memory"),
    "memory for a library": (
        ImportError("x.so: failed to map segment from shared object"),
        "There is too little memory",
    ),
    "threads": (RuntimeError("can't start new thread"), "No more processes or threads|too little memory"),
    "processes": (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), "No more|memory"),
}


@pytest.mark.parametrize("what", EXHAUSTED)
def test_what_has_run_out_is_said_also_of_what_it_led_to(what: str) -> None:
    error, said = EXHAUSTED[what]

    @guarded
    def work() -> None:
        try:
            raise error
        except Exception as cause:
            raise ValueError("what it led to") from cause

    with pytest.raises(ConfigError, match=said) as caught:
        work()
    assert caught.value.hint


@pytest.mark.parametrize(
    "error", [ValueError("Too many open files"), KeyError("MemoryError"), OSError(5, "")]
)
def test_a_name_that_sounds_like_it_is_not_taken_for_it(error: Exception) -> None:
    assert exhausted(error) is None


@pytest.mark.skipif(os.name != "posix", reason="limits of POSIX")
def test_limits_are_named(tmp_path: Path) -> None:
    """As `ulimit` shows them; in a process that has them."""
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (16, 16))\n"
        "from edgepack.cli.main import main\n"
        "kept = [open('/dev/null') for _ in range(11)]\n"
        "sys.exit(main(['inspect', sys.argv[1]]))"
    )
    model = tmp_path / "model.onnx"
    model.write_bytes(b"")
    done = subprocess.run([sys.executable, "-c", code, model], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "error: Too many files are open: this process may open 16 (ulimit -n)." in done.stderr
    assert "hint: Allow more of them: ulimit -n 1024." in done.stderr
    assert len(done.stderr.splitlines()) == 2


@pytest.mark.skipif(os.name != "posix", reason="a working folder is removed under a process")
def test_a_working_folder_that_is_gone_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    @guarded
    def work() -> None:
        Path("model.onnx").absolute()

    with pytest.raises(ConfigError, match="The current folder is not there any more"):
        work()


@pytest.mark.parametrize("start", [execute, run_tool])
def test_a_program_that_no_descriptor_is_left_for_is_no_missing_one(
    start: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_args: object, **_options: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("edgepack.system.process.start", refuse)
    with pytest.raises(ConfigError, match="Too many files are open"):
        start(["cc", "--version"], timeout=5, cwd=tmp_path)


def test_programs_that_fail_for_it_say_so() -> None:
    said = blamed("error: unable to spawn: ProcessFdQuotaExceeded\n", 1)
    assert said is not None and said.message.startswith("Too many files are open")
    said = blamed("OpenBLAS error: Memory allocation still failed after 10 retries, giving up.", 1)
    assert said is not None and said.message.startswith("There is too little memory")
    assert blamed("Too many open files", 0) is None

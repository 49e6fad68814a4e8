"""What is printed may go into a pipe that nobody reads, onto a full disk, or nowhere: the work is done all
the same, and its exit code says how it ended."""

from __future__ import annotations

import errno
import io
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest

import edgepack.cli.main as main_module
from edgepack.cli.main import main
from edgepack.cli.streams import _Tolerant
from edgepack.errors import ConfigError
from edgepack.system.boundary import guarded

POSIX = pytest.mark.skipif(os.name != "posix", reason="closes descriptors as a shell does")
FULL = pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")

#: What commands print, by whom: click, a command of edgepack's, an error.
COMMANDS = (["--help"], ["--version"], ["completion", "bash"], ["toolchains", "--json"], ["nosuch"])


def started(arguments: Sequence[str], redirected: str) -> subprocess.Popen[str]:
    """The real program, its streams as a shell redirects them."""
    command = ["sh", "-c", f'exec "$0" -m edgepack "$@" {redirected}', sys.executable, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ended(arguments: Sequence[str], redirected: str) -> list[tuple[int, str, str]]:
    """How each command ended, what it printed, and to standard error; all run at once."""
    running = [started(one, redirected) for one in arguments]
    printed = [one.communicate() for one in running]
    return [(one.returncode, *texts) for one, texts in zip(running, printed, strict=True)]


@POSIX
@pytest.mark.parametrize("redirected", [">&-", "<&- >&- 2>&-", "2>&-"])
def test_a_stream_that_is_closed_is_one_that_nobody_reads(redirected: str) -> None:
    for (code, _, said), arguments in zip(ended(COMMANDS, redirected), COMMANDS, strict=True):
        assert code == (2 if arguments == ["nosuch"] else 0)
        assert said == "" or arguments == ["nosuch"]


@FULL
def test_a_full_standard_output_is_one_sentence() -> None:
    for (code, _, said), arguments in zip(ended(COMMANDS, ">/dev/full"), COMMANDS, strict=True):
        assert code == 2
        if arguments != ["nosuch"]:
            assert "error: Standard output cannot be written to: No space left on device." in said
            assert len(said.splitlines()) == 2


@FULL
def test_a_full_standard_error_changes_nothing() -> None:
    (shown, refused), printed = ended([["--version"], ["nosuch"]], "2>/dev/full"), "edgepack, version"
    assert shown[0] == 0 and shown[1].startswith(printed)
    assert refused == (2, "", "")


@POSIX
def test_a_reader_that_leaves_gets_the_commands_own_exit_code(tmp_path: Path) -> None:
    """Both streams go to a pipe whose other end is closed."""
    for arguments, code in ((["devices"], 0), (["inspect", str(tmp_path)], 2)):
        reader, writer = os.pipe()
        os.close(reader)
        command = [sys.executable, "-m", "edgepack", *arguments]
        assert subprocess.run(command, stdout=writer, stderr=writer, check=False).returncode == code
        os.close(writer)


def test_a_pipe_of_another_program_that_breaks_is_not_taken_for_a_reader_that_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """click leaves with 1 and says nothing, whichever pipe it is."""

    @click.command()
    def command() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(main_module._LazyGroup, "get_command", lambda *_: command)
    monkeypatch.setattr("edgepack.system.log.cache_dir", lambda: tmp_path)
    assert main(["devices"]) == 5
    assert "An internal error: BrokenPipeError" in capsys.readouterr().err


def test_what_a_pipe_breaks_in_the_api_is_no_success() -> None:
    @guarded
    def work() -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    with pytest.raises(Exception, match="BrokenPipeError"):
        work()


class _Slow(io.RawIOBase):
    """Takes something each second time, and then nothing for a full disk."""

    def __init__(self) -> None:
        self.taken, self.calls = b"", 0

    def write(self, data: Any) -> int | None:
        self.calls += 1
        if self.calls % 2:
            return None
        if len(self.taken) > 4:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.taken += bytes(data[:3])
        return 3


def test_a_stream_that_would_block_is_waited_for_and_one_that_fails_is_left() -> None:
    slow = _Slow()
    stream = _Tolerant(slow)
    text = io.TextIOWrapper(io.BufferedWriter(stream))  # type: ignore[type-var]
    text.write("abcdefghi")
    text.flush()
    text.write("nowhere")
    text.flush()
    assert slow.taken == b"abcdef"
    assert stream.error is not None and stream.error.errno == errno.ENOSPC
    assert ConfigError.exit_code == 2, "what README.md says of a standard output that takes nothing"

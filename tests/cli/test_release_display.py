"""How a release shows how far it is: a table on a (pseudo) terminal, and lines in a pipe."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading

import pytest

pty = pytest.importorskip("pty", reason="a pseudo terminal is of POSIX systems")

#: Two units side by side, of which one fails and has a name that a terminal must not obey.
PROGRAM = """
import time
from edgepack.cli.output import Settings
from edgepack.cli.release_display import display
from edgepack.release.build import Failure
from edgepack.release.executing import Running, State
running = (Running("net@pi", "kernels", 3.0), Running("\\x1b[2Jevil@host", "llvm", 0.0))
with display(Settings()) as show:
    show(State(0, 2, running))
    time.sleep(0.5)
    show(State(1, 2, running[:1], (("\\x1b[2Jevil@host", Failure("ModelError", "it is too large")),)))
    time.sleep(0.5)
    show(State(2, 2, (), (("net@pi", None),)))
"""
#: What moves the cursor, erases and colours.
CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def on_terminal() -> str:
    """What the program writes to a terminal of 100 columns."""
    here, there = pty.openpty()
    written: list[bytes] = []

    def read() -> None:
        try:
            while data := os.read(here, 65536):
                written.append(data)
        except OSError:  # Linux says so when nobody has the other end any more
            pass

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(command, stdout=there, stderr=there, timeout=60, env=environment, check=False)
    os.close(there)
    reader.join(60)
    os.close(here)
    assert done.returncode == 0, b"".join(written)
    return b"".join(written).decode()


def test_a_terminal_gets_one_table_that_changes() -> None:
    text = on_terminal()
    assert "\x1b[2J" not in text  # what a name holds is shown, not obeyed
    plain = CONTROL.sub("", text)
    rows = [line.split() for line in plain.replace("\r", "\n").splitlines()]
    assert ["model", "device", "stage", "time"] in rows
    assert ["net", "pi", "kernels", "3", "s"] in rows
    assert ["\\x1b[2Jevil", "host", "llvm", "0", "s"] in rows
    for said in ("0 of 2 done", "1 of 2 done", r"\x1b[2Jevil@host: FAILED: it is too large", "net@pi: done"):
        assert said in plain
    assert "\x1b[1A" in text  # drawn over itself,
    assert text.rindex("\x1b[2K") > text.rindex("net@pi: done")  # and gone in the end
    assert "\x1b[?25h" in text[text.rindex("\x1b[?25l") :]  # with the cursor there again


def test_a_pipe_gets_a_line_for_each_event() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    said = [re.sub(r"^\[ *[0-9.]+ s\] ", "", line) for line in done.stderr.splitlines()]
    assert said == [
        "net@pi: build",
        r"\x1b[2Jevil@host: build",
        r"\x1b[2Jevil@host: FAILED: it is too large (1 of 2)",
        "net@pi: done (2 of 2)",
    ]

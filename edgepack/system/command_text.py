"""How messages show a program: its command, what it printed, and the signal that ended it."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

__all__ = ["printed", "shorten", "show_command", "signal_name", "tool_name"]

#: Characters of a tool's output that an error shows: its start (the first error) and its end.
_SHOWN = 6000


def signal_name(number: int) -> str:
    """``SIGSEGV`` for 11; ``signal 99`` if it has no name here."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def show_command(command: Sequence[str]) -> str:
    """A command as it can be pasted into a shell."""
    return subprocess.list2cmdline(command) if os.name == "nt" else shlex.join(command)


def printed(stdout: str, stderr: str, limit: int = 4000) -> str:
    """The last ``limit`` characters of each of a program's two streams, for an error's detail."""
    parts = [
        f"{name}:\n{text[-limit:].rstrip()}"
        for name, text in (("stdout", stdout), ("stderr", stderr))
        if text
    ]
    return "\n".join(parts) or "It printed nothing."


def tool_name(command: Sequence[str]) -> str:
    """A tool's name: that of its module where it is a module of Python."""
    return command[2] if list(command[1:2]) == ["-m"] and len(command) > 2 else Path(command[0]).name


def shorten(text: str) -> str:
    """The start and the end of what a tool printed, if it is long."""
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n... ({len(text) - _SHOWN} characters left out) ...\n{text[-half:]}"

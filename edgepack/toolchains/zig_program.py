"""Where pip has put zig: the program itself, which starts without Python."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path

__all__ = ["zig_program", "zig_started_directly"]


@cache
def _installed() -> str:
    """The program of the package ``ziglang``, or "" where it is not installed or has none."""
    spec = find_spec("ziglang")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        path = Path(folder) / ("zig.exe" if os.name == "nt" else "zig")
        if path.is_file() and os.access(path, os.X_OK):
            return str(path)
    return ""


def zig_program() -> list[str]:
    """The command of pip's zig; where it is not installed, one that fails and says so."""
    return zig_started_directly([sys.executable, "-m", "ziglang"])


def zig_started_directly(command: Sequence[str]) -> list[str]:
    """``python -m ziglang`` as what it would start: zig is called often, for a few milliseconds each time."""
    if list(command) == [sys.executable, "-m", "ziglang"] and (program := _installed()):
        return [program]
    return list(command)

"""Has Python compile the worker's modules where whoever installed them did not (uv, ``pip --no-compile``).

A process usually writes what it compiles beside the sources. The worker is confined and may not: without this
it would compile TVM's and ONNX's modules at each start, for two seconds.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from importlib.util import cache_from_source, find_spec
from pathlib import Path

from edgepack.errors import ToolchainError
from edgepack.resources import PACKAGE
from edgepack.system.process import run_tool

__all__ = ["compile_modules"]

#: Packages that a worker imports much of; the first one stands for all.
_PACKAGES = ("tvm", "tvm_ffi", "onnx", "numpy", "ml_dtypes")
_LONGEST = 300.0


@cache
def compile_modules() -> None:
    """Compile them, if the first package's are not compiled and can be: seconds, once for an installation.

    Raises:
        OutOfTimeError: the time of the whole work is over.
    """
    folders = [folder for name in _PACKAGES if (folder := _folder(name)) is not None]
    if sys.dont_write_bytecode or not folders:
        return
    first = folders[0]
    if Path(cache_from_source(str(first / "__init__.py"))).exists() or not os.access(first, os.W_OK):
        return
    command = [sys.executable, "-m", "compileall", "-q", "-j", "0", *folders, PACKAGE]
    try:
        run_tool([str(part) for part in command], timeout=_LONGEST)
    except ToolchainError:
        return  # who imports them compiles them


def _folder(name: str) -> Path | None:
    """Where a package lies; None where it is not installed. It is not imported."""
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):
        return None
    return None if spec is None or spec.origin is None else Path(spec.origin).parent

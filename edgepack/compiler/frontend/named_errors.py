"""Errors of a frontend that makes an ONNX model of the user's file name the user's file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from edgepack.errors import EdgepackError

__all__ = ["errors_name"]


@contextmanager
def errors_name(model: Path, made: Path) -> Iterator[None]:
    """Inside, errors name ``model`` where they would name ``made``, a file or folder that was made of it."""
    try:
        yield
    except EdgepackError as error:
        for name in ("message", "hint", "detail"):
            setattr(error, name, getattr(error, name).replace(str(made), str(model)))
        raise

"""Paths in a bundle, whoever wrote them: they lead to what lies in it."""

from __future__ import annotations

from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Annotated

from pydantic import AfterValidator

from edgepack.errors import ConfigError

__all__ = ["PathInBundle", "check_relative", "inside"]

_LONGEST = 1024


def check_relative(path: str) -> str:
    """The path itself, if it is relative, with ``/``, of names that every system has, and goes down only.

    Raises:
        ValueError: it is not.
    """
    parts = path.split("/")
    plain = len(path) <= _LONGEST and path.isprintable() and "\\" not in path
    if not plain or PureWindowsPath(path).drive or any(part in {"", ".", ".."} for part in parts):
        raise ValueError(f"{path[:80]!r} is not a path in the bundle")
    return path


#: The type of a record's field.
PathInBundle = Annotated[str, AfterValidator(check_relative)]


def inside(root: Path, path: str) -> Path:
    """The place of a path that a bundle names.

    Raises:
        ConfigError: the path, or a symbolic link in it, leads out of the bundle.
    """
    try:
        place = root / PurePosixPath(check_relative(path))
        if place.resolve().is_relative_to(root.resolve()):
            return place
    except (ValueError, OSError, RuntimeError):  # RuntimeError: links in a circle, before Python 3.13
        pass
    raise ConfigError(
        f"The bundle {root} names the file {path[:80]!r}, which does not lie in it.",
        hint="Pack the model again, or get the bundle from someone whom you trust.",
    )

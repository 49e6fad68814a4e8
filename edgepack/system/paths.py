"""Folders of this user on this machine, and the programs in its ``PATH``."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

__all__ = ["CACHE_ENV", "cache_dir", "config_dir", "find_program"]

#: Environment variable that names the cache folder, instead of the platform's usual place.
CACHE_ENV = "EDGEPACK_CACHE_DIR"


def cache_dir() -> Path:
    """The folder for everything that can be made again; it need not exist yet.

    ``EDGEPACK_CACHE_DIR`` if set, else the platform's place: ``%LOCALAPPDATA%/edgepack/cache`` on Windows,
    ``~/Library/Caches/edgepack`` on macOS, ``$XDG_CACHE_HOME/edgepack`` or ``~/.cache/edgepack`` elsewhere.
    For a user without a home (``HOME`` is not set, and the system does not know the user), a folder of the
    user's number among the temporary files; who uses it looks whose it is.
    """
    try:
        return _cache_dir()
    except RuntimeError:
        return Path(tempfile.gettempdir()) / f"edgepack-cache-{os.getuid() if hasattr(os, 'getuid') else ''}"


def _cache_dir() -> Path:
    if chosen := os.environ.get(CACHE_ENV):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA")
        return (Path(base) if base else Path.home() / "AppData" / "Local") / "edgepack" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "edgepack"
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG specification: a relative path there is invalid and to be ignored.
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "edgepack"


def config_dir() -> Path:
    """The folder for what cannot be made again; it need not exist yet.

    ``%APPDATA%/edgepack`` on Windows, ``~/Library/Application Support/edgepack`` on macOS,
    ``$XDG_CONFIG_HOME/edgepack`` or ``~/.config/edgepack`` elsewhere.

    Raises:
        OSError: this user has no home.
    """
    try:
        if sys.platform == "win32":
            base = os.environ.get("APPDATA")
            return (Path(base) if base else Path.home() / "AppData" / "Roaming") / "edgepack"
        if sys.platform == "darwin":
            return Path.home() / "Library" / "Application Support" / "edgepack"
        base = os.environ.get("XDG_CONFIG_HOME", "")
        return (Path(base) if Path(base).is_absolute() else Path.home() / ".config") / "edgepack"
    except RuntimeError as error:
        raise FileNotFoundError("this user has no home folder") from error


def find_program(name: str, path: str | None = None) -> str | None:
    """The file of a program that can be run; None if there is none.

    A name is looked for in the absolute folders of ``path`` (default: of ``PATH``, or what the system has in
    its stead). Never in the current folder, which may be somebody else's: Windows and
    :func:`shutil.which` there would look in it first, and an empty or relative part of ``PATH`` means it or a
    folder in it. What has a folder in its name (``./qemu``) is that file, as for a shell.
    """
    if os.path.split(name)[0]:
        return next((found for file in _spellings(name) if (found := shutil.which(file))), None)
    if path is None:
        path = os.environ.get("PATH", os.defpath)
    folders = (folder for part in path.split(os.pathsep) if (folder := Path(part.strip('"'))).is_absolute())
    files = (str(folder / file) for folder in folders for file in _spellings(name))
    return next((found for file in files if (found := shutil.which(file))), None)


def _spellings(name: str) -> Iterator[str]:
    """The names of a program's file: on Windows with the suffixes of what can be run there."""
    suffixes = os.environ.get("PATHEXT", ".COM;.EXE;.BAT;.CMD").split(";") if os.name == "nt" else []
    if not suffixes or name.lower().endswith(tuple(suffix.lower() for suffix in suffixes if suffix)):
        yield name
    else:
        yield from (name + suffix for suffix in suffixes)

"""Folders of this user on this machine."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

__all__ = ["CACHE_ENV", "cache_dir", "config_dir"]

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

"""Runs a Windows program under Wine, on Linux with the same CPU: no display, no Windows.

Wine's own place for a program's Windows ("prefix") is a copy of all of its libraries, 700 MB. A program of a
bundle needs no more than the libraries themselves, so the prefix here holds links to them; where they are not
found, Wine makes its own.
"""

from __future__ import annotations

import os
import platform
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePosixPath

from edgepack.errors import ToolchainError
from edgepack.runners.base import Availability, DeviceLike, arch_of, host_os, setting
from edgepack.system.paths import find_program
from edgepack.system.process import Completed, ask, execute
from edgepack.system.temporary import cache_folder

__all__ = ["REAL_SPEED", "available", "run"]

#: The CPU is this machine's, but threads, memory and clocks are not those of Windows.
REAL_SPEED = False

#: Commands; the last is where Debian's package `wine64` puts it without the package `wine`.
_COMMANDS = ("wine64", "wine", "wine64-stable", "wine-stable", "/usr/lib/wine/wine64")
#: Where Wine's Windows libraries are, from the root of its installation.
_LIBRARIES = (
    *("lib/x86_64-linux-gnu/wine/x86_64-windows", "lib64/wine/x86_64-windows", "lib/wine/x86_64-windows"),
)
#: No windows, no messages, none of the questions that Wine asks when it makes a prefix.
_ENVIRONMENT = {
    "WINEDEBUG": "-all",
    "WINEDLLOVERRIDES": "mscoree,mshtml=;winemenubuilder.exe=",
    "DISPLAY": "",
    "LC_ALL": "C.UTF-8",
}


def available(device: DeviceLike) -> Availability:
    """Whether Wine is here and can run the device's programs."""
    if device.os != "windows" or host_os() == "windows":
        return Availability(False, "", "Wine runs Windows programs on Linux and macOS only.")
    if not arch_of(device.arch) == arch_of(platform.machine()) == "x86_64":
        return Availability(
            False, "", f"Wine emulates no CPU: it cannot run {device.arch} on {platform.machine()}."
        )
    wine = _find_wine(device)
    if wine is None:
        return Availability(
            False,
            "",
            "Wine was not found: apt-get install --no-install-recommends wine64 "
            "(Debian; 100 MB, 700 MB when unpacked), or your system's package.",
        )
    return Availability(True, f"{wine} {_version(wine)}".rstrip(), "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the program under Wine; paths among its arguments become those of drive Z, this machine's files.

    Raises:
        ToolchainError: Wine is missing, its prefix cannot be made, or the time is up.
    """
    ok, _, hint = available(device)
    if not ok:
        raise ToolchainError(f"Wine cannot run programs of {device.name}.", hint=hint)
    wine = str(_find_wine(device))
    environment = {**_ENVIRONMENT, "WINEPREFIX": str(_prefix(wine)), **(setting(device, "environment") or {})}
    command = [wine, *(_windows_path(part) if isinstance(part, Path) else part for part in argv)]
    return execute(
        command, timeout=timeout, cwd=cwd, env=environment, what=f"{Path(argv[0]).name} under Wine"
    )


def _find_wine(device: DeviceLike) -> str | None:
    names = [setting(device, "program"), *_COMMANDS]
    return next((found for name in names if name and (found := find_program(str(name)))), None)


@cache
def _version(wine: str) -> str:
    """``wine-8.0``."""
    return ask([wine, "--version"]).split(" ")[0].strip()


def _windows_path(path: Path) -> str:
    return "Z:" + str(PurePosixPath(path.absolute())).replace("/", "\\")


def _prefix(wine: str) -> Path:
    """The folder with the program's Windows, made on first use; one for each installation of Wine."""
    prefix = cache_folder("wine") / (_version(wine) or "wine")
    if prefix.is_dir():
        return prefix
    try:
        made = Path(tempfile.mkdtemp(prefix="new-", dir=prefix.parent))
        _fill(made, _libraries(wine))
        with suppress(OSError):  # another process was faster
            made.rename(prefix)
            return prefix
        shutil.rmtree(made)
    except OSError as error:
        raise ToolchainError(
            f"The folder for Wine, {prefix}, cannot be made: {error.strerror or error}.",
            hint="Set EDGEPACK_CACHE_DIR to a folder that can be written.",
        ) from error
    return prefix


def _libraries(wine: str) -> Path | None:
    """Wine's Windows libraries; None if they are nowhere where they usually are."""
    for root in Path(os.path.realpath(wine)).parents[:3]:
        for place in _LIBRARIES:
            if (root / place / "kernel32.dll").is_file():
                return root / place
    return None


def _fill(prefix: Path, libraries: Path | None) -> None:
    """A prefix of links; an empty one, which Wine fills itself, where the libraries were not found."""
    if libraries is None:
        return
    system = prefix / "drive_c" / "windows" / "system32"
    system.mkdir(parents=True)
    for library in libraries.iterdir():
        (system / library.name).symlink_to(library)
    devices = prefix / "dosdevices"
    devices.mkdir()
    (devices / "c:").symlink_to("../drive_c")
    (devices / "z:").symlink_to("/")
    (prefix / ".update-timestamp").write_text("disable\n", encoding="utf-8")

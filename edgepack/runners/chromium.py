"""Runs a WebAssembly program in a page of a real browser: Chromium, Chrome or Edge, headless.

The program runs in a worker, with a WASI of its own (``page/wasi.js``) whose files come from this machine by
HTTP; it may read the bundle's folder, and write nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from edgepack.errors import ToolchainError
from edgepack.runners.base import Availability, DeviceLike, setting
from edgepack.runners.browser import browse, find_browser, version_of
from edgepack.runners.node import sandboxed
from edgepack.system.process import Completed

__all__ = ["REAL_SPEED", "available", "run"]

#: WebAssembly has no CPU of its own: this machine's is as real as any.
REAL_SPEED = True

_PAGE = Path(__file__).with_name("page")


def available(device: DeviceLike) -> Availability:
    """Whether there is a browser."""
    if device.os != "wasi":
        return Availability(False, "", f"A browser runs WASI programs, and {device.name} has {device.os}.")
    browser = find_browser(_own(device, "program"))
    if browser is None:
        hint = "No browser was found: install Chromium or Chrome (apt-get install chromium)."
        return Availability(False, "", hint)
    return Availability(True, f"{browser} {_version(browser)}".rstrip(), "")


def run(device: DeviceLike, argv: Sequence[str | Path], *, timeout: float, cwd: Path) -> Completed:
    """Run the program; it sees the files in ``cwd`` and no others.

    Raises:
        ToolchainError: there is no browser, it ended, or the time is up.
    """
    ok, _, hint = available(device)
    browser = find_browser(_own(device, "program"))
    if not ok or browser is None:
        raise ToolchainError(f"chromium cannot run programs of {device.name} here.", hint=hint)
    arguments = sandboxed([Path(cwd, argv[0]), *argv[1:]], cwd)
    posts = browse(
        browser,
        {"page": _PAGE, "files": cwd},
        f"page/run.html?{quote(json.dumps(arguments))}",
        timeout=timeout,
        flags=str((_own(device, "options") or {}).get("flags", "")).split(),
        what=f"{Path(argv[0]).name} in {Path(browser).stem}",
    )
    stdout, stderr = (posts.get(name, b"").decode("utf-8", "replace") for name in ("stdout", "stderr"))
    if not re.fullmatch(rb"[0-9]{1,9}", posts["end"]):
        raise ToolchainError(f"{Path(argv[0]).name} ended without an exit code in {Path(browser).stem}.")
    return Completed(int(posts["end"]), stdout, stderr)


def _own(device: DeviceLike, key: str) -> Any:
    # The profile's settings may be another runner's.
    return setting(device, key) if setting(device, "name") == "chromium" else None


@cache
def _version(browser: str) -> str:
    return version_of(browser)

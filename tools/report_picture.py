#!/usr/bin/env python3
"""Write the report of docs/ship/report.md, and take a browser's picture of it: ``tools/report_picture.py``.

Takes the bundle of `make demo` (``--bundle`` names another), verifies it, measures it with its steps, writes
docs/ship/resnet18-report.html and takes the screenshot docs/images/report.png with a browser of the Chromium
family, headless (Debian: ``chromium``).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from edgepack.runners.browser import find_browser
from tools.svg import IMAGES

__all__ = ["PICTURE", "REPORT", "SIZE", "picture", "report"]

ROOT = Path(__file__).resolve().parents[1]
REPORT = ROOT / "docs" / "ship" / "resnet18-report.html"
PICTURE = IMAGES / "report.png"

#: Of the picture in pixels: six tiles side by side, and down to the end of the arena's figure.
SIZE = (1120, 1946)
#: Bytes that it may have.
MOST_BYTES = 200_000

_OPTIONS = (
    *("--headless", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run"),
    *("--disable-background-networking", "--force-device-scale-factor=1"),
    "--blink-settings=preferredColorScheme=1",  # light
)


def report(bundle: Path, page: Path) -> None:
    """The page about a bundle with times and errors, as docs/ship/report.md says."""
    _edgepack("report", str(bundle), "-o", str(page), "--force")


def _edgepack(*arguments: str) -> str:
    command = [sys.executable, "-m", "edgepack", *arguments, "--quiet"]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def picture(browser: str, page: Path, file: Path, size: tuple[int, int] = SIZE) -> None:
    """What a browser shows of a page, from its top, as a PNG file of ``size`` pixels."""
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory() as profile:
        command = [browser, *_OPTIONS, *sandbox, f"--user-data-dir={profile}"]
        command += [f"--window-size={size[0]},{size[1]}", f"--screenshot={file}", page.resolve().as_uri()]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if done.returncode != 0 or not file.is_file():
        sys.exit(f"{browser} made no picture of {page}:\n{done.stderr}")


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--bundle", type=Path, default=ROOT / "demo" / "resnet18-host")
    given = parser.parse_args()
    if not given.bundle.is_dir():
        sys.exit(f"{given.bundle} is not there: run make demo, or name another --bundle.")
    browser = find_browser()
    if browser is None:
        sys.exit("No browser of the Chromium family is here (Debian: apt-get install chromium).")
    report(given.bundle, REPORT)
    picture(browser, REPORT, PICTURE)
    if PICTURE.stat().st_size > MOST_BYTES:
        sys.exit(f"{PICTURE} has more than {MOST_BYTES} bytes.")


if __name__ == "__main__":
    main()

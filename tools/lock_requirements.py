"""Writes requirements-ci.txt: what the tests need, each package with its version and the hashes of its files.

    python tools/lock_requirements.py [--upgrade]

For every system and Python from 3.11 on. Versions stay as they are unless pyproject.toml no longer allows
them; --upgrade takes the newest. Needs uv (`python -m pip install uv`). Then `make test`, and
`python -m pip_audit --require-hashes --disable-pip -r requirements-ci.txt` (`python -m pip install
pip-audit`), and commit what changed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements-ci.txt"
HEADER = """\
# What `make test` installs, written by tools/lock_requirements.py: change pyproject.toml and run it again.
# pip installs no file whose hash is not here.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    command = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "compile",
        "pyproject.toml",
        "--extra",
        "dev",
        "--universal",
    ]
    command += ["--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--output-file", LOCK]
    if parser.parse_args().upgrade:
        command.append("--upgrade")
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode == 0:
        path = ROOT / LOCK
        lines = [line for line in path.read_text(encoding="utf-8").splitlines(True) if line[0] != "#"]
        path.write_text(HEADER + "".join(lines), encoding="utf-8", newline="\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

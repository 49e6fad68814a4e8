"""Writes requirements-ci.txt and requirements-docs.txt: what the tests and the documents' site need, each
package with its version and the hashes of its files.

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

import tomllib

ROOT = Path(__file__).resolve().parent.parent
LOCK = "requirements-ci.txt"
#: Those of LOCK that `make docs` needs, for it installs neither edgepack nor TVM.
DOCS_LOCK = "requirements-docs.txt"
HEADER = """\
# What `make {target}` installs, written by tools/lock_requirements.py: change pyproject.toml, run it again.
# pip installs no file whose hash is not here.
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions")
    upgrade = ["--upgrade"] if parser.parse_args().upgrade else []
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    docs = "\n".join(project["project"]["optional-dependencies"]["docs"])
    return _lock(LOCK, "test", ["pyproject.toml", "--extra", "dev", *upgrade]) or _lock(
        DOCS_LOCK, "docs", ["-", "--constraint", LOCK], docs
    )


def _lock(name: str, target: str, what: list[str], text: str | None = None) -> int:
    """Locks ``what``, or the requirements in ``text``, in the file ``name``; returns uv's exit code."""
    command = [sys.executable, "-m", "uv", "pip", "compile", *what, "--universal"]
    command += ["--python-version", "3.11", "--generate-hashes", "--no-header", "--no-annotate", "--quiet"]
    command += ["--no-emit-index-url", "--no-emit-find-links", "--output-file", name]
    done = subprocess.run(command, cwd=ROOT, check=False, input=text, text=True)
    if done.returncode == 0:
        path = ROOT / name
        lines = [line for line in path.read_text(encoding="utf-8").splitlines(True) if line[0] != "#"]
        path.write_text(HEADER.format(target=target) + "".join(lines), encoding="utf-8", newline="\n")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())

"""The house rules of the C code that a tool can check."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path

import pytest

from edgepack.abi.header import header
from edgepack.resources import TEMPLATES
from workbench.mini import run

ROOT = Path(__file__).resolve().parents[2]
C_FILES = sorted(
    path
    for folder in (
        TEMPLATES / "runtime",
        TEMPLATES / "loader",
        TEMPLATES / "firmware",
        TEMPLATES / "shim",
        ROOT / "tests" / "runtime",
        ROOT / "workbench",
    )
    for path in folder.rglob("*")
    if path.suffix in {".c", ".h", ".cpp"}
)


def test_c_is_formatted() -> None:
    """`clang-format -i` on the file mends it."""
    assert len(C_FILES) > 20
    tool = shutil.which("clang-format", path=Path(sys.executable).parent) or "clang-format"
    run([tool, f"--style=file:{ROOT / '.clang-format'}", "--dry-run", "--Werror", *C_FILES])


@pytest.mark.parametrize("path", C_FILES, ids=lambda path: path.name)
def test_files_are_short(path: Path) -> None:
    """The whole public interface is one header."""
    text = path.read_text(encoding="utf-8")
    assert len(text.encode()) < (29_000 if path.name == "runtime.h" else 20_000)
    assert "\t" not in text
    assert "TODO" not in text


def test_runtime_keeps_its_promises() -> None:
    """No output, no exit, no signal handler, no mutable state of the process."""
    forbidden = re.compile(
        r"\b(printf|fprintf|puts|exit|abort|signal|sigaction|setenv|getenv|atexit|assert)\s*\("
    )
    mutable = re.compile(r"^static (?!const\b|inline\b)[^()]*(=|;)", re.MULTILINE)
    for path in (TEMPLATES / "runtime").rglob("*.c"):
        text = re.sub(r"/\*.*?\*/", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        assert forbidden.findall(text) == [], path
        assert mutable.findall(text) == [], path


def test_every_status_is_documented() -> None:
    """docs/reference/c-api.md has the table of runtime.h, row by row."""
    text = (ROOT / "docs" / "reference" / "c-api.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(EP_\w+)` \| (\d+) \| (.+) \|$", text, re.MULTILINE)
    statuses = header().statuses
    assert rows == [(s.name, str(value), s.text) for value, s in sorted(statuses.items())]

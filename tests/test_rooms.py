"""docs/internals/testing.md says how the tests of each room are run: each file of tests is in one of them."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Files about the whole, which no room has.
WHOLE = "tests/test_*.py"


def commands() -> list[list[str]]:
    """The arguments of pytest in the table of rooms."""
    text = (ROOT / "docs" / "internals" / "testing.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| room \|.*\n\|[-|]*\|\n((?:\|.*\n)+)", text, re.MULTILINE)
    return [shlex.split(row.strip("|").split("|")[-1].strip().strip("`")) for row in table.splitlines()]


def files(argument: str) -> set[Path]:
    """The files of tests of a path, a folder's or, as bash has it, several in braces."""
    found: set[Path] = set()
    before, names, after = re.fullmatch(r"([^{]*)(?:\{(.*)\})?(.*?)", argument).groups()  # type: ignore[union-attr]
    for name in (names or "").split(","):
        path = ROOT / f"{before}{name}{after}"
        assert path.exists(), path
        found |= {path} if path.is_file() else set(path.rglob("test_*.py"))
    return found


def test_the_commands_of_the_rooms_have_every_file_of_tests() -> None:
    rooms = {
        file
        for command in commands()
        for argument in command
        if not argument.startswith("--")
        for file in files(argument)
    }
    missing = {*(ROOT / "tests").rglob("test_*.py")} - rooms - {*ROOT.glob(WHOLE)}
    assert not missing, f"add to the table in docs/internals/testing.md: {sorted(map(str, missing))}"

"""Generated parts of documents: each stands between two comments, under its own heading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["NOTES", "note", "read_section", "read_tables", "replace_section", "table"]

#: Where all that is measured goes, unless a script says otherwise.
NOTES = Path(__file__).parents[1] / "notes"


def note(heading: str) -> Path:
    """The file of a section in ``notes/``, which is named after it."""
    return NOTES / f"{_key(heading)}.md"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; all but the first ``left`` columns are aligned to the right."""
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join("---" if i < left else "---:" for i in range(len(header))) + "|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def replace_section(heading: str, text: str, script: str, document: Path | None = None) -> None:
    """Puts ``text`` where the section's last version stood, or under a new heading at the end.

    Args:
        document: the page; the file of ``notes/`` that is named after the heading unless it is given.
    """
    document = document or note(heading)
    key, end = _key(heading), _end(heading)
    block = f"<!-- {key}: written by benchmarks/{script} -->\n\n{text.strip()}\n\n{end}"
    old = document.read_text(encoding="utf-8") if document.is_file() else f"# {heading}\n"
    pattern = _pattern(heading)
    if pattern.search(old):
        new = pattern.sub(lambda _: block, old)
    else:
        title = "" if old.startswith(f"# {heading}\n") else f"## {heading}\n\n"
        new = f"{old.rstrip()}\n\n{title}{block}\n"
    document.write_text(new, encoding="utf-8", newline="\n")


def read_section(heading: str, document: Path | None = None) -> str:
    """What :func:`replace_section` put under the heading; ValueError if there is none."""
    document = document or note(heading)
    found = _pattern(heading).search(document.read_text(encoding="utf-8"))
    if found is None:
        raise ValueError(f"{document} has no section {_key(heading)}")
    return found.group(1).strip()


def read_tables(text: str) -> list[list[list[str]]]:
    """Cells of each table of a text, its header first, without the line of dashes and without bold."""
    tables: list[list[list[str]]] = []
    for lines in re.findall(r"(?:^\|.*\|\n?)+", text, re.MULTILINE):
        rows = [[cell.strip().strip("*") for cell in line[1:-1].split("|")] for line in lines.splitlines()]
        tables.append([row for row in rows if set("".join(row)) - set("-:")])
    return tables


def _key(heading: str) -> str:
    return heading.lower().replace(" ", "-")


def _end(heading: str) -> str:
    return f"<!-- {_key(heading)}: end -->"


def _pattern(heading: str) -> re.Pattern[str]:
    """Both comments and, as the only group, what stands between them."""
    return re.compile(
        f"<!-- {re.escape(_key(heading))}: written by [^>]*-->(.*?){re.escape(_end(heading))}", re.DOTALL
    )

"""Generated parts of ``docs/performance.md``: each stands between two comments, under its own heading."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

__all__ = ["DOCUMENT", "replace_section", "table"]

DOCUMENT = Path(__file__).parents[1] / "docs" / "performance.md"


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """A table; all but the first ``left`` columns are aligned to the right."""
    lines = [
        "| " + " | ".join(header) + " |",
        "|" + "|".join("---" if i < left else "---:" for i in range(len(header))) + "|",
    ]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)])


def replace_section(heading: str, text: str, script: str, document: Path = DOCUMENT) -> None:
    """Puts ``text`` where the section's last version stood, or under a new heading at the end."""
    key = heading.lower().replace(" ", "-")
    begin, end = f"<!-- {key}: written by benchmarks/{script} -->", f"<!-- {key}: end -->"
    block = f"{begin}\n\n{text.strip()}\n\n{end}"
    old = document.read_text(encoding="utf-8") if document.is_file() else "# Performance\n"
    pattern = re.compile(f"<!-- {key}: written by [^>]*-->.*?{re.escape(end)}", re.DOTALL)
    if pattern.search(old):
        new = pattern.sub(lambda _: block, old)
    else:
        new = f"{old.rstrip()}\n\n## {heading}\n\n{block}\n"
    document.write_text(new, encoding="utf-8", newline="\n")

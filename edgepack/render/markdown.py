"""Texts of others in Markdown (CommonMark and GitHub's tables): they are shown, and nothing in them is a
link, HTML, code, a heading or a table's cell."""

from __future__ import annotations

import re

from edgepack.text.printable import printable

__all__ = ["code", "code_cell", "markdown"]

#: What means something anywhere; a `_` within a word does not, nor an `&` that begins no entity.
_MARKS = re.compile(r"[\\`*\[\]#!~$<>|]|(?<![^\W_])_|_(?![^\W_])|&(?=#|[A-Za-z][A-Za-z0-9]*;)")
#: Of these not every reader takes a backslash; a bar behind one may still end the cell of a table.
_ENTITIES = {"<": "&lt;", ">": "&gt;", "&": "&amp;", "|": "&#124;"}
#: What begins a list, a heading's underline or a rule where it begins a line.
_FIRST = re.compile(r"[-+=:](?=[-+=:\s]|$)|[0-9]{1,9}(?=[.)](?:\s|$))")


def _escaped(match: re.Match[str]) -> str:
    return _ENTITIES.get(match[0], f"\\{match[0]}")


def markdown(text: str) -> str:
    """A text as one line of Markdown, also in a table's cell."""
    line = " ".join(printable(text, keep="\n\t").split())
    line = _MARKS.sub(_escaped, line)
    if first := _FIRST.match(line):
        mark = first[0]
        line = f"{mark}\\{line[len(mark) :]}" if mark.isdigit() else f"\\{line}"
    return line


def code(text: str) -> str:
    """A text as a code span, not in a table."""
    shown = printable(text)
    longest = max((len(run) for run in re.findall("`+", shown)), default=0)
    fence = "`" * (longest + 1)
    spaced = shown.startswith(("`", " ")) or shown.endswith(("`", " ")) or not shown
    return f"{fence} {shown} {fence}" if spaced else f"{fence}{shown}{fence}"


def code_cell(text: str) -> str:
    """A text as code in a table's cell; as no code where it has a bar, which would end the cell."""
    return markdown(text) if "|" in text else code(text)

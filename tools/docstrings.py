"""The parts of a docstring, for pages that are written from them."""

from __future__ import annotations

import inspect
import re
import textwrap
from typing import Any

HEADING = re.compile(r"^(Args|Attributes|Returns|Raises):$", re.MULTILINE)


def sections(thing: Any) -> dict[str, dict[str, str]]:
    """By heading (``Args``, ``Attributes``, ``Raises``): each name with its text on a line. What stands for
    several names (``runner, device: as above``) is listed under none of them."""
    _, *found = HEADING.split(inspect.getdoc(thing) or "")
    return {
        title: {name: text for name, text in items(body) if "," not in name}
        for title, body in zip(found[::2], found[1::2], strict=True)
    }


def items(body: str) -> list[tuple[str, str]]:
    """``name: what it is`` with continued lines."""
    listed = textwrap.dedent(body).strip("\n").partition("\n\n")[0]
    found: list[list[str]] = []
    for line in listed.splitlines():
        if not line.startswith(" ") and (match := re.match(r"([\w, .]+): (.*)", line)):
            found.append([match[1], match[2]])
        elif found:
            found[-1][1] += f" {line.strip()}"
    return [(name, as_line(what)) for name, what in found]


def as_line(text: str) -> str:
    """One line of Markdown: roles and double backticks become code."""
    text = re.sub(r"\s+", " ", text).strip()
    text = re.sub(r":\w+:`([^`]+)`", r"`\1`", text).replace("``", "`")
    return re.sub(r"::$", ":", text)

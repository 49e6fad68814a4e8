"""Writes docs/reference/messages.md from the sources: ``python tools/write_messages.py``."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.raised import Raised, found

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "messages.md"

_INTRODUCTION = """\
Each message that says what to try, by the command's exit code ([what these are](../troubleshooting.md)).
Look for a part of its text: `…` and `{names}` stand for what differs from case to case, ` / ` between hints
of which one is shown. Long messages are cut. Written by `tools/write_messages.py` from the sources.
"""
_CODES = {
    1: "Exit code 1: the thing asked about failed",
    2: "Exit code 2: wrong usage or configuration",
    3: "Exit code 3: the model cannot be compiled",
    4: "Exit code 4: a toolchain or a runner is missing or failed",
    5: "Exit code 5: an internal error",
}
#: What messages are about, by the room that raises them; the first that fits.
_TOPICS = (
    ("compiler.frontend.onnx.quantise|quantis|commands.compare|onnx.compare", "Quantising and comparing"),
    ("compiler|pipeline|commands.model_file|commands.check", "Models"),
    ("config|plan|registry|options", "Options, device and toolchain files"),
    ("toolchains|objectfiles|commands.doctor", "Compilers"),
    ("runners", "Runners"),
    ("client", "Sessions in Python"),
    ("formats|commands.export", "Packages"),
    ("release", "Releases"),
    ("signing|commands.update", "Keys, signatures, new weights"),
    ("", "Bundles and files"),
)
#: Characters of a message that are shown.
_SHOWN = 52


def page() -> str:
    """The whole page."""
    errors = found()
    parts = ["# Messages\n", _INTRODUCTION]
    for code, title in _CODES.items():
        parts.append(f"## {title}\n")
        parts += _of_code([one for one in errors if one.exit_code == code])
    return "\n".join(parts)


def _of_code(errors: Iterable[Raised]) -> Iterator[str]:
    """A table for each topic. What has the same hints, or is said by the same messages, is a row."""
    by_hint: dict[str, list[Raised]] = {}
    for one in errors:
        by_hint.setdefault(one.hint, []).append(one)
    rows: dict[tuple[str, str], list[str]] = {}
    for hint, ones in by_hint.items():
        said = {_shortened(_message(one)) for one in ones}
        begun = [one.rstrip(" …") for one in said]
        messages = "; ".join(sorted(one for one in said if not _is_longer(one, begun)))
        rows.setdefault((_topic(ones[0]), messages), []).append(hint)
    for _, title in _TOPICS:
        of_topic = sorted((said, hints) for (topic, said), hints in rows.items() if topic == title)
        lines = [f"| {_cell(said)} | {_cell(' / '.join(_whole(hints)))} |" for said, hints in of_topic]
        if lines:
            yield "\n".join([f"| {title} | |", "|---|---|", *lines]) + "\n"


def _is_longer(message: str, begun: Iterable[str]) -> bool:
    return any(message.startswith(one) and message.rstrip(" …") != one for one in begun)


def _whole(hints: Iterable[str]) -> list[str]:
    """Hints without those that another one ends with."""
    every = list(hints)
    return [one for one in every if not any(other != one and other.endswith(one) for other in every)]


def _message(error: Raised) -> str:
    if error.message:
        return error.message
    if error.module.startswith("edgepack.runners."):
        return f"The runner {error.module.rpartition('.')[2].replace('_', '-')} cannot run programs of ..."
    return "... failed"


def _topic(error: Raised) -> str:
    room = error.module.removeprefix("edgepack.")
    return next(title for pattern, title in _TOPICS if re.search(rf"(?:^|\.)(?:{pattern})", room))


def _shortened(message: str) -> str:
    """What is always the same in a message, and not too much of it."""
    text = re.sub(r"\{[^}]*\}", "…", message).replace("...", "…").replace("`", "")
    text = re.sub(r"…(?:[\s:@.]*…)+", "…", text).strip().rstrip(".:")
    text = re.sub(r"^(?:…[:,]?\s+)+(?=\w)", "", text)
    if len(text) > _SHOWN:
        text = text[:_SHOWN].rpartition(" ")[0].rstrip("…,;: ") + " …"
    return re.sub(r"\s+", " ", text)


def _cell(text: str) -> str:
    """Text as a table's cell: what Markdown would take for its own stands behind backslashes."""
    parts = re.split(r"(`[^`]*`)", re.sub(r"\s+", " ", text))
    escaped = [part if part.startswith("`") else re.sub(r"([*<\[\]])", r"\\\1", part) for part in parts]
    return "".join(escaped).replace("|", "\\|")


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(page(), encoding="utf-8", newline="\n")

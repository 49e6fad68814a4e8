"""Names of others on a terminal: nothing in them acts on it, hides, or turns what stands beside it."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str, keep: str = "") -> str:
    r"""The text with each character that does not show as itself in Python's spelling (``\x1b``, ``\u202e``).

    These are control characters, those of C1 and DEL among them, marks that turn the direction of writing,
    invisible characters, spaces but the common one, halves of characters, and what Unicode has not assigned.

    Args:
        keep: control characters that stay as they are: line ends of a text of several lines.
    """
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() or one in keep else _spelled(one) for one in text)


def _spelled(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")

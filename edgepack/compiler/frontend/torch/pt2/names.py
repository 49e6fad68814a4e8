"""Forms of names and of other texts of a program that PyTorch may write into Python source.

torch.fx writes names of nodes, arguments, subgraphs and keywords as they are, parts of attributes' names
between double quotes (torch/fx/graph.py, ``_format_target``), and keys of nested arguments in Python's
spelling.
"""

from __future__ import annotations

import keyword
import re
import unicodedata

from edgepack.compiler.frontend.torch.pt2.forms import Text

__all__ = ["ATTRIBUTE", "KEY", "NAME", "NAME_OR_NONE", "OPERATOR_NAMES", "WORD", "is_name"]

#: Names between two underscores that operators of PyTorch have, and so nodes that call them.
OPERATOR_NAMES = frozenset(
    f"__{place}{name}__" for place in ("", "i") for name in ("and", "or", "xor", "lshift", "rshift")
)

#: What ends a text of Python, or a part of it.
_QUOTES = frozenset("'\"`\\")


def is_name(text: str) -> bool:
    """Whether Python reads this as one identifier, and as no other than is written here."""
    dunder = text.startswith("__") and text.endswith("__") and text not in OPERATOR_NAMES
    normal = text.isascii() or unicodedata.normalize("NFKC", text) == text
    return text.isidentifier() and normal and not keyword.iskeyword(text) and not dunder


def _is_plain(text: str) -> bool:
    """Whether a text is the same between any quotes of Python, in a line."""
    dunder = text.startswith("__") and text.endswith("__")
    return text.isprintable() and not _QUOTES & set(text) and not dunder


def _is_attribute(text: str) -> bool:
    return all(is_name(one) or (_is_plain(one) and one and not one.isidentifier()) for one in text.split("."))


NAME = Text(lambda text: text if is_name(text) else None, "a name")

NAME_OR_NONE = Text(lambda text: text if not text or is_name(text) else None, "a name")

#: Of a parameter or buffer, from the module down: ``layers.0.weight``.
ATTRIBUTE = Text(lambda text: text if _is_attribute(text) else None, "a name with dots between its parts")

#: Of a dict among the arguments or results, or a text that is one.
KEY = Text(lambda text: text if _is_plain(text) else None, "a plain text")

#: An ASCII word.
WORD = Text(lambda text: text if re.fullmatch(r"[\w.\-]*", text, re.ASCII) else None, "a word", 200)

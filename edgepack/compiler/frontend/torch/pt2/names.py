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

#: Of an attribute's name, between dots: what is no identifier stands in quotes.
_PART = re.compile(r"[\w\-+/:@ ]+")
#: A key of a nested argument, or a text that is an argument.
_KEY = re.compile(r"[\w.\-+/:@ ]*")


def is_name(text: str) -> bool:
    """Whether Python reads this as one identifier, and as no other than is written here."""
    dunder = text.startswith("__") and text.endswith("__") and text not in OPERATOR_NAMES
    normal = text.isascii() or unicodedata.normalize("NFKC", text) == text
    return text.isidentifier() and normal and not keyword.iskeyword(text) and not dunder


def _is_attribute(text: str) -> bool:
    parts = text.split(".")
    return all(
        is_name(one) or (_PART.fullmatch(one) and not one.isidentifier() and not one.startswith("__"))
        for one in parts
    )


def _is_key(text: str) -> bool:
    dunder = text.startswith("__") and text.endswith("__")
    return bool(_KEY.fullmatch(text)) and not dunder


NAME = Text(lambda text: text if is_name(text) else None, "a name")

NAME_OR_NONE = Text(lambda text: text if not text or is_name(text) else None, "a name")

#: Of a parameter or buffer, from the module down: ``layers.0.weight``.
ATTRIBUTE = Text(lambda text: text if _is_attribute(text) else None, "a name with dots between its parts")

#: Of a dict among the arguments or results, or a text that is one.
KEY = Text(lambda text: text if _is_key(text) else None, "a plain text")

#: An ASCII word.
WORD = Text(lambda text: text if re.fullmatch(r"[\w.\-]*", text, re.ASCII) else None, "a word", 200)

"""Names of models and tensors as C identifiers and C strings. ONNX allows any text as a tensor's name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

__all__ = ["c_identifier", "c_string", "printable", "unique_identifiers"]

#: Keywords of C and C++, and names that the standard headers of a generated header bring in as macros.
_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept auto bitand bitor bool break
    case catch char char16_t char32_t char8_t class co_await co_return co_yield compl concept const
    const_cast consteval constexpr constinit continue decltype default delete do double dynamic_cast else
    enum explicit export extern false final float for friend goto if import inline int long module mutable
    namespace new noexcept not not_eq nullptr operator or or_eq override private protected public reflexpr
    register reinterpret_cast requires restrict return short signed sizeof static static_assert static_cast
    struct switch synchronized template this thread_local throw true try typedef typeid typename typeof
    union unsigned using virtual void volatile wchar_t while xor xor_eq main linux unix NULL
    """.split()  # noqa: SIM905
)


def c_identifier(name: str) -> str:
    """``name`` with every character that C does not allow replaced: ``input.1`` gives ``input_1``.

    Leading and doubled underscores are dropped (C and C++ reserve them); a leading digit gets an ``x``.
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    text = re.sub(r"[^A-Za-z0-9]+", "_", ascii_name).strip("_") or "x"
    return f"x{text}" if text[0].isdigit() else text


def unique_identifiers(
    names: Sequence[str], *, taken: Collection[str] = (), upper: bool = False, keywords: bool = True
) -> list[str]:
    """An identifier for each of ``names``, no two alike, none of them ``taken`` or (``keywords``) a keyword.

    The first to ask for a name gets it; later ones get ``_2``, ``_3``, ... A keyword gets an underscore.
    """
    used = set(taken)
    result = []
    for name in names:
        base = c_identifier(name)
        if keywords and (base in _KEYWORDS or base.startswith(("ep_", "EP_"))):
            base += "_"
        base = base.upper() if upper else base
        candidate, count = base, 1
        while candidate in used:
            count += 1
            candidate = f"{base.rstrip('_')}_{count}"
        used.add(candidate)
        result.append(candidate)
    return result


def c_string(text: str) -> str:
    """``text`` as a C string literal in ASCII: its UTF-8 bytes, as octal escapes where they need it."""
    out = []
    for byte in text.encode("utf-8"):
        char = chr(byte)
        if char in '"\\?':  # ? for trigraphs
            out.append("\\" + char)
        elif 0x20 <= byte < 0x7F:
            out.append(char)
        else:
            out.append(f"\\{byte:03o}")
    return f'"{"".join(out)}"'


def printable(text: str) -> str:
    """``text`` as it may stand in a C comment: ASCII, and it cannot end the comment."""
    visible = re.sub(r"[^ -~]", "?", text.encode("ascii", "backslashreplace").decode("ascii"))
    return visible.replace("*/", "*|").replace("/*", "|*").replace("??", "?")

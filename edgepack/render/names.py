"""Names of models and tensors as C identifiers and C strings. ONNX allows any text as a tensor's name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

__all__ = [
    "CPP_CLASS_KEYWORDS",
    "C_KEYWORDS",
    "c_identifier",
    "c_string",
    "printable",
    "unique_identifiers",
]

#: Keywords of C99, and the names of ``stdbool.h``.
C_KEYWORDS = frozenset(
    """
    auto bool break case char const continue default do double else enum extern false float for goto if
    inline int long register restrict return short signed sizeof static struct switch true typedef union
    unsigned void volatile while
    """.split()  # noqa: SIM905
)
#: Keywords of C++ for classes, templates and what belongs to them.
CPP_CLASS_KEYWORDS = frozenset(
    """
    class delete namespace new operator private protected public template this typename virtual
    """.split()  # noqa: SIM905
)
#: All other keywords of C and C++, and names that compilers and the headers of a generated header define.
_MORE_KEYWORDS = frozenset(
    """
    alignas alignof and and_eq asm atomic_cancel atomic_commit atomic_noexcept bitand bitor catch
    char16_t char32_t char8_t co_await co_return co_yield compl concept const_cast consteval constexpr
    constinit decltype dynamic_cast explicit export final friend import module mutable noexcept not
    not_eq nullptr or or_eq override reflexpr reinterpret_cast requires static_assert static_cast
    synchronized thread_local throw try typeid typeof using wchar_t xor xor_eq main linux unix NULL
    """.split()  # noqa: SIM905
)
_KEYWORDS = C_KEYWORDS | CPP_CLASS_KEYWORDS | _MORE_KEYWORDS


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

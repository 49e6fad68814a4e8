"""Names of models and tensors as C identifiers and C strings. ONNX allows any text as a tensor's name."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence

__all__ = [
    "CPP_CLASS_KEYWORDS",
    "C_KEYWORDS",
    "LOWER_CASE_MACROS",
    "c_identifier",
    "c_string",
    "direct_symbol",
    "model_symbol",
    "printable",
    "unique_identifiers",
]

#: Keywords of C99, and the names of ``stdbool.h``.
C_KEYWORDS = frozenset(
    """
    auto bool break case char const continue default do double else enum extern false float for goto
    if inline int long register restrict return short signed sizeof static struct switch true
    typedef union unsigned void volatile while
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
    char16_t char32_t char8_t co_await co_return co_yield compl concept const_cast consteval
    constexpr constinit decltype dynamic_cast explicit export final friend import module mutable
    noexcept not not_eq nullptr or or_eq override reflexpr reinterpret_cast requires static_assert
    static_cast synchronized thread_local throw try typeid typeof using wchar_t xor xor_eq main
    linux unix NULL
    """.split()  # noqa: SIM905
)
_KEYWORDS = C_KEYWORDS | CPP_CLASS_KEYWORDS | _MORE_KEYWORDS

#: Macros without arguments in lower case of the headers of C, C++, POSIX and Windows, and those that
#: compilers define for an architecture or a system (``tests/render/test_header_names.py`` asks them).
LOWER_CASE_MACROS = frozenset(
    """
    abnormal_termination arm basename cdecl complex diskfree_t environ errno exception_code
    exception_info far gai_strerror h_addr h_errno hpux huge hyper i386 imaginary in_addr6 interface
    isascii iscsym iscsymf longjmp lstrcat lstrcmp lstrcmpi lstrcpy lstrcpyn lstrlen major makedev
    math_errhandling matherr max midl_user_allocate midl_user_free min minor mips msg_cbytes near
    noreturn offsetof onexit_t pascal pclose popen powerpc rpc_binding_handle_t rpc_binding_vector_t
    sched_priority setjmp sgi sigmask small sparc stderr stdin stdout sun sys_errlist sys_nerr
    toascii uuid_t uuid_vector_t vax wcswcs wpopen wsprintf wvsprintf
    """.split()  # noqa: SIM905
)
#: Families of them: dialogue boxes of Windows (``chx1``), members of POSIX's structs (``st_mtime``).
_MACRO_FAMILIES = re.compile(
    r"(chx|cmb|ctl|edt|frm|grp|ico|lst|psh|rad|rct|scr|stc)[0-9]+"
    r"|(atomic|d|ifa|ifc|ifr|s|s6|sa|si|sigev|st|tcp|th|ua|uh)_[a-z0-9_]+"
)


def _is_macro(name: str) -> bool:
    """Whether a header may define ``name``: all with a capital count: Windows' headers have thousands."""
    return name != name.lower() or name in LOWER_CASE_MACROS or _MACRO_FAMILIES.fullmatch(name) is not None


def c_identifier(name: str) -> str:
    """``name`` with every character that C does not allow replaced: ``input.1`` gives ``input_1``.

    Leading and doubled underscores are dropped (C and C++ reserve them); a leading digit gets an ``x``.
    """
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode("ascii")
    text = re.sub(r"[^A-Za-z0-9]+", "_", ascii_name).strip("_") or "x"
    return f"x{text}" if text[0].isdigit() else text


def model_symbol(name: str) -> str:
    """The one symbol that the library of the model ``name`` exports."""
    return f"edgepack_model_{c_identifier(name)}"


def direct_symbol(name: str) -> str:
    """The function of the model ``name`` that runs it without a session, where the library has one."""
    return f"edgepack_run_{c_identifier(name)}"


def unique_identifiers(
    names: Sequence[str], *, taken: Collection[str] = (), upper: bool = False, keywords: bool = True
) -> list[str]:
    """An identifier for each of ``names``, no two alike, none of them ``taken`` or (``keywords``) a keyword.

    The first to ask for a name gets it; later ones get ``_2``, ``_3``, ... A keyword, and what may be a
    macro of a header, gets an underscore.
    """
    used = set(taken)
    result = []
    for name in names:
        base = c_identifier(name)
        if keywords and (
            base in _KEYWORDS or (not upper and _is_macro(base)) or base.startswith(("ep_", "EP_"))
        ):
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

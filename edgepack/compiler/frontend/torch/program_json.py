"""What the JSON in a ``.pt2`` archive may say: calls of operators, and sizes that are arithmetic.

PyTorch resolves each call's name below the module ``torch``, and evaluates sizes by ``sympy.sympify``, which
is Python's ``eval``. Names of functions are PyTorch's (torch/_export/serde/serialize.py,
torch/utils/_sympy/functions.py) and SymPy's, as its ``srepr`` prints them.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = ["libraries", "more_than_data"]

#: Functions that serialised graphs call: operators of these libraries, and arithmetic of sizes.
_CALLED = re.compile(
    r"torch\.ops\.(?:aten|prims|prim|quantized_decomposed|torchao|torchvision|_quantized)\.\w+(?:\.\w+)?"
    r"|torch\.ops\.higher_order\.(?:cond|while_loop|scan|associative_scan|map_impl|wrap_with_set_grad_enabled"
    r"|wrap_with_autocast|wrap|invoke_subgraph)"
    r"|_operator\.(?:getitem|add|sub|mul|floordiv|mod|truediv|pow|neg|eq|ne|lt|le|gt|ge|and_|or_|not_)"
    r"|math\.(?:ceil|floor|trunc|sqrt)"
    r"|torch\.(?:sym_\w+|_sym_\w+|_check|_check_is_size)"
)
#: Operators that read or write files.
_FILES = re.compile(r"torch\.ops\.\w+\.(?:from_file|save|load|open|read|write|fork|exec)\w*(?:\.\w+)?")

_LIBRARY = re.compile(r'"torch\.ops\.(\w+)\.')

#: A token of a symbolic size; two names or numbers never stand side by side, and nothing is an attribute.
_TOKEN = re.compile(
    r"\s*(?:(?P<name>[A-Za-z_]\w*|'[suz][fi]?\d+')|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<other>\*\*|//|[<>=!]=|[-+*/%(),=<>&|~]))"
)
_SYMBOL = re.compile(r"'?[suz][fi]?\d+'?")
_LONGEST = 10_000
_FUNCTION = re.compile(
    # PyTorch's
    "Max|Min|Mod|PythonMod|FloorDiv|CleanDiv|CeilDiv|CeilToInt|FloorToInt|TruncToInt|RoundToInt|RoundDecimal"
    "|ToFloat|IntTrueDiv|FloatTrueDiv|PowByNatural|FloatPow|ModularIndexing|Where|Identity|LShift|RShift|int_oo"
    # SymPy's
    "|Symbol|Integer|Rational|Float|Add|Mul|Pow|Abs|ceiling|floor|Piecewise|ExprCondPair|And|Or|Not|Eq|Ne|Lt|Le|Gt|Ge"
    "|Equality|Unequality|StrictLessThan|StrictGreaterThan|LessThan|GreaterThan|True|False|true|false|oo"
    # what is known of a symbol
    "|positive|integer|nonnegative|real|nonzero|zero|finite|negative"
)


def more_than_data(program: Any) -> str:
    """What in the JSON of a program, or of a part of one, would run code, as the end of a sentence; ""
    for nothing."""
    todo = [program]
    while todo:
        one = todo.pop()
        if isinstance(one, list):
            todo += one
        elif isinstance(one, dict):
            todo += one.values()
            for target in (one.get("target") if "inputs" in one else None, one.get("as_operator")):
                if isinstance(target, str) and not (
                    _CALLED.fullmatch(target) and not _FILES.fullmatch(target)
                ):
                    return f"it calls {target[:80]!r}, which is no operator that computes something"
            ranges = one.get("range_constraints")
            for size in (one.get("expr_str"), *(ranges if isinstance(ranges, dict) else ())):
                if isinstance(size, str) and not _is_arithmetic(size):
                    return f"the size {size[:80]!r} in it is no arithmetic"
    return ""


def libraries(text: str) -> set[str]:
    """Of the operators that the JSON of a program may call, what stands before the name: ``aten``."""
    return set(_LIBRARY.findall(text))


def _is_arithmetic(text: str) -> bool:
    """Whether a symbolic size consists of symbols, numbers, functions that are known, and operators."""
    at, operand, closed = 0, False, False
    text = text.rstrip()
    if not text or len(text) > _LONGEST:
        return False
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            return False
        name = found["name"]
        if name and not (_SYMBOL.fullmatch(name) or _FUNCTION.fullmatch(name)):
            return False
        if (operand and (name or found["number"])) or (closed and found["other"] == "("):
            return False
        closed = bool(found["number"]) or found["other"] == ")"
        operand = bool(name) or closed
        at = found.end()
    return True

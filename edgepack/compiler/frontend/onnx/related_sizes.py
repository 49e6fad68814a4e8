"""Sizes of open dimensions that follow from others, by their names: ``past + length``, ``total_length``."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping

__all__ = ["derive", "names_in", "usual_total", "value_of"]

#: What exporters write into a name (PyTorch's are SymPy's), by what computes it.
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a // b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}
_FUNCTIONS: dict[str, Callable[..., int]] = {"max": max, "min": min, "floor": int, "ceiling": int}
#: A name, with a dash in it perhaps, which is no minus sign.
_PLAIN = re.compile(r"[\w.-]+")
#: Names of lengths that a cache has, and of those that a run adds; what is over both.
_PAST = re.compile(r"past|cache|prev|memory|history")
_NEW = re.compile(r"seq|token|length|len$|^[slt]$")
_TOTAL = re.compile(r"total|all_|whole|full|kv_?(seq|len)|mask|attention")


def names_in(name: str) -> tuple[str, ...]:
    """The names that the name of a dimension computes with; () for one that is no computation."""
    tree = _parsed(name)
    if tree is None or isinstance(tree, ast.Name):
        return ()
    known = _functions(tree)
    names = [one.id for one in ast.walk(tree) if isinstance(one, ast.Name) and one.id not in known]
    return tuple(dict.fromkeys(names))


def value_of(name: str, sizes: Mapping[str, int]) -> int | None:
    """The size of a dimension whose name computes it of others; None where it does not, or they are open."""
    tree = _parsed(name)
    if tree is None or isinstance(tree, ast.Name | ast.Constant):
        return None
    try:
        found = _value(tree, sizes)
    except (KeyError, ZeroDivisionError, TypeError, ValueError):
        return None
    return found if found > 0 else None


def derive(names: Collection[str], sizes: dict[str, int]) -> None:
    """Adds to ``sizes`` those of ``names`` that follow from it."""
    for name in names:
        if name not in sizes and (found := value_of(name, sizes)) is not None:
            sizes[name] = found


def usual_total(name: str, sizes: Mapping[str, int]) -> int | None:
    """The size of a length that by its name is over what a cache has and what a run adds, which are known;
    None for any other."""
    if not _TOTAL.search(name.lower()):
        return None
    past, new = [], []
    for other, size in sizes.items():
        if other == name or names_in(other):
            continue
        if _PAST.search(other.lower()):
            past.append(size)
        elif _NEW.search(other.lower()) and not _TOTAL.search(other.lower()):
            new.append(size)
    return past[0] + new[0] if len(past) == len(new) == 1 else None


def _parsed(name: str) -> ast.expr | None:
    if _PLAIN.fullmatch(name):
        return None
    try:
        return ast.parse(name.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _functions(tree: ast.expr) -> set[str]:
    calls = [one.func for one in ast.walk(tree) if isinstance(one, ast.Call)]
    return {function.id for function in calls if isinstance(function, ast.Name)}


def _value(tree: ast.expr, sizes: Mapping[str, int]) -> int:
    """Raises KeyError for what is not known."""
    match tree:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return sizes[name]
        case ast.BinOp(left=left, op=operator, right=right):
            return _OPERATORS[type(operator)](_value(left, sizes), _value(right, sizes))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            return _FUNCTIONS[name.lower()](*(_value(one, sizes) for one in arguments))
    raise KeyError(type(tree).__name__)

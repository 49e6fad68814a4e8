"""What edgepack's own exporter says of a program's tensors: their names, and how they were nested."""

from __future__ import annotations

import json
from typing import Any

from edgepack.compiler.frontend.torch.pt2.forms import (
    Choice,
    Integer,
    Later,
    ListOf,
    Maybe,
    Record,
    RefusedError,
    Text,
    read,
    shown,
)

__all__ = ["said_in"]

_NAME = Text(lambda text: text if text.isprintable() else None, "a name", 2000)


def _value(value: Any, levels: int) -> Any:
    """A constant: nothing, a number or a text."""
    if not (value is None or isinstance(value, bool | int | float | str)):
        raise RefusedError(f"is {shown(value)}, and a number or a text is meant")
    return _NAME(value, levels) if isinstance(value, str) else value


def _key(value: Any, levels: int) -> Any:
    return (_NAME if isinstance(value, str) else Integer())(value, levels)


_STRUCTURE: Record = Record(
    {"kind": Choice(("tensor", "constant", "tuple", "list", "dict", "namedtuple", "object"))},
    {"name": _NAME, "value": _value, "keys": ListOf(_key), "items": ListOf(Later(lambda: _STRUCTURE))},
)
_SAID = Record(
    {},
    {
        "inputs": ListOf(_NAME),
        "outputs": ListOf(_NAME),
        "nested": Maybe(Record({"arguments": _STRUCTURE, "results": _STRUCTURE})),
    },
)


def said_in(text: bytes) -> bytes:
    """The same, written anew. Raises RefusedError where it says anything else."""
    try:
        whole = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        raise RefusedError("is no JSON") from None
    found = read(_SAID, whole)
    for part in (found.get("nested") or {}).values():
        _check_keys(part)
    return json.dumps(found).encode("utf-8")


def _check_keys(one: dict[str, Any]) -> None:
    """What has names for its parts has as many as parts; a tensor has a name."""
    named = one["kind"] in ("dict", "namedtuple", "object")
    if (named and len(one.get("keys", ())) != len(one.get("items", ()))) or (
        one["kind"] == "tensor" and not one.get("name")
    ):
        raise RefusedError(f"has a {one['kind']} without names")
    for item in one.get("items", ()):
        _check_keys(item)

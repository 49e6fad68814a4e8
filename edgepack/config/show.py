"""A resolved file as YAML text, each value with where it came from."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from edgepack.config.document import KeyPath
from edgepack.config.load import Resolved
from edgepack.config.models import format_size

__all__ = ["as_yaml"]

#: Fields in bytes: shown with a unit.
_SIZES = {("cpu", "l1d"), ("cpu", "l2"), ("cpu", "l3"), ("page_size",), ("gpu", "local_memory")}
#: Column at which the remarks stand, if the values leave room.
_COLUMN = 58


def as_yaml(resolved: Resolved[Any]) -> str:
    """All fields of a device or toolchain as YAML that loads again; a remark names each value's origin."""
    lines = []
    for text, path in _lines(resolved.model, (), 0):
        origin = _origin(resolved, path)
        lines.append(f"{text.ljust(_COLUMN)}  # {origin}" if origin else text)
    return "\n".join(lines) + "\n"


def _lines(value: BaseModel | dict[str, Any], path: KeyPath, depth: int) -> Iterator[tuple[str, KeyPath]]:
    """(line, path of its value), with () for a line that only opens a mapping."""
    items = (
        value.items()
        if isinstance(value, dict)
        else ((name, getattr(value, name)) for name in type(value).model_fields)
    )
    for key, item in items:
        here = (*path, key)
        start = f"{'  ' * depth}{key}:"
        if isinstance(item, BaseModel) or (isinstance(item, dict) and item):
            yield start, ()
            yield from _lines(item, here, depth + 1)
        else:
            yield f"{start} {_scalar(item, here)}", here


def _scalar(value: Any, path: KeyPath) -> str:
    if path in _SIZES:
        return format_size(value)
    if isinstance(value, BaseModel):  # in a list
        fields = (f"{name}: {_scalar(getattr(value, name), ())}" for name in type(value).model_fields)
        return f"{{{', '.join(fields)}}}"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(_scalar(item, ()) for item in value)}]"
    if isinstance(value, str):
        return _word(value)
    return "{}" if value == {} else str(value)


def _word(text: str) -> str:
    """Text as it can stand in YAML: plain if it can only be a word."""
    plain = text and text[0].isalpha() and all(c.isalnum() or c in "_-./+" for c in text)
    if plain and text.lower() not in {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}:
        return text
    return json.dumps(text, ensure_ascii=False)


def _origin(resolved: Resolved[Any], path: KeyPath) -> str:
    if not path:
        return ""
    origin = resolved.document.origins.get(path)
    if origin is None:
        return "default"
    return f"{Path(origin.source).name}:{origin.line}" if origin.line else origin.source

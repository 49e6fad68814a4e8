"""Readable names of inputs and outputs, from how a program's arguments and results are nested."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["input_names", "output_names", "placeholders", "plain", "unique"]


def input_names(program: ExportedProgram, example: Any) -> list[str]:
    """Of each leaf of a program's arguments, in order: ``x``, ``batch_image``, ``past_0_key``.

    Args:
        example: positional arguments and keywords, nested as the program takes them.
    """
    from torch.utils import _pytree as pytree

    count = len(pytree.tree_leaves(example))
    names = placeholders(program)
    if len(names) != count:
        paths = [path[1:] for path, _ in pytree.tree_flatten_with_path(example)[0]]
        names = [_joined(path, "input") for path in paths]
    return unique([plain(name) for name in names])


def placeholders(program: ExportedProgram) -> list[str]:
    """Of each leaf of a program's arguments, in order, what its graph calls it."""
    from torch.export.graph_signature import InputKind

    specs = program.graph_signature.input_specs
    return [str(one.arg.name) for one in specs if one.kind == InputKind.USER_INPUT]


def output_names(results: Any) -> list[str]:
    """Of each leaf of a program's results, in order: ``logits``, ``boxes_0``; ``output`` for one alone.

    Args:
        results: nested as the program returns them.
    """
    from torch.utils import _pytree as pytree

    paths = [path for path, _ in pytree.tree_flatten_with_path(results)[0]]
    return unique([_joined(path, "output") for path in paths])


def unique(names: Sequence[str], taken: Iterable[str] = ()) -> list[str]:
    """The names, numbered where one occurs twice or is taken."""
    seen, found = set(taken), []
    last: dict[str, int] = {}
    for name in names:
        one = name
        while one in seen:
            last[name] = last.get(name, 1) + 1
            one = f"{name}_{last[name]}"
        seen.add(one)
        found.append(one)
    return found


def plain(name: str) -> str:
    """A name of letters, digits, dots and underscores."""
    return re.sub(r"[^A-Za-z0-9_.]+", "_", name).strip("_.") or "value"


def _joined(path: Sequence[Any], alone: str) -> str:
    parts = [_key(one) for one in path]
    if not parts:
        return alone
    return plain("_".join([alone, *parts] if parts[0].isdigit() else parts))


def _key(key: Any) -> str:
    """The part of a path that an entry of it is: a key, an index or an attribute's name."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)

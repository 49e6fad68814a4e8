"""How arguments and results of a program are nested, as plain data: what a bundle's manifest says of it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["renamed", "structure"]

#: Levels of nesting that are recorded; a manifest has two for each, and 32 in all.
_DEEPEST = 10


def structure(nested: Any, tensor: type, names: Sequence[str]) -> dict[str, Any] | None:
    """A nested value as :class:`edgepack.bundle.structure.Structure` has it, as JSON; None where it is nested
    too deep, or holds what is neither a tensor nor a number or text.

    Args:
        nested: of types that PyTorch's pytrees know.
        tensor: the class of what stands for a tensor.
        names: of the tensors, in the order of the leaves.
    """
    try:
        return _of(nested, tensor, iter(names), _DEEPEST)
    except ValueError:
        return None


def renamed(one: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """A structure with other names of its tensors."""
    if one["kind"] == "tensor":
        return {**one, "name": names.get(one["name"], one["name"])}
    return {**one, "items": [renamed(item, names) for item in one.get("items", ())]}


def _of(one: Any, tensor: type, names: Iterator[str], levels: int) -> dict[str, Any]:
    from torch.utils import _pytree as pytree

    if isinstance(one, tensor):
        return {"kind": "tensor", "name": next(names)}
    if one is None or isinstance(one, bool | int | float | str):
        return {"kind": "constant", "value": one}
    if levels == 0 or (type(one) not in pytree.SUPPORTED_NODES and not _is_named(one)):
        raise ValueError(type(one).__name__)
    keyed, _ = pytree.tree_flatten_with_path(one, is_leaf=lambda child: child is not one)
    keys = [_key(path[0]) for path, _ in keyed]
    items = [_of(child, tensor, names, levels - 1) for _, child in keyed]
    if type(one) in (tuple, list):
        return {"kind": type(one).__name__, "items": items}
    kind = "dict" if type(one) in (dict, OrderedDict) else "namedtuple" if _is_named(one) else "object"
    if kind != "dict":
        keys = [str(key) for key in keys]
    if not all(isinstance(key, str | int) for key in keys):
        raise ValueError("keys")
    found = {"kind": kind, "keys": keys, "items": items}
    return found if kind == "dict" else {**found, "name": type(one).__name__}


def _is_named(one: Any) -> bool:
    return isinstance(one, tuple) and hasattr(one, "_fields")


def _key(key: Any) -> Any:
    """What an entry of a path is: a key, an index or an attribute's name."""
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return getattr(key, attribute)
    return str(key)

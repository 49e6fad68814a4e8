"""How arguments and results are nested, as PyTorch's ``treespec_dumps`` writes it: JSON in a text.

PyTorch looks up types by their names, imports the modules that an enumeration or a defaultdict names
(torch/utils/_pytree.py, ``enum_object_hook``, ``_defaultdict_deserialize``), and writes the keys of keyword
arguments into source. Here only types that every process knows are read, and keys that are plain.
"""

from __future__ import annotations

import json
from typing import Any

from edgepack.compiler.frontend.torch.pt2.forms import (
    LEVELS,
    Choice,
    Form,
    Integer,
    Maybe,
    Record,
    RefusedError,
    read,
    said,
    shown,
)
from edgepack.compiler.frontend.torch.pt2.names import KEY, NAME

__all__ = ["IN_SPEC", "OUT_SPEC"]

_LONGEST, _LEAVES, _DEEPEST = 4_000_000, 100_000, 60

#: Without a context: ``null``.
_SEQUENCES = frozenset(
    {"builtins.tuple", "builtins.list", "torch.Size", "torch.fx.immutable_collections.immutable_list"}
)
_TABLES = frozenset(
    {"builtins.dict", "collections.OrderedDict", "torch.fx.immutable_collections.immutable_dict"}
)
_PROTOCOL = 1

#: What a defaultdict makes of a key that is missing.
_FACTORY = Record(
    {
        "default_factory_module": Choice(("builtins",)),
        "default_factory_name": Choice(("list", "dict", "int", "float", "tuple", "set", "str", "bool")),
        "dict_context": lambda value, levels: value,
    }
)
_NODE = Record(
    {
        "type": lambda value, levels: value,
        "context": lambda value, levels: value,
        "children_spec": lambda value, levels: value,
    }
)


class _Spec:
    """A nested specification.

    Args:
        keywords: the second part of the outermost tuple is the keyword arguments, whose keys are names.
    """

    def __init__(self, *, keywords: bool) -> None:
        self.keywords = keywords

    def __call__(self, value: Any, levels: int) -> str:
        del levels
        whole = _parsed(value, "a nested specification")
        if not isinstance(whole, list) or len(whole) != 2 or whole[0] != _PROTOCOL:
            raise RefusedError(f"is no specification of version {_PROTOCOL} of how values are nested")
        left = [_LEAVES]
        node = read(lambda one, levels: _node(one, levels - LEVELS + _DEEPEST, left), whole[1])
        if self.keywords and node["type"] == "builtins.tuple" and len(node["children_spec"]) == 2:
            keywords = node["children_spec"][1]
            for key in json.loads(keywords["context"]) if keywords["type"] in _TABLES else ():
                read(NAME, key)
        return json.dumps([_PROTOCOL, node])


def _parsed(text: Any, what: str) -> Any:
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise RefusedError(f"is {shown(text)}, and {what} is meant")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise RefusedError(f"is {shown(text)}, which is no JSON") from None


def _node(value: Any, levels: int, left: list[int]) -> dict[str, Any]:
    """One node and all below it.

    Args:
        left: how many nodes there may still be.
    """
    node = _NODE(value, levels)
    left[0] -= 1
    if levels <= 0 or left[0] < 0:
        raise RefusedError(f"is nested deeper than {_DEEPEST} levels, or has more than {_LEAVES} parts")
    kind, children = node["type"], node["children_spec"]
    if not isinstance(children, list):
        raise RefusedError(f"has children_spec that is {shown(children)}")
    if kind is None:
        if node["context"] is not None or children:
            raise RefusedError("is a leaf with a context or children")
        return {"type": None, "context": None, "children_spec": []}
    try:
        context, count = _context(kind, node["context"])
    except RefusedError as refused:
        refused.inside("context")
        raise
    if count is not None and count != len(children):
        raise RefusedError(f"has {count} keys and {len(children)} children")
    made = []
    for number, child in enumerate(children):
        try:
            made.append(_node(child, levels - 1, left))
        except RefusedError as refused:
            refused.inside(number).inside("children_spec")
            raise
    return {"type": kind, "context": context, "children_spec": made}


def _context(kind: Any, context: Any) -> tuple[Any, int | None]:
    """The context of a type, and how many children belong to it; None: any number."""
    if not isinstance(kind, str):
        raise RefusedError(f"is of the type {shown(kind)}")
    if kind == "collections.defaultdict":
        factory = _FACTORY(context, LEVELS)
        keys = _keys(factory["dict_context"])
        return {**factory, "dict_context": keys}, len(keys)
    if kind in _SEQUENCES or kind in _TABLES or kind == "collections.deque":
        held = _parsed(context, "JSON in a text")
        if kind in _TABLES:
            keys = _keys(held)
            return json.dumps(keys), len(keys)
        form: Form = Maybe(Integer(0, _LEAVES)) if kind == "collections.deque" else Choice((None,))
        return json.dumps(form(held, LEVELS)), None
    named = context if kind == "collections.namedtuple" else kind
    raise RefusedError(
        f"is of the type {shown(named)}",
        instead=f"{{model}} takes or returns objects of {said(named)}, a type that only the process knows "
        "that exported it.",
        hint="Give edgepack.pack the module in that process, or export one that takes and returns tensors, "
        "dicts and tuples.",
    )


def _keys(value: Any) -> list[Any]:
    """Keys of a table: plain texts and integers."""
    if not isinstance(value, list):
        raise RefusedError(f"is {shown(value)}, and a list of keys is meant")
    text, number = KEY, Integer()
    return [text(one, LEVELS) if isinstance(one, str) else number(one, LEVELS) for one in value]


IN_SPEC, OUT_SPEC = _Spec(keywords=True), _Spec(keywords=False)

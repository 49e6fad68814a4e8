"""Arguments and results as the module has them that a bundle was made of, in dicts, tuples and objects."""

from __future__ import annotations

import keyword
from collections import namedtuple
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from edgepack.bundle.structure import NestedRecord, Structure
from edgepack.errors import ConfigError

__all__ = ["flat_inputs", "nested_results"]


def flat_inputs(record: NestedRecord, positional: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a module's arguments, by the names of a bundle's inputs.

    Raises:
        ConfigError: they are nested in another way than those that the module was exported with.
    """
    if len(record.arguments.items) != 2:
        raise ConfigError("The bundle's manifest does not say how its module's arguments are nested.")
    by_place, by_name = record.arguments.items
    constant = [item for item in by_place.items[len(positional) :] if item.kind == "constant"]
    given = (*positional, *(item.value for item in constant))
    names = {**{str(key): item.value for key, item in _pairs(by_name) if item.kind == "constant"}, **named}
    found: dict[str, Any] = {}
    _take(by_place, given, "argument", found)
    _take(by_name, names, "arguments by name", found)
    return found


def nested_results(record: NestedRecord, outputs: Mapping[str, Any]) -> Any:
    """What the module returns: an object is a ``types.SimpleNamespace`` of its fields, a named tuple a named
    tuple, for no class is imported by a name that a bundle has.

    Args:
        outputs: by name; those that are no results of the module (new states) are left out.

    Raises:
        ConfigError: an output is missing.
    """
    return _made(record.results, outputs)


def _pairs(one: Structure) -> list[tuple[str | int, Structure]]:
    return list(zip(one.keys, one.items, strict=False))


def _take(one: Structure, value: Any, where: str, found: dict[str, Any]) -> None:
    if one.kind == "tensor":
        found[one.name] = value
    elif one.kind == "constant":
        if value is not one.value and value != one.value:
            raise ConfigError(
                f"{where[0].upper()}{where[1:]}: {value!r:.60} is given, and {one.value!r:.60} is a constant "
                "of the bundle, which the module was exported with.",
                hint="Export the module with the other value, as another bundle.",
            )
    elif one.kind in ("tuple", "list"):
        if not isinstance(value, tuple | list) or len(value) != len(one.items):
            raise _other(where, value, f"a {one.kind} of {len(one.items)}")
        for index, (item, part) in enumerate(zip(one.items, value, strict=True)):
            _take(item, part, f"{where}[{index}]", found)
    elif isinstance(value, Mapping):
        if set(value) != set(one.keys):
            raise _other(where, value, f"a dict of {', '.join(map(repr, one.keys)) or 'nothing'}")
        for key, item in _pairs(one):
            _take(item, value[key], f"{where}[{key!r}]", found)
    elif one.kind == "dict" or not all(hasattr(value, str(key)) for key in one.keys):
        raise _other(where, value, f"a {one.name or 'dict'} of {', '.join(map(str, one.keys)) or 'nothing'}")
    else:
        for key, item in _pairs(one):
            _take(item, getattr(value, str(key)), f"{where}.{key}", found)


def _other(where: str, value: Any, wanted: str) -> ConfigError:
    kind = f"a value of type {type(value).__name__}"
    what = f"{kind} with {len(value)}" if isinstance(value, Mapping | tuple | list) else kind
    return ConfigError(
        f"{where[0].upper()}{where[1:]}: {what} is given, the module was exported with {wanted}.",
        hint="Give what the module's example was, with arrays as tensors; Session.run takes them by name.",
    )


def _made(one: Structure, outputs: Mapping[str, Any]) -> Any:
    if one.kind == "tensor":
        if one.name not in outputs:
            raise ConfigError(
                f"There is no output {one.name!r}, which the module's result has.",
                hint=f"It is made of what Session.run returns: {', '.join(outputs) or 'nothing'} are given.",
            )
        return outputs[one.name]
    if one.kind == "constant":
        return one.value
    items = [_made(item, outputs) for item in one.items]
    if one.kind == "tuple":
        return tuple(items)
    if one.kind == "list":
        return items
    if one.kind == "dict":
        return dict(zip(one.keys, items, strict=False))
    names = [str(key) for key in one.keys]
    if one.kind == "namedtuple":
        plain = one.name.isidentifier() and not keyword.iskeyword(one.name)
        return namedtuple(one.name if plain else "Result", names, rename=True)(*items)
    return SimpleNamespace(**dict(zip(names, items, strict=False)))

"""Whether what a TorchScript archive's pickles hold is what its code says: PyTorch's reader asks for none of
it.

A tensor that is larger than its storage would be read, and written to, beyond it; an attribute that is
another class's object would be taken apart as what it is not.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from math import prod
from typing import Any

from edgepack.compiler.frontend.torch.script.pickles import (
    ITEM_BYTES,
    DeviceName,
    Items,
    Made,
    Pairs,
    Row,
    Stored,
    Tensor,
)
from edgepack.compiler.frontend.torch.script.types import (
    ANY,
    Definition,
    Refused,
    Type,
    read_type,
    type_of_text,
)

__all__ = ["Values"]

_PLAIN: dict[str, type | tuple[type, ...]] = {
    "Tensor": Tensor, "str": str, "float": float, "complex": complex, "Device": DeviceName,
    "NoneType": type(None), "bool": bool, "list": Items, "tuple": Row,
}  # fmt: skip
_MOST_DIMENSIONS, _MOST_ELEMENTS = 64, 2**31 - 1


class Values:
    """Compares values with types.

    Args:
        defined: what the archive's code defines.
        entries: bytes of each storage's entry, by its key.
    """

    def __init__(self, defined: Mapping[str, Definition], entries: Mapping[str, int]) -> None:
        self._defined = defined
        self._entries = entries
        #: What was compared, and with which type: shared values once.
        self._known: dict[tuple[int, Type], bool] = {}
        self._storages: dict[str, Stored] = {}
        self._types: dict[str, Type] = {}

    def check(self, value: Any, kind: Type = ANY) -> None:
        """Raises Refused for what is not of a type, or would be read beyond its storage."""
        if not self._is(value, kind):
            raise Refused(f"a value that is no {kind}, as its code says")

    def _is(self, value: Any, kind: Type) -> bool:
        if isinstance(value, bool | int | float | complex | str | None):
            return self._is_plain(value, kind)
        at = (id(value), kind)
        if at not in self._known:
            self._known[at] = True  # what holds itself is refused where it is written
            self._known[at] = self._is_structure(value, kind)
        return self._known[at]

    def _is_plain(self, value: Any, kind: Type) -> bool:
        match kind.name:
            case "Any":
                return True
            case "int":
                return type(value) is int
            case "number":
                return type(value) in {int, float, complex}
            case "Optional":
                return value is None or self._is(value, kind.parts[0])
            case "Union":
                return any(self._is(value, one) for one in kind.parts)
        return kind.name in _PLAIN and isinstance(value, _PLAIN[kind.name])

    def _is_structure(self, value: Any, kind: Type) -> bool:
        if kind.name == "Optional":
            return self._is(value, kind.parts[0])
        if kind.name == "Union":
            return any(self._is(value, one) for one in kind.parts)
        match value:
            case Tensor():
                self._check_tensor(value)
                return kind.name in {"Tensor", "Any"}
            case DeviceName():
                return kind.name in {"Device", "Any"}
            case Items() | Pairs():
                return self._is_filled(value, kind)
            case Row():
                return self._is_row(value, kind)
            case Made():
                return self._is_made(value, kind)
        return False

    def _is_filled(self, value: Items | Pairs, kind: Type) -> bool:
        """A list or a dict: what the file says of it, and what the code says, are one."""
        name = "List" if isinstance(value, Items) else "Dict"
        if value.tag:
            said = self._types.setdefault(value.tag, type_of_text(value.tag, self._defined))
            value.tag = str(said)
            if kind.name != "Any" and kind != said:
                return False
            kind = said
        if kind.name == "Any":
            kind = Type(name, (ANY,) if name == "List" else (ANY, ANY))
        if kind.name != name:
            return False
        if isinstance(value, Items):
            return all(self._is(one, kind.parts[0]) for one in value.items)
        pairs = value.pairs
        return all(self._is(key, kind.parts[0]) and self._is(one, kind.parts[1]) for key, one in pairs)

    def _is_row(self, value: Row, kind: Type) -> bool:
        if kind.name == "Any":
            return all(self._is(one, ANY) for one in value.items)
        parts = kind.parts if kind.name == "Tuple" else self._fields(kind)
        if parts is None or len(parts) != len(value.items):
            return False
        return all(self._is(one, part) for one, part in zip(value.items, parts, strict=True))

    def _fields(self, kind: Type) -> tuple[Type, ...] | None:
        found = self._defined.get(kind.name)
        return tuple(found.attributes.values()) if found and found.kind == "NamedTuple" else None

    def _is_made(self, value: Made, kind: Type) -> bool:
        found = self._defined.get(value.name)
        if found is None or found.kind not in {"class", "Module", "Enum"}:
            raise Refused(f"an object of {value.name!r:.80}, which its code does not define")
        if (found.kind == "Enum") != value.member:
            raise Refused(f"an object of {value.name!r:.80} of another kind")
        if value.member:
            if value.state not in _members(found):
                raise Refused(f"a member of {value.name!r:.80} that is none")
        else:
            self._check_state(value, found)
        return kind.name in {"Any", value.name} or self._serves(found, kind)

    def _serves(self, found: Definition, kind: Type) -> bool:
        """Whether a class has all methods of an interface, with the same types."""
        asked = self._defined.get(kind.name)
        if asked is None or asked.kind not in {"Interface", "ModuleInterface"}:
            return False
        return all(
            name in found.methods and _signature(found.methods[name]) == _signature(method)
            for name, method in asked.methods.items()
        )

    def _check_state(self, value: Made, found: Definition) -> None:
        """An object's attributes; or what its ``__setstate__`` takes, if it has that."""
        if "__setstate__" in found.methods and "__getstate__" in found.methods:
            given = found.methods["__setstate__"].args.args
            if len(given) != 2 or given[1].annotation is None:
                raise Refused(f"a __setstate__ of {value.name!r:.80} without a type")
            self.check(value.state, read_type(given[1].annotation, self._defined))
            return
        if not isinstance(value.state, Pairs):
            raise Refused(f"an object of {value.name!r:.80} without attributes")
        held = dict(value.state.pairs) if all(isinstance(key, str) for key, _ in value.state.pairs) else {}
        for name, kind in found.attributes.items():
            if name in found.constants:
                continue
            if name not in held:
                raise Refused(f"an object of {value.name!r:.80} without its attribute {name!r:.80}")
            if not self._is(held[name], kind):
                raise Refused(f"an attribute {name!r:.80} of {value.name!r:.80} that is no {kind}")
        value.state.pairs = [(name, one) for name, one in held.items() if name in found.attributes]

    def _check_tensor(self, value: Tensor) -> None:
        there, stored = self._storages.setdefault(value.stored.key, value.stored), value.stored
        size = self._entries.get(stored.key, 0)
        if stored.count < 0 or stored.count * ITEM_BYTES[stored.kind] != size or there.kind != stored.kind:
            what = f"a storage of {stored.count} elements of {stored.kind}, and entry {stored.key} of it has"
            raise Refused(f"{what} {size} bytes")
        value.stored = there  # which is written, and read, once
        numbers = (value.offset, *value.sizes, *value.strides)
        if len(value.sizes) != len(value.strides) or len(value.sizes) > _MOST_DIMENSIONS or min(numbers) < 0:
            raise Refused("a tensor with sizes that are none")
        reach = sum((n - 1) * step for n, step in zip(value.sizes, value.strides, strict=True))
        count = prod(value.sizes)
        if count and (value.offset + reach >= stored.count or count > max(stored.count, _MOST_ELEMENTS)):
            raise Refused(f"a tensor that reaches beyond its storage of {stored.count} elements")
        if value.offset > stored.count or max(numbers) > max(stored.count, _MOST_ELEMENTS):
            raise Refused(f"a tensor that reaches beyond its storage of {stored.count} elements")


def _members(found: Definition) -> list[object]:
    """The values of an enumeration."""
    return [ast.literal_eval(one.value) for one in found.tree.body if isinstance(one, ast.Assign)]


def _signature(method: ast.FunctionDef) -> list[str]:
    """The types of a method's arguments but the first, and of its result."""
    types = [one.annotation for one in method.args.args[1:]]
    return [ast.unparse(one) if one else "" for one in (*types, method.returns)]

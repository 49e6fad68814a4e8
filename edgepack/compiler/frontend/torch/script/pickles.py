"""Reads the pickles in a TorchScript archive into plain values: what ``torch.jit.save`` writes of pickle.

PyTorch's own reader believes sizes of tensors, and types of attributes. So it gets what
:mod:`edgepack.compiler.frontend.torch.script.values` found right, as :mod:`.pickle_writer` writes it.
"""

from __future__ import annotations

import pickletools
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from edgepack.compiler.frontend.torch.script.types import Refused

__all__ = ["CALLS", "ITEM_BYTES", "DeviceName", "Items", "Made", "Pairs", "Row", "Stored", "Tensor", "read"]

#: Bytes of an element, by the names that storages have in pickles.
ITEM_BYTES = {
    "Byte": 1, "Char": 1, "Bool": 1, "Short": 2, "Half": 2, "BFloat16": 2, "Int": 4, "Float": 4, "Long": 8,
    "Double": 8, "ComplexHalf": 4, "ComplexFloat": 8, "ComplexDouble": 16,
    "Float8_e5m2": 1, "Float8_e4m3fn": 1, "Float8_e5m2fnuz": 1, "Float8_e4m3fnuz": 1,
}  # fmt: skip
_MOST_VALUES = 5_000_000
_BUILDERS = {
    "build_intlist": "int",
    "build_tensorlist": "Tensor",
    "build_doublelist": "float",
    "build_boollist": "bool",
}
#: What pickles call, by what it makes.
CALLS = {
    "tensor": "torch._utils _rebuild_tensor_v2",
    "hooks": "collections OrderedDict",
    "complex": "builtins complex",
    "device": "torch device",
    "tag": "torch.jit._pickle restore_type_tag",
}
_LIST = "torch.jit._pickle "
_CLASS = re.compile(r"(__torch__(?:\.\w+)*) (\w+)", re.ASCII)
_STORAGE = re.compile(r"torch (\w+)Storage", re.ASCII)
_KEY = re.compile(r"\d{1,9}", re.ASCII)


@dataclass(eq=False)
class Items:
    """A list; ``tag`` is the type that the file says, ``List[int]``, or the builder of old files."""

    items: list[Any]
    tag: str = ""


@dataclass(eq=False)
class Pairs:
    """A dict, as it was filled; ``tag`` as of a list."""

    pairs: list[tuple[Any, Any]]
    tag: str = ""


@dataclass(eq=False)
class Row:
    """A tuple."""

    items: tuple[Any, ...]


@dataclass(eq=False)
class Stored:
    """Elements in an entry of the archive."""

    kind: str
    key: str
    count: int


@dataclass(eq=False)
class Tensor:
    """A tensor in a storage: sizes and strides in elements."""

    stored: Stored
    offset: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    needs_gradient: bool
    negative: tuple[str, ...] = ()  # "conj", "neg"


@dataclass(eq=False)
class Made:
    """An object, or a member of an enumeration, of a class of the archive."""

    name: str
    state: Any = None
    member: bool = False


@dataclass(eq=False)
class DeviceName:
    """A device."""

    name: str


@dataclass(eq=False)
class _Global:
    name: str


class _Mark:
    pass


class _Reader:
    """A machine for the opcodes that PyTorch writes."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}
        self._does: dict[str, Callable[[Any], None]] = {
            "GLOBAL": lambda name: self._push(_Global(name)),
            "MARK": lambda _: self._push(_Mark()),
            "EMPTY_TUPLE": lambda _: self._push(Row(())),
            "EMPTY_LIST": lambda _: self._push(Items([])),
            "EMPTY_DICT": lambda _: self._push(Pairs([])),
            "NONE": lambda _: self._push(None),
            "NEWTRUE": lambda _: self._push(True),
            "NEWFALSE": lambda _: self._push(False),
            "TUPLE": lambda _: self._push(Row(tuple(self._marked()))),
            "TUPLE1": lambda _: self._row(1),
            "TUPLE2": lambda _: self._row(2),
            "TUPLE3": lambda _: self._row(3),
            "BINGET": lambda at: self._push(self.memo[at]),
            "LONG_BINGET": lambda at: self._push(self.memo[at]),
            "BINPUT": self._put,
            "LONG_BINPUT": self._put,
            "APPENDS": lambda _: self._appends(),
            "SETITEMS": lambda _: self._setitems(),
            "NEWOBJ": lambda _: self._new(),
            "BUILD": lambda _: self._build(),
            "REDUCE": lambda _: self._reduce(),
            "BINPERSID": lambda _: self._storage(),
        }
        for value in ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE"):
            self._does[value] = self._push

    def step(self, name: str, argument: Any) -> None:
        if name not in self._does:
            raise Refused(f"a pickle with the opcode {name}, which PyTorch does not write")
        self._does[name](argument)

    def _push(self, value: Any) -> None:
        self.stack.append(value)

    def _pop(self, kind: type | None = None) -> Any:
        value = self.stack.pop()
        if isinstance(value, _Mark) or (kind is not None and not isinstance(value, kind)):
            raise Refused("a pickle in an order that PyTorch does not write")
        return value

    def _marked(self) -> list[Any]:
        values: list[Any] = []
        while not isinstance(self.stack[-1], _Mark):
            values.append(self.stack.pop())
        self.stack.pop()
        return values[::-1]

    def _row(self, count: int) -> None:
        self._push(Row(tuple(self._pop() for _ in range(count))[::-1]))

    def _put(self, at: int) -> None:
        top = self.stack[-1]
        if isinstance(top, _Mark) or (isinstance(top, Made) and top.state is None) or at in self.memo:
            raise Refused("a pickle in an order that PyTorch does not write")
        self.memo[at] = top

    def _appends(self) -> None:
        items = self._marked()
        self._pop_and_keep(Items).items.extend(items)

    def _setitems(self) -> None:
        values = self._marked()
        if len(values) % 2:
            raise Refused("a pickle in an order that PyTorch does not write")
        self._pop_and_keep(Pairs).pairs.extend(zip(values[::2], values[1::2], strict=True))

    def _pop_and_keep(self, kind: type) -> Any:
        value = self._pop(kind)
        self._push(value)
        return value

    def _new(self) -> None:
        arguments, made = self._pop(Row), self._pop(_Global)
        if arguments.items:
            raise Refused("a pickle that makes an object with arguments")
        self._push(Made(_class_name(made)))

    def _build(self) -> None:
        state, made = self._pop(), self._pop(Made)
        if made.member or made.state is not None or isinstance(state, _Global | None):
            raise Refused("a pickle in an order that PyTorch does not write")
        made.state = state
        self._push(made)

    def _reduce(self) -> None:
        given, called = self._pop(), self._pop(_Global)
        name = called.name
        if _CLASS.fullmatch(name):
            self._push(Made(_class_name(called), given, member=True))
            return
        if not isinstance(given, Row):
            raise Refused("a pickle in an order that PyTorch does not write")
        match (name, *given.items):
            case (
                n,
                Stored() as stored,
                int(offset),
                Row() as sizes,
                Row() as strides,
                bool(needs),
                *rest,
            ) if n == CALLS["tensor"]:
                self._push(Tensor(stored, offset, _whole(sizes), _whole(strides), needs, _metadata(rest)))
            case (n,) if n == CALLS["hooks"]:
                self._push(_Global(CALLS["hooks"]))
            case (n, float(real), float(imaginary)) if n == CALLS["complex"]:
                self._push(complex(real, imaginary))
            case (n, str(device)) if n == CALLS["device"]:
                self._push(DeviceName(device))
            case (n, Items() | Pairs() as held, str(tag)) if n == CALLS["tag"]:
                self._push(_tagged(held, tag))
            case (n, Items() as held) if n.removeprefix(_LIST) in _BUILDERS and n.startswith(_LIST):
                self._push(_tagged(held, f"List[{_BUILDERS[n.removeprefix(_LIST)]}]"))
            case _:
                raise Refused(f"a pickle that calls {name!r:.80} as PyTorch does not write it")

    def _storage(self) -> None:
        match self._pop(Row).items:
            case ("storage", _Global() as kind, str(key), str(), int(count)):
                found = _STORAGE.fullmatch(kind.name)
                if found is None or found[1] not in ITEM_BYTES or not _KEY.fullmatch(key):
                    raise Refused(f"a pickle with a storage of {kind.name!r:.80}")
                self._push(Stored(found[1], key, count))
            case _:
                raise Refused("a pickle with a storage as PyTorch does not write it")


def read(data: bytes) -> Any:
    """The value of a pickle.

    Raises:
        Refused: it is none that ``torch.jit.save`` writes, or damaged.
    """
    reader = _Reader()
    count = 0
    try:
        for opcode, argument, at in pickletools.genops(data):
            count += 1
            if count > _MOST_VALUES:
                raise Refused(f"a pickle of more than {_MOST_VALUES} values")
            if (opcode.name == "PROTO") != (at == 0) or (at == 0 and argument != 2):
                raise Refused("a pickle of another version")
            if opcode.name not in {"PROTO", "STOP"}:
                reader.step(opcode.name, argument)
    except (ValueError, IndexError, KeyError, struct.error, OverflowError, MemoryError) as error:
        raise Refused(f"a damaged pickle ({str(error) or type(error).__name__:.80})") from None
    if len(reader.stack) != 1:
        raise Refused("a damaged pickle")
    return reader.stack[0]


def _class_name(made: _Global) -> str:
    found = _CLASS.fullmatch(made.name)
    if found is None:
        raise Refused(f"a pickle that makes {made.name!r:.80}, which is no class of its code")
    return f"{found[1]}.{found[2]}"


def _tagged(held: Items | Pairs, tag: str) -> Items | Pairs:
    if held.tag not in {"", tag}:
        raise Refused("a list of two types")
    held.tag = tag
    return held


def _whole(row: Row) -> tuple[int, ...]:
    if not all(type(one) is int for one in row.items):
        raise Refused("a tensor with a size that is no number")
    return tuple(row.items)


def _metadata(rest: list[Any]) -> tuple[str, ...]:
    """What stands behind a tensor's sizes: hooks, which are none, and whether it is read negated."""
    match rest:
        case [_Global(name=hooks)] if hooks == CALLS["hooks"]:
            return ()
        case [_Global(name=hooks), Pairs(pairs=pairs)] if hooks == CALLS["hooks"]:
            if all(key in {"conj", "neg"} and value is True for key, value in pairs if isinstance(key, str)):
                return tuple(key for key, _ in pairs if isinstance(key, str))
    raise Refused("a tensor as PyTorch does not write it")

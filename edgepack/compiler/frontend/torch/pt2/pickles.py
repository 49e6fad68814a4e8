"""Reads what ``torch.save`` wrote, tensors nested in tuples, lists and dicts, and writes it anew.

PyTorch reads example inputs (and weights of files that PyTorch 2.8 saved) by an unpickler of its own, which
calls what a pickle names. Here a pickle is read with stand-ins for the few functions that such files need;
what PyTorch reads is another pickle, made of what was looked at.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import struct
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from edgepack.compiler.frontend.torch.pt2.forms import LEVELS, Integer, RefusedError, read, shown
from edgepack.compiler.frontend.torch.pt2.names import KEY
from edgepack.compiler.frontend.torch.pt2.payloads import Room, lies_within

__all__ = ["rewritten_pickle"]

#: Instructions that ``torch.save`` writes.
_OPCODES = re.compile(
    "PROTO|STOP|GLOBAL|REDUCE|MARK|TUPLE|TUPLE1|TUPLE2|TUPLE3|EMPTY_TUPLE|EMPTY_LIST|EMPTY_DICT"
    "|APPEND|APPENDS|SETITEM|SETITEMS|NONE|NEWTRUE|NEWFALSE|BININT|BININT1|BININT2|LONG1|BINFLOAT"
    "|BINUNICODE|BINPUT|LONG_BINPUT|BINGET|LONG_BINGET|BINPERSID"
)
_MOST_VALUES = 1_000_000

#: Types of elements, by their names below ``torch``: bytes of one, and the storage of that type.
_TYPES = {
    "float32": (4, "FloatStorage"), "float64": (8, "DoubleStorage"), "float16": (2, "HalfStorage"),
    "bfloat16": (2, "BFloat16Storage"), "int64": (8, "LongStorage"), "int32": (4, "IntStorage"),
    "int16": (2, "ShortStorage"), "int8": (1, "CharStorage"), "uint8": (1, "ByteStorage"),
    "bool": (1, "BoolStorage"),
    "complex64": (8, "ComplexFloatStorage"), "complex128": (16, "ComplexDoubleStorage"), "uint16": (2, ""),
    "uint32": (4, ""), "uint64": (8, ""), "float8_e4m3fn": (1, ""), "float8_e5m2": (1, ""),
    "float8_e4m3fnuz": (1, ""), "float8_e5m2fnuz": (1, ""), "float8_e8m0fnu": (1, ""),
}  # fmt: skip
_STORAGES = {storage: width for width, storage in _TYPES.values() if storage} | {"UntypedStorage": 1}


@dataclass(frozen=True)
class _Name:
    """What a pickle names below a module, and nothing of it."""

    module: str
    name: str


@dataclass(frozen=True)
class _Storage:
    """Numbers in a file of the archive."""

    kind: _Name
    key: str
    count: int


@dataclass(frozen=True)
class _Made:
    """What a function that is known would make of its operands."""

    function: _Name
    operands: tuple[Any, ...]


def rewritten_pickle(data: bytes, files: Mapping[str, int], room: Room) -> tuple[bytes, set[str]]:
    """A pickle made of the values of one, and the files that its tensors lie in.

    Args:
        data: ``data.pkl`` of what ``torch.save`` wrote.
        files: sizes in bytes of the files beside it, by name.
        room: is taken from.

    Raises:
        RefusedError: it holds, or calls, anything but tensors, numbers and plain texts, nested.
    """
    _check_instructions(data)
    try:
        value = _Reader(data).load()
    except RefusedError:
        raise
    except Exception as error:  # whatever a damaged pickle raises
        raise RefusedError(f"is damaged ({type(error).__name__})") from None
    writer = _Writer(files, room)
    writer.write(value, LEVELS)
    return b"\x80\x02" + bytes(writer.out) + b".", writer.used


def _check_instructions(data: bytes) -> None:
    try:
        for number, (opcode, argument, _) in enumerate(pickletools.genops(data)):
            if not _OPCODES.fullmatch(opcode.name):
                raise RefusedError(f"has the instruction {opcode.name}, which torch.save does not write")
            if opcode.name in ("BINPUT", "LONG_BINPUT") and int(argument or 0) > number:
                raise RefusedError("numbers its values otherwise than torch.save does")
    except RefusedError:
        raise
    except Exception as error:  # whatever pickletools raises
        raise RefusedError(f"is no pickle ({type(error).__name__})") from None


class _Reader(pickle.Unpickler):
    """Has stand-ins in the place of all that a pickle names."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))

    def find_class(self, module: str, name: str) -> Any:
        one = _Name(module, name)
        if (module, name) == ("collections", "OrderedDict"):
            return OrderedDict
        if (module, name) in _FUNCTIONS:
            return lambda *operands: _Made(one, operands)
        if module == "torch" and (name in _TYPES or name in _STORAGES):
            return one
        if (module, name) == ("torch.storage", "UntypedStorage"):
            return one
        raise RefusedError(f"names {shown(f'{module}.{name}')}, which is no tensor")

    def persistent_load(self, pid: Any) -> Any:
        if not (
            isinstance(pid, tuple) and len(pid) == 5 and pid[0] == "storage" and isinstance(pid[1], _Name)
        ):
            raise RefusedError("holds what torch.save does not write")
        _, kind, key, place, count = pid
        if place not in ("cpu", "meta") or not re.fullmatch(r"\d{1,7}", str(key)) or type(count) is not int:
            raise RefusedError(f"has numbers on the device {shown(place)}")
        return _Storage(kind, str(key), count)


class _Writer:
    """Writes values as a pickle of protocol 2, without references between them."""

    def __init__(self, files: Mapping[str, int], room: Room) -> None:
        self.files, self.room = files, room
        self.out = bytearray()
        self.used: set[str] = set()
        self.left = _MOST_VALUES

    def write(self, value: Any, levels: int) -> None:
        """One value."""
        self.left -= 1
        if levels <= 0 or self.left < 0:
            raise RefusedError("is nested too deep, or in itself")
        if value is None or isinstance(value, bool):
            self.out += {None: b"N", True: b"\x88", False: b"\x89"}[value]
        elif type(value) is int:
            number = Integer()(value, levels)
            encoded = number.to_bytes(9, "little", signed=True)
            self.out += b"\x8a" + bytes([len(encoded)]) + encoded
        elif type(value) is float:
            self.out += b"G" + struct.pack(">d", value)
        elif type(value) is str:
            self._text(read(KEY, value))
        elif type(value) in (tuple, list):
            self.out += b"(" if type(value) is tuple else b"]("
            for one in value:
                self.write(one, levels - 1)
            self.out += b"t" if type(value) is tuple else b"e"
        elif type(value) in (dict, OrderedDict):
            if type(value) is dict:
                self.out += b"}("
            else:
                self._global(_Name("collections", "OrderedDict"))
                self.out += b")R("
            for key, one in value.items():
                if type(key) not in (str, int, bool):
                    raise RefusedError(f"has the key {shown(key)}, which is neither a text nor an integer")
                self.write(key, levels - 1)
                self.write(one, levels - 1)
            self.out += b"u"
        elif isinstance(value, _Name) and value.name in _TYPES:
            self._global(value)
        elif isinstance(value, _Made):
            _FUNCTIONS[value.function.module, value.function.name](self, value, levels)
        else:
            raise RefusedError(f"holds {type(value).__name__.strip('_').lower()} where a tensor is meant")

    def _text(self, text: str) -> None:
        encoded = text.encode("utf-8")
        self.out += b"X" + struct.pack("<I", len(encoded)) + encoded

    def _global(self, one: _Name) -> None:
        self.out += f"c{one.module}\n{one.name}\n".encode("ascii")

    def _called(self, function: _Name, operands: Callable[[], None]) -> None:
        self._global(function)
        self.out += b"("
        operands()
        self.out += b"tR"

    def tensor(self, made: _Made, levels: int) -> None:
        """``_rebuild_tensor_v2``, or ``_v3``, whose storage is of bytes and which names a type."""
        typed = made.function.name == "_rebuild_tensor_v3"
        least = 7 if typed else 6
        if len(made.operands) != least or not isinstance(made.operands[0], _Storage):
            raise RefusedError("holds a tensor of another form than torch.save writes")
        storage, offset, sizes, strides, gradient = made.operands[:5]
        element = made.operands[6] if typed else None
        if typed and not (isinstance(element, _Name) and element.name in _TYPES):
            raise RefusedError("holds a tensor of another form than torch.save writes")
        held = _STORAGES.get(storage.kind.name, 0)
        width = _TYPES[element.name][0] if isinstance(element, _Name) else held
        if not held or not width or (not typed and storage.kind.name == "UntypedStorage"):
            raise RefusedError("holds a tensor of a type that is not known")
        numbers = [offset, *_integers(sizes), *_integers(strides)]
        if any(type(one) is not int or one < 0 for one in numbers) or type(gradient) is not bool:
            raise RefusedError("holds a tensor of another form than torch.save writes")
        nbytes = storage.count * held
        if self.files.get(storage.key) != nbytes:
            raise RefusedError(
                f"holds a tensor of {nbytes} bytes in data/{storage.key}, which has not as many"
            )
        self.room.take(lies_within(sizes, strides, offset, nbytes // width) * width)
        self.used.add(storage.key)

        def operands() -> None:
            self.out += b"("
            self._text("storage")
            self._global(storage.kind)
            self._text(storage.key)
            self._text("cpu")
            self.write(storage.count, levels)
            self.out += b"tQ"
            rest: tuple[Any, ...] = (offset, tuple(sizes), tuple(strides), gradient, OrderedDict())
            for one in rest:
                self.write(one, levels)
            if isinstance(element, _Name):
                self._global(element)

        self._called(made.function, operands)

    def parameter(self, made: _Made, levels: int) -> None:
        """``_rebuild_parameter``: a tensor, and whether it has a gradient."""
        if len(made.operands) != 3 or not isinstance(made.operands[0], _Made):
            raise RefusedError("holds a parameter of another form than torch.save writes")
        tensor, gradient, _ = made.operands
        if type(gradient) is not bool or tensor.function.name not in (
            "_rebuild_tensor_v2",
            "_rebuild_tensor_v3",
        ):
            raise RefusedError("holds a parameter of another form than torch.save writes")

        def operands() -> None:
            rest: tuple[Any, ...] = (tensor, gradient, OrderedDict())
            for one in rest:
                self.write(one, levels - 1)

        self._called(made.function, operands)

    def sizes(self, made: _Made, levels: int) -> None:
        """``torch.Size``, as a tuple."""
        if len(made.operands) != 1:
            raise RefusedError("holds sizes of another form than torch.save writes")
        self.write(tuple(_integers(made.operands[0])), levels)

    def device(self, made: _Made, levels: int) -> None:
        """``torch.device("cpu")``."""
        if made.operands not in (("cpu",), ("cpu", 0), ("meta",)):
            raise RefusedError(f"names the device {shown(made.operands)}")
        self._called(made.function, lambda: self.write(str(made.operands[0]), levels))

    def complex_number(self, made: _Made, levels: int) -> None:
        """``complex(1.0, 2.0)``."""
        if len(made.operands) != 2 or not all(type(one) is float for one in made.operands):
            raise RefusedError("holds a complex number of another form than torch.save writes")

        def operands() -> None:
            for one in made.operands:
                self.write(one, levels)

        self._called(made.function, operands)


def _integers(value: Any) -> tuple[int, ...]:
    """A list of integers. Raises RefusedError for anything else."""
    if isinstance(value, _Made) and value.function.name == "Size" and len(value.operands) == 1:
        value = value.operands[0]
    if type(value) not in (tuple, list) or not all(type(one) is int for one in value):
        raise RefusedError("holds sizes that are no integers")
    return tuple(value)


#: What a pickle may call, by module and name, and what writes it anew.
_FUNCTIONS: dict[tuple[str, str], Callable[[_Writer, _Made, int], None]] = {
    ("torch._utils", "_rebuild_tensor_v2"): _Writer.tensor,
    ("torch._utils", "_rebuild_tensor_v3"): _Writer.tensor,
    ("torch._utils", "_rebuild_parameter"): _Writer.parameter,
    ("torch", "Size"): _Writer.sizes,
    ("torch", "device"): _Writer.device,
    ("builtins", "complex"): _Writer.complex_number,
    ("__builtin__", "complex"): _Writer.complex_number,  # as protocol 2 calls it
}

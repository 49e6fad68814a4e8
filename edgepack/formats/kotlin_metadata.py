"""What Kotlin's compiler reads in a class: names of parameters, properties, nested classes.

kotlinc writes it as the annotation ``kotlin.Metadata``: a table of strings (``d2``), and a message of
Protocol Buffers over it (``d1``). Source: github.com/JetBrains/kotlin, core/metadata (metadata.proto) and
core/metadata.jvm (jvm_metadata.proto, BitEncoding, JvmNameResolverBase). Signatures of the JVM are left out,
as kotlinc leaves out those that follow from the types.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from edgepack.formats.class_file import ClassFile

__all__ = ["Function", "KotlinClass", "getter"]

#: Of the format; compilers from Kotlin 1.8 on read it.
_VERSION = (1, 9, 0)
# Flags of metadata.proto: public is 6, of a class' constructor that is not its first one 16 more.
_PUBLIC, _SECONDARY = 6, 16
_COMPANION = 6 << 6
_GETTER, _CONST, _CONSTANT = 1 << 9, 1 << 11, 1 << 13
#: Bytes of a chunk of ``d1``, of which each takes at most two in the class file.
_CHUNK = 30000


@dataclass(frozen=True)
class Function:
    """A public function.

    Attributes:
        name: ``<init>`` is a constructor.
        parameters: name and type of each; a type is a class as ``kotlin/FloatArray`` or ``a/b/Net.Outputs``.
        returns: its type.
    """

    name: str
    parameters: Sequence[tuple[str, str]] = ()
    returns: str = "kotlin/Unit"


@dataclass(frozen=True)
class KotlinClass:
    """A public final class, or a companion object.

    Attributes:
        name: ``a/b/Net`` or ``a/b/Net.Outputs``.
        functions: the first constructor is the primary one.
        properties: name and type of each, read by getters (:func:`getter`); of a companion object constants,
            which are static fields of the class around it.
        parent: class or interface that it extends.
        nested: names of the classes in it.
        companion: whether it is a companion object.
    """

    name: str
    functions: Sequence[Function] = ()
    properties: Sequence[tuple[str, str]] = ()
    parent: str = "kotlin/Any"
    nested: Sequence[str] = ()
    companion: bool = False

    def annotate(self, out: ClassFile) -> None:
        """Add the annotation to the class."""
        strings: list[str] = []
        message = _Message(strings)
        flags = _PUBLIC | (_COMPANION if self.companion else 0)
        message.number(1, flags).string(3, self.name).message(6, _type(strings, self.parent))
        if "Companion" in self.nested:
            message.string(4, "Companion")
        for name in self.nested:
            message.string(7, name)
        constructors = 0
        for one in self.functions:
            if one.name == "<init>":
                secondary = _SECONDARY if constructors else 0
                message.message(8, _function(strings, one, 1, _PUBLIC | secondary))
                constructors += 1
            else:
                message.message(9, _function(strings, one, 9, _PUBLIC))
        kind = _CONST | _CONSTANT if self.companion else 0
        for name, returns in self.properties:
            inner = _Message(strings).string(2, name).message(3, _type(strings, returns))
            message.message(10, inner.number(11, _PUBLIC | _GETTER | kind))
        # One record for all strings: each is as it stands in d2.
        record = _Message([]).number(1, len(strings))
        table = bytes(_Message([]).message(1, record).data)
        data = _varint(len(table)) + table + bytes(message.data)
        texts = [data[at : at + _CHUNK].decode("latin-1") for at in range(0, len(data), _CHUNK)]
        values: dict[str, int | Sequence[int] | Sequence[str]]
        values = {"mv": _VERSION, "k": 1, "xi": 48, "d1": ["\0" + texts[0], *texts[1:]], "d2": strings}
        out.annotate("Lkotlin/Metadata;", values)


def getter(name: str) -> str:
    """The method that Kotlin calls for a property (its JvmAbi.getterName); names are lower-case ASCII."""
    special = name.startswith("is") and not name[2:3].isalpha() and len(name) > 2
    return name if special else f"get{name[:1].upper()}{name[1:]}"


class _Message:
    """A message of Protocol Buffers, whose strings are indices of a table."""

    def __init__(self, strings: list[str]) -> None:
        self._strings = strings
        self.data = bytearray()

    def number(self, field: int, value: int) -> _Message:
        self.data += _varint(field << 3) + _varint(value)
        return self

    def string(self, field: int, text: str) -> _Message:
        if text not in self._strings:
            self._strings.append(text)
        if field == 7:  # nested_class_name is packed
            packed = _varint(self._strings.index(text))
            self.data += _varint(field << 3 | 2) + _varint(len(packed)) + packed
            return self
        return self.number(field, self._strings.index(text))

    def message(self, field: int, other: _Message) -> _Message:
        self.data += _varint(field << 3 | 2) + _varint(len(other.data)) + other.data
        return self


def _type(strings: list[str], name: str) -> _Message:
    return _Message(strings).string(6, name)


def _function(strings: list[str], one: Function, flags_field: int, flags: int) -> _Message:
    message = _Message(strings)
    constructor = one.name == "<init>"
    if not constructor:
        message.string(2, one.name).message(3, _type(strings, one.returns))
    for name, kind in one.parameters:
        parameter = _Message(strings).string(2, name).message(3, _type(strings, kind))
        message.message(2 if constructor else 6, parameter)
    return message.number(flags_field, flags)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])

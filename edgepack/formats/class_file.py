"""Writes a small Java class: constants, fields, methods without branches, native methods, annotations.

So a package needs no Java compiler where it is made, and has the same bytes everywhere. Source: The Java
Virtual Machine Specification, chapter 4. The version is Java 8's; code without branches needs no stack maps.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["ABSENT", "FINAL", "NATIVE", "PRIVATE", "PUBLIC", "STATIC", "SYNCHRONIZED", "ClassFile", "Code"]

PUBLIC, PRIVATE, STATIC, FINAL, SYNCHRONIZED, NATIVE = 0x1, 0x2, 0x8, 0x10, 0x20, 0x100
_SUPER = 0x20
ABSENT = ""
_VERSION = 52

# Opcodes
_LDC_W, _ILOAD, _LLOAD, _ALOAD, _RETURN = 0x13, 0x15, 0x16, 0x19, 0xB1
_ICONST_0, _LCONST_0 = 0x03, 0x09
_ASTORE, _DUP, _ARETURN, _NEW, _NEWARRAY = 0x3A, 0x59, 0xB0, 0xBB, 0xBC
_PUTSTATIC, _INVOKEVIRTUAL = 0xB3, 0xB6
#: Descriptor of an element -> what `newarray` calls it.
_ARRAYS = {"Z": 4, "F": 6, "D": 7, "B": 8, "S": 9, "I": 10, "J": 11}
_GETFIELD, _PUTFIELD, _INVOKESPECIAL, _INVOKESTATIC = 0xB4, 0xB5, 0xB7, 0xB8


@dataclass
class Code:
    """The instructions of a method.

    Attributes:
        stack: most operands at once; a long takes two.
        slots: local variables with the arguments; the same.
    """

    owner: ClassFile
    stack: int
    slots: int
    data: bytearray = field(default_factory=bytearray)

    def load(self, kind: str, index: int) -> Code:
        """Push the local variable ``index``: ``kind`` is ``I``, ``J`` or ``A`` (a reference)."""
        self.data += bytes([{"I": _ILOAD, "J": _LLOAD, "A": _ALOAD}[kind], index])
        return self

    def zero(self, kind: str) -> Code:
        """Push 0 as an ``I`` or a ``J``."""
        self.data.append({"I": _ICONST_0, "J": _LCONST_0}[kind])
        return self

    def text(self, value: str) -> Code:
        """Push a string."""
        return self._with(_LDC_W, self.owner.string(value))

    def new_array(self, kind: str, elements: int, slot: int) -> Code:
        """Store an array of zeros in the local variable ``slot``; ``kind`` describes an element."""
        self._with(_LDC_W, self.owner.integer(elements))
        self.data += bytes([_NEWARRAY, _ARRAYS[kind], _ASTORE, slot])
        return self

    def new(self, owner: str) -> Code:
        """Push a new object twice: its constructor takes one of them."""
        self._with(_NEW, self.owner.reference(owner)).data.append(_DUP)
        return self

    def get_field(self, name: str, kind: str) -> Code:
        """Replace the reference on the stack by a field of this class."""
        return self._with(_GETFIELD, self.owner.member(9, self.owner.name, name, kind))

    def put_field(self, name: str, kind: str) -> Code:
        """Pop a value and a reference, and store it."""
        return self._with(_PUTFIELD, self.owner.member(9, self.owner.name, name, kind))

    def put_static(self, name: str, kind: str) -> Code:
        """Pop a value, and store it in a static field of this class."""
        return self._with(_PUTSTATIC, self.owner.member(9, self.owner.name, name, kind))

    def call(self, name: str, descriptor: str) -> Code:
        """A method of this class."""
        return self._with(_INVOKEVIRTUAL, self.owner.member(10, self.owner.name, name, descriptor))

    def call_static(self, owner: str, name: str, descriptor: str) -> Code:
        return self._with(_INVOKESTATIC, self.owner.member(10, owner, name, descriptor))

    def call_constructor(self, owner: str, descriptor: str) -> Code:
        return self._with(_INVOKESPECIAL, self.owner.member(10, owner, "<init>", descriptor))

    def done(self, descriptor: str) -> bytes:
        """The instructions, with a return behind them: of nothing, or of the reference on the stack."""
        return bytes([*self.data, _RETURN if descriptor.endswith("V") else _ARETURN])

    def _with(self, opcode: int, index: int) -> Code:
        self.data += struct.pack(">BH", opcode, index)
        return self


class ClassFile:
    """A public final class; names are of ASCII, and texts without characters above U+FFFF."""

    def __init__(self, name: str, interfaces: Sequence[str] = ()) -> None:
        """``name`` and the interfaces with slashes: ``java/lang/AutoCloseable``."""
        self.name = name
        self._pool: dict[bytes, int] = {}
        self._next = 1
        self._own, self._parent = self.reference(name), self.reference("java/lang/Object")
        self._interfaces = [self.reference(one) for one in interfaces]
        self._inner: list[bytes] = []
        self._annotations: list[bytes] = []
        self._fields: list[bytes] = []
        self._methods: list[bytes] = []

    def constant(self, name: str, value: int) -> None:
        """``public static final int``."""
        index = self.integer(value)
        self._fields.append(
            self._member(PUBLIC | STATIC | FINAL, name, "I", [self._attribute("ConstantValue", _u2(index))])
        )

    def field(self, access: int, name: str, kind: str) -> None:
        """A field of an object."""
        self._fields.append(self._member(access, name, kind, []))

    def method(
        self,
        access: int,
        name: str,
        descriptor: str,
        code: Code | None = None,
        *,
        parameters: Sequence[tuple[str, str]] = (),
    ) -> None:
        """A method; native without ``code``.

        Args:
            parameters: name of each parameter, and the annotation that it has (``ABSENT`` for none), as the
                descriptor of its class: ``Lorg/example/NotNull;``.
        """
        attributes = []
        if code is not None:
            body = code.done(descriptor)
            head = struct.pack(">HHI", code.stack, code.slots, len(body))
            attributes.append(self._attribute("Code", head + body + _u2(0) + _u2(0)))
        if parameters:
            names = b"".join(_u2(self._utf8(one)) + _u2(0) for one, _ in parameters)
            attributes.append(self._attribute("MethodParameters", bytes([len(parameters)]) + names))
        if any(annotation for _, annotation in parameters):
            marks = b"".join(
                _u2(1) + _u2(self._utf8(one)) + _u2(0) if one else _u2(0) for _, one in parameters
            )
            attributes.append(
                self._attribute("RuntimeInvisibleParameterAnnotations", bytes([len(parameters)]) + marks)
            )
        self._methods.append(self._member(access, name, descriptor, attributes))

    def inner_class(self, name: str) -> None:
        """Say that ``a/b/Net$Inner`` is a public static class in ``a/b/Net``: both files have it."""
        outer, _, short = name.partition("$")
        parts = (self.reference(name), self.reference(outer), self._utf8(short), PUBLIC | STATIC | FINAL)
        self._inner.append(struct.pack(">4H", *parts))

    def annotate(self, kind: str, values: Mapping[str, int | Sequence[int] | Sequence[str]]) -> None:
        """An annotation of the class that programs see when they run.

        Args:
            kind: descriptor of its class.
        """
        pairs = b"".join(_u2(self._utf8(name)) + self._value(value) for name, value in values.items())
        self._annotations.append(_u2(self._utf8(kind)) + _u2(len(values)) + pairs)

    def _value(self, value: int | str | Sequence[int] | Sequence[str]) -> bytes:
        if isinstance(value, int):
            return b"I" + _u2(self.integer(value))
        if isinstance(value, str):
            return b"s" + _u2(self._utf8(value))
        return b"[" + _u2(len(value)) + b"".join(self._value(one) for one in value)

    def data(self) -> bytes:
        """The file."""
        attributes = [
            self._attribute(name, _u2(len(entries)) + b"".join(entries))
            for name, entries in (
                ("InnerClasses", self._inner),
                ("RuntimeVisibleAnnotations", self._annotations),
            )
            if entries
        ]
        interfaces = b"".join(map(_u2, self._interfaces))
        return b"".join(
            (
                struct.pack(">IHHH", 0xCAFEBABE, 0, _VERSION, self._next),
                *self._pool,
                struct.pack(">HHH", PUBLIC | FINAL | _SUPER, self._own, self._parent),
                _u2(len(self._interfaces)) + interfaces,
                _u2(len(self._fields)) + b"".join(self._fields),
                _u2(len(self._methods)) + b"".join(self._methods),
                _u2(len(attributes)) + b"".join(attributes),
            )
        )

    def integer(self, value: int) -> int:
        """Index of an integer constant."""
        return self._entry(struct.pack(">Bi", 3, value))

    def reference(self, name: str) -> int:
        """Index of a class."""
        return self._entry(struct.pack(">BH", 7, self._utf8(name)))

    def string(self, value: str) -> int:
        """Index of a string constant."""
        return self._entry(struct.pack(">BH", 8, self._utf8(value)))

    def member(self, tag: int, owner: str, name: str, descriptor: str) -> int:
        """Index of a reference to a field (9) or method (10)."""
        pair = self._entry(struct.pack(">BHH", 12, self._utf8(name), self._utf8(descriptor)))
        return self._entry(struct.pack(">BHH", tag, self.reference(owner), pair))

    def _member(self, access: int, name: str, descriptor: str, attributes: Sequence[bytes]) -> bytes:
        head = struct.pack(">HHH", access, self._utf8(name), self._utf8(descriptor))
        return head + _u2(len(attributes)) + b"".join(attributes)

    def _attribute(self, name: str, data: bytes) -> bytes:
        return struct.pack(">HI", self._utf8(name), len(data)) + data

    def _utf8(self, text: str) -> int:
        data = text.encode().replace(b"\0", b"\xc0\x80")  # chapter 4.4.7; none is above U+FFFF
        return self._entry(struct.pack(">BH", 1, len(data)) + data)

    def _entry(self, data: bytes) -> int:
        if data not in self._pool:
            self._pool[data] = self._next
            self._next += 1
        return self._pool[data]


def _u2(value: int) -> bytes:
    return struct.pack(">H", value)

"""Reads a flatbuffer by TFLite's schema: nothing of it is believed that is not looked at here.

What a file says of itself is offsets, and nothing keeps two from being the same: a file of some hundred KB
can say that it has as many tables as it has pairs of bytes. So each visit of a table, a vector or a text
counts, also of the same one again, and all together may be a few times as long as the file. The schema bounds
how deep tables lie in each other: none holds one of its own kind.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from edgepack.compiler.frontend.tflite.schema import Field, numbers_of, schema, tables

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["DamagedError", "read_tables"]

#: How long all that is read may be, as a multiple of the file: converters let tables share their lists of
#: fields, which do not count here, and some a few texts.
_MOST_READ = 4

#: Bytes that a table, a vector or a text counts beside what is in it.
_EACH = 8


class DamagedError(ValueError):
    """A file says what cannot be: a part of a sentence, that begins with what of it."""


def read_tables(data: bytes) -> Any:
    """All that is in a file, as LiteRT's classes have it (``ModelT``).

    Raises:
        DamagedError: it does not fit its schema, or the file.
    """
    reader = _Reader(data)
    model = reader.table("Model", reader.offset(0, "the file"))
    for buffer in model.buffers or []:
        reader.fetch(buffer)
    return model


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._left = data, _MOST_READ * len(data)
        self._classes = schema()

    def table(self, name: str, place: int) -> Any:
        """The table at a place."""
        made = getattr(self._classes, f"{name}T")()
        known, behind = tables()[name], self._number("i", place, name)
        slots, size = self._slots(place - behind, name)
        self._count(size, name)
        if place + size > len(self._data):
            raise DamagedError(f"a table {name} lies outside of it")
        for slot in range(known.slots, len(slots)):
            if slots[slot]:
                raise DamagedError(f"a table {name} has a field {slot} that edgepack does not know")
        for field in known.fields:
            start = slots[field.slot] if field.slot < len(slots) else 0
            if field.is_union:
                self._union(made, field, place, (*slots, *[0] * known.slots)[field.slot - 1 : field.slot + 1])
            elif start:
                self._within(start, field, size, name)
                setattr(made, field.name, self._value(field, place + start, f"{field.name} of {name}"))
        return made

    def fetch(self, buffer: Any) -> None:
        """Gives a buffer the bytes that it has behind the tables, where models above 2 GB have theirs."""
        import numpy as np

        start, size = int(buffer.offset), int(buffer.size)
        if start > 1 and (buffer.data is None or not len(buffer.data)):
            if start + size > len(self._data):
                raise DamagedError("a buffer ends behind the file")
            self._count(size, "a buffer")
            buffer.data = np.frombuffer(self._data, np.uint8, size, start)
        buffer.offset = buffer.size = 0

    def offset(self, place: int, what: str) -> int:
        """Where what is referred to at a place lies."""
        found: int = self._number("I", place, what)
        if found < 4:
            raise DamagedError(f"{what} refers to itself")
        return place + found

    def _slots(self, place: int, name: str) -> tuple[tuple[int, ...], int]:
        """Where the fields of a table begin in it, 0 for what is not there, and how long the table is."""
        length, size = self._number("H", place, name), self._number("H", place + 2, name)
        if length < 4 or length % 2 or size < 4 or place + length > len(self._data):
            raise DamagedError(f"the list of fields of a table {name} lies outside of it")
        return struct.unpack_from(f"<{length // 2 - 2}H", self._data, place + 4), size

    def _within(self, start: int, field: Field, size: int, name: str) -> None:
        if start < 4 or start + (struct.calcsize(field.form) if self._is_inline(field) else 4) > size:
            raise DamagedError(f"{field.name} of a table {name} lies outside of it")

    @staticmethod
    def _is_inline(field: Field) -> bool:
        return bool(field.form) and not field.is_vector

    def _value(self, field: Field, place: int, what: str) -> Any:
        if self._is_inline(field):
            found = self._number(field.form, place, what)
            if field.enum and found not in numbers_of(field.enum):
                raise DamagedError(f"{what} is {found}, which is no {field.enum} of LiteRT's")
            return found
        place = self.offset(place, what)
        if field.is_text:
            return self._text(place, what)
        if field.form:
            return self._numbers(field.form, place, what)
        if not field.is_vector:
            return self.table(field.table, place)
        count = self._counted(place, 4, what)
        places = range(place + 4, place + 4 + 4 * count, 4)
        return [self.table(field.table, self.offset(one, what)) for one in places]

    def _union(self, made: Any, field: Field, place: int, starts: tuple[int, ...]) -> None:
        """A table of one of several kinds, and the kind."""
        what = f"{field.name} of {type(made).__name__[:-1]}"
        kind = self._number("B", place + starts[0], what) if starts[0] else 0
        name = numbers_of(field.enum).get(kind)
        if kind and name not in tables():
            raise DamagedError(f"{what} is {kind}, which is no {field.enum} of LiteRT's")
        if bool(kind) != bool(starts[1]):
            raise DamagedError(f"{what} is half there")
        if kind and name is not None:
            setattr(made, f"{field.name}Type", kind)
            setattr(made, field.name, self.table(name, self.offset(place + starts[1], what)))

    def _number(self, form: str, place: int, what: str) -> Any:
        """The scalar at a place, which is a multiple of its size."""
        size = struct.calcsize(form)
        if not 0 <= place <= len(self._data) - size or place % size:
            raise DamagedError(f"{what} lies outside of it, or between two places")
        return struct.unpack_from(f"<{form}", self._data, place)[0]

    def _numbers(self, form: str, place: int, what: str) -> NDArray[Any]:
        import numpy as np

        kind = np.dtype("B" if form == "?" else form).newbyteorder("<")
        count = self._counted(place, kind.itemsize, what)
        found = np.frombuffer(self._data, kind, count, place + 4)
        return found != 0 if form == "?" else found

    def _text(self, place: int, what: str) -> str:
        count = self._counted(place, 1, what)
        try:
            return self._data[place + 4 : place + 4 + count].decode("utf-8")
        except UnicodeDecodeError as error:
            raise DamagedError(f"{what} is no text in UTF-8") from error

    def _counted(self, place: int, size: int, what: str) -> int:
        """The length of the vector at a place, whose elements are of a size."""
        count: int = self._number("I", place, what)
        self._count(count * size, what)
        if place + 4 + count * size > len(self._data) or (place + 4) % size:
            raise DamagedError(f"{what} lies outside of it, or between two places")
        return count

    def _count(self, size: int, what: str) -> None:
        self._left -= size + _EACH
        if self._left < 0:
            raise DamagedError(f"{what} is read more often than the file is long: its parts share bytes")

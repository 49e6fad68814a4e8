"""TFLite's schema: the fields of each table (``schema_text.py``), and the classes of the installed LiteRT,
which have their defaults and the values of enums."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from edgepack.compiler.frontend.tflite.schema_text import SCHEMA
from edgepack.errors import ConfigError
from edgepack.system.installation import extra_command
from edgepack.system.refusals import exhausted

__all__ = ["SCALARS", "Field", "Table", "numbers_of", "schema", "tables"]

#: Scalars by the schema's names: their form for :mod:`struct` and, with the same letter, for NumPy.
SCALARS = {
    "bool": "?", "byte": "b", "ubyte": "B", "ushort": "H", "int": "i", "uint": "I", "long": "q", "ulong": "Q",
    "float": "f",
}  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A field of a table.

    Attributes:
        name: as Python's classes have it.
        slot: its place in the table's list of fields; of a union that of its value, behind that of its kind.
        form: the letter of a scalar in :data:`SCALARS`, else "".
        enum: whose values are allowed, or the union whose tables are; "" for others.
        table: of what it refers to; "" for others.
        is_vector: whether it has several scalars, or tables.
        is_union: whether its table is one of several.
        is_read: whether anything reads it: one that the schema calls deprecated is not there.
    """

    name: str
    slot: int
    form: str = ""
    enum: str = ""
    table: str = ""
    is_vector: bool = False
    is_union: bool = False
    is_read: bool = True

    @property
    def is_text(self) -> bool:
        """Whether it is a string."""
        return not (self.form or self.table or self.is_union)


@dataclass(frozen=True)
class Table:
    """What a table may have.

    Attributes:
        fields: those that are read.
        slots: how many entries of its list of fields the schema knows.
    """

    fields: tuple[Field, ...]
    slots: int


def schema() -> ModuleType:
    """The schema's classes (``ai_edge_litert.schema_py_generated``).

    Raises:
        ConfigError: the package that has them is not installed.
    """
    try:
        from ai_edge_litert import schema_py_generated
    except ImportError as error:
        raise exhausted(error) or ConfigError(
            "TFLite models are read by LiteRT, which is not installed.",
            hint="Install it: " + extra_command("tflite"),
            detail=str(error),
        ) from error
    return schema_py_generated  # type: ignore[no-any-return]


@cache
def numbers_of(enum: str) -> Mapping[int, str]:
    """The values of an enum, or the tables of a union, by their numbers; none of one that LiteRT has not."""
    found = vars(getattr(schema(), enum, object)).items()
    return {number: name for name, number in found if isinstance(number, int)}


@cache
def tables() -> Mapping[str, Table]:
    """The tables of the schema, by name."""
    enums = dict(re.findall(r"enum (\w+) : (\w+);", SCHEMA))
    unions = set(re.findall(r"union (\w+);", SCHEMA))
    return {
        name: _table(re.findall(r"(\w+):(\S+?)( \(deprecated\))?;", body), enums, unions)
        for name, body in re.findall(r"table (\w+) \{(.*?)\}", SCHEMA, re.DOTALL)
    }


def _table(lines: list[tuple[str, str, str]], enums: Mapping[str, str], unions: set[str]) -> Table:
    fields, slot = list[Field](), 0
    for name, kind, deprecated in lines:
        own, is_vector = kind.strip("[]"), kind.startswith("[")
        slot += own in unions
        form = SCALARS.get(enums.get(own, own), "")
        refers = not form and own not in unions and own != "string"
        fields.append(
            Field(
                name,
                slot,
                form,
                own if own in enums or own in unions else "",
                own if refers else "",
                is_vector,
                own in unions,
                not deprecated,
            )
        )
        slot += 1
    return Table(tuple(field for field in fields if field.is_read), slot)

"""Changes what a TFLite file says, by a number, and writes a whole file again: one that a reader of
flatbuffers takes, for what comes behind it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import flatbuffers
import numpy as np

from edgepack.compiler.frontend.tflite.flatbuffer import read_tables
from edgepack.compiler.frontend.tflite.schema import numbers_of, schema, tables

__all__ = ["changed_tables"]

_NUMBERS = (
    -(2**31),
    -1000,
    -3,
    -2,
    -1,
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    16,
    127,
    128,
    255,
    1000,
    65536,
    2**20,
    2**31 - 1,
)


def changed_tables(content: bytes, case: int) -> bytes:
    """A file of which one to three fields differ.

    Args:
        content: a TFLite file.
        case: from which all follows.
    """
    random = np.random.default_rng(case)
    model = read_tables(content)
    for _ in range(int(random.integers(1, 4))):
        places = [(table, field) for table in _tables(model) for field in tables()[_name(table)].fields]
        table, field = places[int(random.integers(len(places)))]
        _change(table, field, random)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def _name(table: Any) -> str:
    return type(table).__name__[:-1]


def _tables(table: Any) -> Iterator[Any]:
    yield table
    for value in vars(table).values():
        for one in value if isinstance(value, list) else [value]:
            if hasattr(one, "Pack"):
                yield from _tables(one)


def _change(table: Any, field: Any, random: np.random.Generator) -> None:
    value = getattr(table, field.name)
    if not random.integers(6) and (field.is_vector or field.is_text or field.is_union):
        setattr(table, field.name, None)
        if field.is_union:
            setattr(table, f"{field.name}Type", 0)
    elif field.is_union:
        number, name = list(numbers_of(field.enum).items())[
            int(random.integers(1, len(numbers_of(field.enum))))
        ]
        setattr(table, f"{field.name}Type", number)
        setattr(table, field.name, getattr(schema(), f"{name}T")())
    elif field.form and field.is_vector:
        setattr(table, field.name, _vector(field, value, random))
    elif field.is_vector and value:
        _list(value, random)
    elif field.form:
        setattr(table, field.name, _number(field, value, random))


def _vector(field: Any, value: Any, random: np.random.Generator) -> Any:
    kind = np.dtype(field.form)
    made = np.array([] if value is None else value, kind)
    if not made.size or not random.integers(5):
        made = np.append(made[: int(random.integers(len(made) + 1))], np.zeros(int(random.integers(3)), kind))
    if made.size:
        with np.errstate(all="ignore"):
            made[int(random.integers(made.size))] = np.array(_number(field, 1, random)).astype(kind)
    return made


def _number(field: Any, value: Any, random: np.random.Generator) -> Any:
    if field.form == "?":
        return bool(random.integers(2))
    if field.form == "f":
        return float(random.choice([0.0, -1.0, 1e-30, 1e30, np.nan, np.inf, 0.5]))
    if field.enum:
        return int(random.choice(list(numbers_of(field.enum))))
    info = np.iinfo(field.form)
    near = int(value) + int(random.integers(-2, 3))
    return int(np.clip(near if random.integers(2) else int(random.choice(_NUMBERS)), info.min, info.max))


def _list(value: list[Any], random: np.random.Generator) -> None:
    """A table more, less, or at another's place."""
    first, second = (int(random.integers(len(value))) for _ in range(2))
    if random.integers(2):
        value[first], value[second] = value[second], value[first]
    elif random.integers(2):
        value.append(value[first])
    else:
        del value[first]

"""What all typed configuration shares: strict frozen models, and sizes in bytes."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    WithJsonSchema,
)

__all__ = [
    "CPU_MODEL",
    "LLVM_CPU",
    "LONGEST_RUN",
    "MACHINE",
    "SUFFIXES",
    "TRIPLE",
    "Frozen",
    "Name",
    "Size",
    "Variable",
    "checked_name",
    "format_size",
    "parse_size",
]

#: What an emulator's option for a CPU may say: a name, then properties (``rv64,v=true,vlen=128``).
CPU_MODEL = r"^([A-Za-z0-9][A-Za-z0-9_.+-]*(,[A-Za-z0-9_.+-]+(=[A-Za-z0-9_.+-]+)?)*)?$"

#: A triple of LLVM's, and what it calls a CPU.
TRIPLE = r"^[A-Za-z0-9_.+-]+$"
LLVM_CPU = r"^[A-Za-z0-9_.+-]*$"

#: Name of a board that an emulator has; no properties.
MACHINE = r"^([A-Za-z0-9][A-Za-z0-9_.-]*)?$"

#: Seconds that a run of a bundle's program may take at most: a day.
LONGEST_RUN = 86_400

#: How the names of files end that a user writes: a text that ends so is a path and no name.
SUFFIXES = (".yaml", ".yml")

_UNITS = {
    "": 1,
    "B": 1,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
}
_LARGEST = 1 << 50
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$")


class Frozen(BaseModel):
    """Base of configuration models: immutable, no unknown key, no silent conversion between types."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, validate_default=True)


def parse_size(value: Any) -> Any:
    """``"32 KiB"`` -> 32768. An integer passes; anything else is left to the type's own check.

    Raises ValueError for text that is not a whole number of bytes.
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.match(value)
    if not match or match[2] not in _UNITS:
        raise ValueError(f"{value!r} is not a size; write bytes, or a number with one of {_unit_names()}")
    size = float(match[1]) * _UNITS[match[2]]
    if size > _LARGEST:
        raise ValueError(f"{value[:80]!r} is more than a machine can have")
    if size != int(size):
        raise ValueError(f"{value!r} is not a whole number of bytes")
    return int(size)


def format_size(size: int) -> str:
    """32768 -> ``"32 KiB"``: the largest binary unit that divides it."""
    for unit in ("GiB", "MiB", "KiB"):
        if size and size % _UNITS[unit] == 0:
            return f"{size // _UNITS[unit]} {unit}"
    return str(size)


def _unit_names() -> str:
    return ", ".join(name for name in _UNITS if name)


#: Bytes, as an integer or as text with a unit (``32 KiB``, ``1 MB``).
Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Field(ge=0, le=_LARGEST),
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "integer", "minimum": 0, "maximum": _LARGEST},
                {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*(B|KiB|MiB|GiB|kB|MB|GB)?\s*$"},
            ]
        }
    ),
]


def checked_name(value: str) -> str:
    """``value`` if it is a :data:`Name`. Raises ValueError, with a sentence, if not: it may be a path, or be
    taken for a file's name, which ends in .yaml or .yml."""
    if value.endswith(SUFFIXES):
        raise ValueError(f"{value[:80]!r} is not a name: it ends as the name of a YAML file does")
    if not re.fullmatch(_NAME, value) or not value.isprintable() or len(value) > _LONGEST_NAME:
        raise ValueError(
            f"{value[:80]!r} is not a name; it names folders too, so it has no separators and no leading dot"
        )
    return value


_LONGEST_NAME = 100
_NAME = r"""[^\s.\-/\\:*?"<>|](?:[^/\\:*?"<>|]*[^\s./\\:*?"<>|])?"""

#: A word that can be a part of a file's name on every system, and is no YAML file's own name.
Name = Annotated[
    str,
    AfterValidator(checked_name),
    WithJsonSchema({"type": "string", "pattern": f"^{_NAME}$", "maxLength": _LONGEST_NAME}),
]

#: Name of an environment variable.
Variable = Annotated[str, StringConstraints(pattern=r"^[^=]+$")]

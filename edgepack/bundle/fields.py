"""Types of the fields of manifest.json and release.json, which anybody may have written.

What such a file calls by a name (models, devices, toolchains, runners, symbols) is a word, and never a path:
others make files' names and lines of sources of it. What edgepack writes itself fits. Names of tensors and
nodes, descriptions and warnings can be any text; whoever shows these escapes them.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, StringConstraints, WithJsonSchema

from edgepack.config.models import checked_name

__all__ = [
    "CSymbol",
    "DtypeName",
    "Extent",
    "Feature",
    "FileName",
    "Line",
    "ModelName",
    "OptionalName",
    "OptionalSha256",
    "OptionalWord",
    "SectionName",
    "Sha256",
    "UnitName",
    "Word",
    "distinct",
]

_LONGEST_FILE_NAME, _LONGEST_MODEL = 1000, 48
_MODEL = r"[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*_?"

#: Of a model: the C identifiers that :func:`edgepack.bundle.layout.check_name` takes, reserved ones too.
ModelName = Annotated[str, StringConstraints(pattern=f"^{_MODEL}$", max_length=_LONGEST_MODEL)]

#: A symbol of an object file.
CSymbol = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=300)]

#: SHA-256, or a key of 32 bytes, in hex.
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
OptionalSha256 = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{64})?$")]

#: An architecture, a triple, a version of edgepack's.
Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]+$", max_length=300)]
OptionalWord = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.+-]*$", max_length=300)]

#: A section of an object file, as a linker script or C names it.
SectionName = Annotated[str, StringConstraints(pattern=r"^\.[A-Za-z0-9_.$]+$", max_length=101)]

#: A feature of LLVM's, with its sign.
Feature = Annotated[str, StringConstraints(pattern=r"^[+-][A-Za-z0-9._-]+$", max_length=100)]

#: Of a tensor's elements; which there are is for the reader to know.
DtypeName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=30)]

#: Of a tensor.
Extent = Annotated[int, Field(ge=0)]


#: One line of what a person, a program or a package says; not all in it need show as itself.
Line = Annotated[
    str,
    StringConstraints(pattern="^[^\\x00-\\x1f\\x7f-\\x9f\u2028\u2029]*$"),
]


def _file_name(text: str) -> str:
    if text in {"", ".", ".."} or "/" in text or "\0" in text or len(text) > _LONGEST_FILE_NAME:
        raise ValueError(f"{text[:80]!r} is not a file's name without a folder")
    return text


#: A file's name, which may be any but a path: shown, and never opened.
FileName = Annotated[
    str,
    AfterValidator(_file_name),
    WithJsonSchema({"type": "string", "pattern": r"^[^/\u0000]+$", "maxLength": _LONGEST_FILE_NAME}),
]


def _optional_name(text: str) -> str:
    return checked_name(text) if text else text


#: A name, or "".
OptionalName = Annotated[
    str, AfterValidator(_optional_name), WithJsonSchema({"type": "string", "maxLength": 100})
]


def _unit_name(text: str) -> str:
    model, at, device = text.partition("@")
    if not at or not re.fullmatch(_MODEL, model) or len(model) > _LONGEST_MODEL:
        raise ValueError(f"{text[:80]!r} is not MODEL@DEVICE")
    checked_name(device)
    return text


#: Of a model for a device in a release: ``MODEL@DEVICE``.
UnitName = Annotated[str, AfterValidator(_unit_name), WithJsonSchema({"type": "string"})]


def distinct(field: str) -> AfterValidator:
    """A check of a list of records: no two are alike in ``field``.

    Returns:
        what ``Annotated`` takes; it raises ValueError, which is pydantic's ValidationError.
    """

    def check(records: Any) -> Any:
        seen = [getattr(one, field) for one in records]
        if len(set(seen)) != len(seen):
            raise ValueError(f"two of them have the same {field}")
        return records

    return AfterValidator(check)

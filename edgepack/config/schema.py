"""JSON Schemas of the files that a user writes, for completion and checks in an editor.

``python -m edgepack.config.schema`` writes them again after a change of the models; a test tells when it is
due.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin

from pydantic import BaseModel

from edgepack.config.device import Device
from edgepack.config.toolchain import ToolchainConfig

__all__ = ["SCHEMAS", "Field", "fields", "schema_path", "schema_text", "write"]

#: Sort of file -> the model that it must fit.
SCHEMAS: dict[str, type[BaseModel]] = {"device": Device, "toolchain": ToolchainConfig}

_DIRECTIVES: dict[str, dict[str, dict[str, Any]]] = {
    "device": {
        "extends": {
            "type": "string",
            "description": "A device (name or file) whose values hold unless given here.",
        },
        "detect": {
            "enum": [True, False, "gpu"],
            "description": "Take what is not given here from this machine; `gpu`: from its GPU too.",
        },
    },
    "toolchain": {
        "extends": {
            "type": "string",
            "description": "A toolchain (name or file) whose values hold unless given here.",
        },
    },
}


def schema_path(sort: str) -> Path:
    """Where the schema is shipped."""
    return Path(__file__).with_name(f"{sort}.schema.json")


def schema_text(sort: str) -> str:
    """The schema of one sort of file, as JSON text."""
    model = SCHEMAS[sort]
    schema = model.model_json_schema()
    required = [name for name in schema["required"] if name != "name"]
    directives = _DIRECTIVES[sort]
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"edgepack {sort} file",
        "description": (model.__doc__ or "").splitlines()[0],
        **_partial(schema),
        # What a file leaves out must come from somewhere else.
        "anyOf": [{"required": [name]} for name in directives] + [{"required": required}],
    }
    schema["properties"] = {**directives, **schema["properties"]}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


class Field(NamedTuple):
    """One field that a file can have: ``llvm.cpu``; ``compilers.NAME.cpu`` where the user chooses the key;
    ``memories.N.name`` in a list."""

    name: str
    required: bool
    default: Any
    values: tuple[Any, ...]  # all that are allowed, where there is a list of them
    description: str


def fields(model: type[BaseModel], prefix: str = "") -> Iterator[Field]:
    """All fields of a model and of the models in it, in order: what the documentation's tables must have."""
    for key, info in model.model_fields.items():
        kind = info.annotation
        inner = next(
            (k for k in (kind, *get_args(kind)) if isinstance(k, type) and issubclass(k, BaseModel)), None
        )
        listed = get_origin(kind) is tuple and inner is not None
        by_key = get_origin(kind) is dict and inner is not None
        name = prefix + key + (".NAME" if by_key else ".N" if listed else "")
        if inner is None or by_key or listed:
            plain = get_args(kind)[0] if get_origin(kind) is tuple else kind
            values = get_args(plain) if get_origin(plain) is Literal else ()
            yield Field(name, info.is_required(), info.default, values, info.description or "")
        if inner is not None:
            yield from fields(inner, f"{name}.")


def _partial(value: Any) -> Any:
    """A schema without titles, defaults and requirements: what `extends` gives need not be written."""
    if isinstance(value, list):
        return [_partial(item) for item in value]
    if not isinstance(value, dict):
        return value
    dropped = {"title", "default", "required"}
    return {
        key: {name: _partial(item) for name, item in inner.items()}
        if key in {"properties", "$defs"}
        else _partial(inner)
        for key, inner in value.items()
        if key not in dropped
    }


def write() -> None:
    """Write all schemas to where they are shipped."""
    for sort in SCHEMAS:
        schema_path(sort).write_text(schema_text(sort), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write()

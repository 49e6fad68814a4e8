"""Files of JSON that others may have written, read into models of pydantic, and their schemas."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from edgepack.bundle.limits import check_limits
from edgepack.errors import ConfigError
from edgepack.system.files import read_regular

__all__ = ["Record", "model_schema", "read_json", "read_versioned", "validated"]

_LARGEST = 64 << 20
_M = TypeVar("_M", bound=BaseModel)


class Record(BaseModel):
    """A part of a manifest. A tool of this version reads bundles of later versions with the same
    ``schema_version``: unknown fields pass."""

    model_config = ConfigDict(frozen=True, extra="ignore")


def read_json(path: Path, hint: str) -> Any:
    """Plain data of a file.

    Raises:
        ConfigError: it cannot be read, is larger than 64 MiB, is no JSON (which has no NaN and no infinity),
            has half a character, is nested more than 32 deep, or has numbers of more than 63 bits. ``hint``
            says what to do.
    """
    try:
        data = json.loads(read_regular(path, _LARGEST).decode("utf-8"), parse_constant=_no_constant)
        check_limits(data)
        json.dumps(data, ensure_ascii=False).encode("utf-8")  # half of a character
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}.", hint=hint) from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path} is not JSON: {error}.", hint=hint) from error
    return data


def validated(data: Any, kind: type[_M], where: str, hint: str) -> _M:
    """Plain data as a model.

    Raises:
        ConfigError: a field is missing or wrong: ``where``, the first such field, what is wrong, ``hint``.
    """
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "(all of it)"
        raise ConfigError(f"{where}: field {field}: {first['msg']}.", hint=hint) from error


def read_versioned(path: Path, kind: type[_M], version: int, *, again: str, maker: str) -> _M:
    """A file whose ``schema_version`` is ``version``.

    Args:
        path: of the file.
        kind: what it holds.
        version: of its schema.
        again: what makes a new one, as a sentence (``Pack the model again.``).
        maker: what reads a file of another version, as a sentence.

    Raises:
        ConfigError: as of ``read_json`` and ``validated``, or it is of another schema version.
    """
    data = read_json(path, again)
    found = data.get("schema_version") if isinstance(data, Mapping) else None
    if found != version:
        raise ConfigError(
            f"{path} has schema version {str(found)[:40]}; this edgepack reads version {version}.", hint=maker
        )
    return validated(data, kind, str(path), again)


def model_schema(kind: type[BaseModel]) -> str:
    """The JSON schema of a model, as the file beside its module holds it."""
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **kind.model_json_schema()}
    return json.dumps(schema, indent=1, sort_keys=True) + "\n"


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number of JSON")

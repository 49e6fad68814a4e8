"""The JSON Schemas that editors use agree with the models and with the files that are shipped."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from edgepack.config.device import DEVICES
from edgepack.config.schema import SCHEMAS, schema_path, schema_text
from edgepack.config.toolchain import TOOLCHAINS

FILES = [
    *(("device", path) for path in sorted(DEVICES.directory.glob("*.yaml"))),
    *(("toolchain", path) for path in sorted(TOOLCHAINS.directory.glob("*.yaml"))),
]
FIXTURES = Path(__file__).parent / "fixtures"


@pytest.mark.parametrize("sort", SCHEMAS)
def test_the_shipped_schema_is_current(sort: str) -> None:
    assert schema_path(sort).read_text(encoding="utf-8") == schema_text(sort), (
        "the models changed: run `python -m edgepack.config.schema`"
    )


@cache
def validator(sort: str) -> Any:
    import jsonschema  # two seconds, which collecting tests should not take

    schema = json.loads(schema_text(sort))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize(("sort", "path"), FILES, ids=[path.stem for _, path in FILES])
def test_the_shipped_files_fit_their_schema(sort: str, path: Path) -> None:
    validator(sort).validate(yaml.safe_load(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize(
    "name",
    ["unknown_key", "unknown_nested_key", "wrong_type", "missing_field", "bad_size", "feature_without_sign"],
)
def test_the_schema_finds_mistakes(name: str) -> None:
    import jsonschema

    data = yaml.safe_load((FIXTURES / f"{name}.yaml").read_text(encoding="utf-8"))
    with pytest.raises(jsonschema.ValidationError):
        validator("device").validate(data)

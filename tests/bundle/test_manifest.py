"""manifest.json: its schema is shipped, current, and holds; what does not fit is refused with the field."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgepack.bundle.manifest import SCHEMA_FILE, Manifest, json_schema, load_manifest
from edgepack.errors import ConfigError
from tests.support.manifest import example


def test_shipped_schema_is_current() -> None:
    assert SCHEMA_FILE.read_text(encoding="utf-8") == json_schema(), "run: python -m edgepack.bundle.manifest"


def test_a_manifest_satisfies_the_schema_and_survives_a_round_trip(tmp_path: Path) -> None:
    import jsonschema  # two seconds, which collecting tests should not take

    manifest = example()
    text = manifest.to_json()
    jsonschema.Draft202012Validator(json.loads(json_schema())).validate(json.loads(text))
    (tmp_path / "manifest.json").write_text(text, encoding="utf-8")
    assert load_manifest(tmp_path) == manifest


def test_fields_of_later_versions_are_ignored(tmp_path: Path) -> None:
    data = json.loads(example().to_json())
    data["new"] = data["device"]["new"] = 1
    (tmp_path / "manifest.json").write_text(json.dumps(data))
    assert load_manifest(tmp_path) == example()


#: No paths in a bundle.
OUTSIDE = ("../evil.sh", "/bin/sh", "bin/../../evil", "a\0b", "bin\\evil", "c:evil", "", "x" * 2000)


def _with_program(data: dict[str, Any], path: str) -> dict[str, Any]:
    return {**data, "artifacts": [{"kind": "program", "path": path, "nbytes": 1}]}


def _without(data: dict[str, Any], key: str) -> dict[str, Any]:
    return {k: v for k, v in data.items() if k != key}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: {**data, "schema_version": 2}, "schema version 2"),
        (lambda data: _without(data, "schema_version"), "schema version None"),
        (lambda data: _without(data, "params"), "field params"),
        (lambda data: {**data, "memory": {**data["memory"], "arena": -1}}, r"field memory\.arena"),
        (lambda data: [data], "schema version None"),
        *(
            (lambda data, path=path: _with_program(data, path), r"field artifacts\.0\.path.*not a path in")
            for path in OUTSIDE
        ),
    ],
)
def test_a_manifest_that_does_not_fit_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    data = json.loads(example().to_json())
    (tmp_path / "manifest.json").write_text(json.dumps(change(data)))
    with pytest.raises(ConfigError, match=message):
        load_manifest(tmp_path)


def test_a_manifest_that_is_not_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(ConfigError, match="is not JSON"):
        load_manifest(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 60_000,
        b'{"a":' * 60_000,
        b'{"schema_version": NaN}',
        b'{"schema_version": 1, "name": Infinity}',
        b'{"schema_version": 1, "flops": 1e999}',
        b'{"schema_version": 1, "name": "\\ud800"}',
        b'\xff{"schema_version": 1}',
    ],
)
def test_what_json_does_not_allow_is_one_error(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(ConfigError, match="is not JSON"):
        load_manifest(tmp_path)


def test_a_manifest_without_end_is_not_read_whole(tmp_path: Path) -> None:
    with (tmp_path / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(ConfigError, match="it has more than"):
        load_manifest(tmp_path)


@pytest.mark.skipif(os.name != "posix", reason="pipes and devices are POSIX's")
def test_a_manifest_that_is_no_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "manifest.json")
    with pytest.raises(ConfigError, match="is not a regular file"):
        load_manifest(tmp_path)
    (tmp_path / "manifest.json").unlink()
    (tmp_path / "manifest.json").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="is not a regular file"):
        load_manifest(tmp_path)


def test_equal_manifests_have_equal_bytes() -> None:
    data = json.loads(example().to_json())
    backwards = dict(reversed(data.items()))
    assert Manifest.model_validate(backwards).to_json() == example().to_json()

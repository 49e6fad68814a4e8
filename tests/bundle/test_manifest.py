"""manifest.json: its schema is shipped, current, and holds; what does not fit is refused with the field."""

from __future__ import annotations

import copy
import json
import os
from pathlib import Path
from typing import Any

import pytest

from edgepack.bundle.manifest import SCHEMA_FILE, Manifest, OptionsRecord, json_schema, load_manifest
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


def test_the_level_of_optimisation_is_there_where_it_is_not_the_highest() -> None:
    record = OptionsRecord(opt_level=1)
    assert record.model_dump()["opt_level"] == 1
    assert OptionsRecord.model_validate(record.model_dump()) == record
    assert "opt_level" not in OptionsRecord().model_dump()
    assert OptionsRecord.model_validate(OptionsRecord().model_dump()).opt_level == 3


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


#: By field, below the root: texts that no name of its kind is.
_NO_NAMES = (
    "/tmp/x",
    "../x",
    "a/b",
    "a\\b",
    "",
    ".",
    "x\n",
    "a b\n",
    "x.yaml",
    "\x1b[2J",
    "\u202ex",
    "x" * 301,
)
_NO_WORDS = ("a b", "a/b", "x\n", "$(x)", "<b>", "é", "x" * 301)
_NO_HASHES = ("ab", "AB" * 32, "ab" * 33, "ab" * 32 + "\n", "../" * 21 + "x")
FORMS: dict[str, tuple[str, ...]] = {
    "name": (*_NO_NAMES, "a-b", "a.b", "é", "1a", "a__b"),
    "symbol": (*_NO_NAMES, "edgepack_model_other", "system"),
    "edgepack": ("", *_NO_WORDS),
    "device.name": _NO_NAMES,
    "device.runner.name": _NO_NAMES,
    "toolchain.name": _NO_NAMES,
    "toolchain.family": _NO_NAMES,
    "toolchain.version": ("a\nb", "\x1b", "\x9b"),
    "variants.0.name": _NO_NAMES,
    "variants.0.gpu": _NO_WORDS,
    "variants.0.kernels.0.symbol": ("", "a-b", "a b"),
    "model.file": ("", "..", "/etc/passwd", "../x", "a/b", "a\0", "x" * 2000),
    "model.sha256": ("", *_NO_HASHES),
    "params.id": ("", *_NO_HASHES),
    "params.layout": _NO_HASHES,
    "params.key": _NO_HASHES,
    "files.0.sha256": ("", *_NO_HASHES),
    "artifacts.0.loader_sha256": _NO_HASHES,
    "kernels.0.symbol": ("", "a-b", "a b"),
    "kernels.0.backend": ("", *_NO_WORDS),
    **{f"device.{key}": _NO_WORDS for key in ("arch", "os", "libc", "triple", "cpu")},
    "device.features.0": ("neon", "+a b", "+"),
    "device.cpu_requires.0": ("", *_NO_WORDS),
    **{f"{kind}.0.dtype": ("", "O", "float32; x", "a b") for kind in ("inputs", "recorded.outputs")},
}


@pytest.mark.parametrize(("place", "value"), [(place, value) for place in FORMS for value in FORMS[place]])
def test_names_and_digests_have_a_form(place: str, value: str, tmp_path: Path) -> None:
    """Whoever makes a path, a line or an option of one relies on it."""
    data = json.loads(example().to_json())
    data["variants"] = [
        {key: copy.deepcopy(data[key]) for key in ("memory", "kernels", "steps")} | {"name": "v", "gpu": "x"}
    ]
    owner: Any = data
    *path, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    for key in path:
        owner = owner[key]
    owner[last] = value
    (tmp_path / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"field {place.replace('.', '[.]')}: "):
        load_manifest(tmp_path)


@pytest.mark.parametrize("field", ["inputs", "outputs", "artifacts", "kernels", "variants", "files"])
def test_what_is_found_by_its_name_is_there_once(field: str, tmp_path: Path) -> None:
    data = json.loads(example().to_json())
    data["variants"] = [{key: data[key] for key in ("memory", "kernels", "steps")} | {"name": "v"}]
    data[field] = [data[field][0], data[field][0]]
    (tmp_path / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(ConfigError, match=rf"field {field}: .*two of them have the same"):
        load_manifest(tmp_path)


def test_odd_names_that_edgepack_writes_are_read(tmp_path: Path) -> None:
    """Of files, devices, tensors, and what a compiler calls itself."""
    data = json.loads(example().to_json())
    data["model"]["file"] = "\u202e\\nét (2)\n\x1b \ufffd.onnx"
    data["device"]["name"] = "Brett Nr. 4 (blåbær) 板"
    data["inputs"][0]["name"] = "in/put:0\n<script>"
    data["toolchain"]["version"] = "gcc (Debian 12.2.0-14) 12.2.0 \u202e"
    data["name"], data["symbol"] = "Net_1_", "edgepack_model_Net_1"
    data["tools"] = {"metal": "Apple metal version 32023.404 (metalfe-32023.404)", "numpy": "none"}
    (tmp_path / "manifest.json").write_text(json.dumps(data), encoding="utf-8")
    assert json.loads(load_manifest(tmp_path).to_json()) == data


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

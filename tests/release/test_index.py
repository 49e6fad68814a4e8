"""release.json and measurements.json of somebody else: names have a form, and are there once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from edgepack.errors import ConfigError
from edgepack.release.index import SCHEMA_FILE, Index, load_index
from edgepack.release.measure import load_measurements

SHA = "ab" * 32
UNIT: dict[str, Any] = {
    "model": "net",
    "device": "Brett Nr. 4 板",
    "bundle": "net/pi/bundle",
    "inputs": SHA,
    "model_sha256": SHA,
    "manifest_sha256": SHA,
    "packages": [{"path": "net/pi/net.deb", "nbytes": 1, "sha256": SHA, "format": "deb"}],
    "sizes": {"params": 1, "arena": 1, "bundle": 1},
    "verified": {"runner": "qemu", "variants": ["linux-x86_64"]},
}
INDEX: dict[str, Any] = {
    "schema_version": 1,
    "name": "Our models",
    "version": "1.2.0-rc.1",
    "license": "Apache-2.0",
    "authors": ["山田\u3000太郎 <y@example.org>"],
    "edgepack": "0.1.0",
    "tools": {"apache-tvm": "0.27.0"},
    "only": ["net@*"],
    "against": "",
    "units": [UNIT],
    "joint": [
        {**UNIT["packages"][0], "path": "net/net.aar", "model": "net", "devices": ["pi"], "inputs": SHA}
    ],
}
MEASURED: dict[str, Any] = {
    **{
        "unit": "net@Brett Nr. 4 板",
        "inputs": SHA,
        "runner": "native",
        "where": "here",
        "cpu": "",
        "threads": 1,
    },
    **{"runs": 50, "min_ms": 1.0, "median_ms": 1.0, "p90_ms": 1.0, "load_ms": 1.0},
}
NO_NAMES = ("/tmp/x", "../x", "a/b", "a\\b", "", ".", "x\n", "x.yaml", "\x1b[2J", "\u202ex", "x" * 301)


def _with(data: dict[str, Any], place: str, value: Any) -> dict[str, Any]:
    copy: dict[str, Any] = json.loads(json.dumps(data))
    owner: Any = copy
    *path, last = [int(part) if part.isdecimal() else part for part in place.split(".")]
    for key in path:
        owner = owner[key]
    owner[last] = value
    return copy


def test_a_release_that_edgepack_writes_is_read(tmp_path: Path) -> None:
    import jsonschema  # two seconds, which collecting tests should not take

    (tmp_path / "release.json").write_text(json.dumps(INDEX), encoding="utf-8")
    assert load_index(tmp_path).unit("net@Brett Nr. 4 板") is not None
    jsonschema.Draft202012Validator(json.loads(SCHEMA_FILE.read_text(encoding="utf-8"))).validate(INDEX)


def test_a_package_for_several_devices_counts_for_each_of_them() -> None:
    """A component for ESP-IDF is one, of however many devices it was made."""
    joint = {**INDEX["joint"][0], "devices": [UNIT["device"], "pi"]}
    other = {**UNIT, "device": "other", "bundle": "net/other/bundle", "packages": []}
    index = Index.model_validate({**INDEX, "units": [UNIT, other], "joint": [joint]})
    assert [[one.path for one in index.packages_of(unit)] for unit in index.units] == [
        ["net/pi/net.deb", "net/net.aar"],
        [],
    ]


@pytest.mark.parametrize(
    ("place", "values"),
    [
        *((place, NO_NAMES) for place in ("name", "units.0.model", "units.0.device", "joint.0.model")),
        *((place, NO_NAMES) for place in ("joint.0.devices.0", "units.0.verified.variants.0")),
        ("units.0.packages.0.format", NO_NAMES),
        ("units.0.verified.runner", [name for name in NO_NAMES if name]),
        *((place, ("", "a b", "a/b", "1\n")) for place in ("version", "edgepack")),
        ("against", ("a b", "../x")),
        *((place, ("a\nb", "\x1b[2J", "\u2028")) for place in ("license", "homepage", "authors.0", "only.0")),
        *((f"units.0.{key}", ("", "AB" * 32, SHA + "\n")) for key in ("inputs", "model_sha256")),
        ("units.0.manifest_sha256", ("../x",)),
        *((place, ("../x", "/x", "a\nb")) for place in ("units.0.bundle", "units.0.packages.0.path")),
    ],
)
def test_names_of_a_release_have_a_form(place: str, values: tuple[str, ...], tmp_path: Path) -> None:
    for value in values:
        (tmp_path / "release.json").write_text(json.dumps(_with(INDEX, place, value)), encoding="utf-8")
        with pytest.raises(ConfigError, match=rf"field {place.replace('.', '[.]')}: "):
            load_index(tmp_path)


def test_units_and_packages_are_there_once(tmp_path: Path) -> None:
    other = {**UNIT, "device": "other"}
    for units in ([UNIT, {**UNIT, "bundle": "x"}], [UNIT, other], [UNIT, {**other, "bundle": "x"}]):
        (tmp_path / "release.json").write_text(json.dumps({**INDEX, "units": units}), encoding="utf-8")
        with pytest.raises(ConfigError, match=r"two (of them|packages) have the same (name|bundle|path)"):
            load_index(tmp_path)


def test_odd_measurements_are_none(tmp_path: Path) -> None:
    file = tmp_path / "measurements.json"
    file.write_text(json.dumps({"schema_version": 1, "units": [MEASURED]}), encoding="utf-8")
    assert load_measurements(tmp_path).units[0].unit == MEASURED["unit"]
    odd = {"unit": "net", "inputs": "x", "runner": "../x", "threads": 0, "median_ms": -1, "p90_ms": 1e999}
    for key, value in odd.items():
        file.write_text(
            json.dumps({"schema_version": 1, "units": [{**MEASURED, key: value}]}), encoding="utf-8"
        )
        assert not load_measurements(tmp_path).units, key

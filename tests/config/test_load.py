"""How files are found, read and merged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from edgepack.config.device import device_names, load_device, resolve_device
from edgepack.config.document import Document, merge, parse
from edgepack.config.models import format_size, parse_size
from edgepack.config.show import as_yaml
from edgepack.config.toolchain import load_toolchain, resolve_toolchain, toolchain_names


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("yes", "yes"),
        ("true", True),
        ("False", False),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("1e3", 1000.0),
        ("-7", -7),
        ("2.28", 2.28),
        ("'2.28'", "2.28"),
        ("~", None),
        ("", None),
        ("1_000", "1_000"),
        ("<<", "<<"),
        ("=", "="),
    ],
)
def test_scalars_follow_yaml_1_2(text: str, value: Any) -> None:
    found = parse(f"key: {text}\n", "x.yaml").data["key"]
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "size"),
    [("32 KiB", 32768), ("1MiB", 1 << 20), ("2 MB", 2_000_000), ("0.5 KiB", 512), ("17", 17), (64, 64)],
)
def test_sizes_are_bytes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("size", [0, 1, 1000, 1024, 48 * 1024, 1 << 20, 3 << 30])
def test_a_shown_size_parses_to_itself(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_merging_goes_into_mappings_and_replaces_lists() -> None:
    base = parse("a: {x: 1, y: [1, 2]}\nb: 2\n", "base.yaml")
    over = parse("c: 3\na:\n  y: [3]\n  z: 4\n", "over.yaml")
    merged = merge(base, over)
    assert merged.data == {"a": {"x": 1, "y": [3], "z": 4}, "b": 2, "c": 3}
    assert {
        path: str(merged.origins[path]) for path in [("a", "x"), ("a", "y"), ("a", "z"), ("b",), ("c",)]
    } == {
        ("a", "x"): "base.yaml:1",
        ("a", "y"): "over.yaml:3",
        ("a", "z"): "over.yaml:4",
        ("b",): "base.yaml:2",
        ("c",): "over.yaml:1",
    }


def test_merging_a_scalar_over_a_mapping_forgets_what_was_in_it() -> None:
    merged = merge(parse("a: {x: 1}\n", "base.yaml"), parse("a: 1\n", "over.yaml"))
    assert merged.data == {"a": 1}
    assert ("a", "x") not in merged.origins


def test_an_origin_falls_back_to_what_is_around() -> None:
    document = parse("a:\n  b: 1\n", "x.yaml")
    assert isinstance(document, Document)
    assert str(document.origin(("a", "missing", "deeper"))) == "x.yaml:1"


def test_a_device_by_path_with_spaces_and_other_letters(tmp_path: Path) -> None:
    path = write(tmp_path / "mes appareils é" / "mon pi.yaml", "extends: raspberrypi4\nthreads: 2\n")
    device = load_device(path)
    assert (device.name, device.threads, device.llvm.cpu) == ("mon pi", 2, "cortex-a72")


def test_a_base_is_looked_for_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a" / "base.yaml", "extends: linux-aarch64\nthreads: 7\n")
    path = write(tmp_path / "a" / "mine.yaml", "extends: ./base.yaml\n")
    monkeypatch.chdir(tmp_path)
    assert load_device(path).threads == 7
    assert load_device("a/mine.yaml").threads == 7


def test_own_folders_are_searched_first_and_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "one" / "board.yaml", "extends: linux-armv7\nthreads: 1\n")
    write(tmp_path / "two" / "board.yml", "extends: linux-armv7\nthreads: 2\n")
    write(tmp_path / "two" / "other.yml", "extends: board\n")
    folders = os.pathsep.join(str(tmp_path / name) for name in ("one", "missing", "two"))
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", folders)
    assert load_device("board").threads == 1
    assert load_device("other").threads == 1
    assert {"board", "other", "host"} <= set(device_names())


def test_a_user_file_may_refine_the_built_in_of_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path / "raspberrypi4.yaml", "extends: raspberrypi4\nthreads: 3\n")
    monkeypatch.setenv("EDGEPACK_DEVICE_PATH", str(tmp_path))
    device = load_device("raspberrypi4")
    assert (device.threads, device.llvm.cpu) == (3, "cortex-a72")


def test_names_and_descriptions_are_not_inherited(tmp_path: Path) -> None:
    device = load_device(write(tmp_path / "mine.yaml", "extends: raspberrypi4\n"))
    assert (device.name, device.description) == ("mine", "")
    named = load_device(write(tmp_path / "other.yaml", "extends: raspberrypi4\nname: pi\n"))
    assert named.name == "pi"


def test_devices_are_frozen() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_device("raspberrypi4").threads = 3  # type: ignore[misc]


def test_what_is_shown_loads_again(tmp_path: Path) -> None:
    for name in (*device_names(), "teensy41"):  # which has memories
        device = load_device(name)
        path = write(tmp_path / f"{name}.yaml", as_yaml(resolve_device(name)))
        assert load_device(path) == device
    for name in toolchain_names():
        path = write(tmp_path / f"{name}.yaml", as_yaml(resolve_toolchain(name)))
        assert load_toolchain(path) == load_toolchain(name)


def test_what_is_shown_names_each_origin() -> None:
    text = as_yaml(resolve_device("raspberrypi4"))
    lines = {
        line.split("#")[0].strip(): line.split("#")[1].strip() for line in text.splitlines() if "#" in line
    }
    assert lines["cpu: cortex-a72"].startswith("raspberrypi4.yaml:")
    assert lines["os: linux"].startswith("linux-aarch64.yaml:")
    assert lines["params: file"] == "default"


def test_the_host_says_what_was_detected() -> None:
    text = as_yaml(resolve_device("host"))
    assert "# this machine" in text

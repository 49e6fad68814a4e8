"""Names of bundles and where their files lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from edgepack.bundle.layout import BundleLayout, check_name, chosen_name, default_name, find_bundle
from edgepack.errors import ConfigError


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("resnet18.onnx", "resnet18"),
        ("ResNet-18 (v2).onnx", "resnet_18_v2"),
        ("bért.onnx", "bert"),
        ("18.onnx", "model_18"),
        ("模型.onnx", "model_1"),
        ("float.onnx", "model_float"),
        ("__x__.onnx", "x"),
        ("a" * 80 + ".onnx", "a" * 48),
        (".onnx", "onnx"),
    ],
)
def test_default_name_is_a_c_identifier(file: str, name: str) -> None:
    assert default_name(Path(file)) == name
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", "1a", "a-b", "a b", "_a", "a__b", "é", "a" * 49, "int", "Main", "a/b", "a\n"]
)
def test_name_that_is_no_identifier_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"identifier|reserved"):
        check_name(name)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("ResNet18", "ResNet18"),
        ("2net", "model_2net"),
        ("my-net v2", "my_net_v2"),
        ("a__b", "a_b"),
        ("_a", "a"),
        ("bért", "bert"),
        ("a" * 49, "a" * 48),
        ("1" * 48, f"model_{'1' * 42}"),
    ],
)
def test_a_chosen_name_becomes_an_identifier_as_a_files_does(given: str, name: str) -> None:
    assert chosen_name(given) == check_name(name) == name
    assert default_name(Path(f"{given}.onnx")) == name.lower()


@pytest.mark.parametrize(
    ("given", "what"), [("", "Nothing"), ("模型", "Nothing"), ("-", "Nothing"), ("int", "rese")]
)
def test_a_chosen_name_that_can_be_none_is_refused(given: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as caught:
        chosen_name(given)
    assert "--name " in caught.value.hint


def test_suffixes_follow_the_operating_system() -> None:
    assert BundleLayout("net").artifacts == {
        "shared": "lib/libnet.so",
        "static": "lib/libnet.a",
        "program": "bin/net",
    }
    assert BundleLayout("net", "macos").shared == "lib/libnet.dylib"
    assert BundleLayout("net", "windows").program == "bin/net.exe"


def test_find_bundle_takes_the_folder_or_its_manifest(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{}")
    assert find_bundle(tmp_path) == tmp_path
    assert find_bundle(tmp_path / "manifest.json") == tmp_path


def test_what_is_no_bundle_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"does not exist"):
        find_bundle(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match=r"holds no manifest\.json"):
        find_bundle(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="is not a folder"):
        find_bundle(tmp_path / "file")

"""Paths that are no UTF-8, and letters beyond ASCII where the locale says ASCII, are paths as others are."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import edgepack
from edgepack.cli.main import main
from edgepack.compiler.utf8_paths import utf8_folder, utf8_paths
from edgepack.runners.program import _path_of_text
from edgepack.system.files import as_text

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere all paths are text")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """One whose name is in Latin-1."""
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/f\xe4ld"))
    try:
        path.mkdir()
    except OSError:
        pytest.skip("this file system takes no such names")
    return path


def external_model(folder: Path) -> Path:
    """A matrix product whose weights are in a file beside it, and an input for it; in Latin-1."""
    weights = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
    inputs = [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 8])]
    outputs = [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 8])]
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "g", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    beside = folder.parent / "plain"
    beside.mkdir()
    onnx.save(model, beside / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    path = folder / os.fsdecode(b"m\xf6del.onnx")
    (beside / "m.onnx").rename(path)
    (beside / "w.bin").rename(folder / "w.bin")
    np.save(folder / os.fsdecode(b"x\xe4.npy"), np.ones((2, 8), np.float32))
    return path


def test_a_model_in_such_a_folder_is_packed_checked_shown_and_loaded(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = external_model(folder)
    output = folder / os.fsdecode(b"b\xfcndle")
    given = f"x={folder / os.fsdecode(b'x' + bytes([0xE4]) + b'.npy')}"
    options = ["--output", str(output), "--input", given, "--no-cache"]
    assert main(["pack", str(model), *options, "--json", "--quiet"]) == 0
    packed = json.loads(capsys.readouterr().out)
    assert packed["manifest"]["model"]["file"] == "m\ufffddel.onnx"
    assert packed["bundle"] == str(output)
    assert json.loads((output / "manifest.json").read_bytes().decode("utf-8"))["name"] == "mdel"
    for command in (["inspect", str(model)], ["inspect", str(output)], ["verify", str(output)]):
        assert main([*command, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)
        assert main(command) == 0
        capsys.readouterr().out.encode("utf-8")
    with edgepack.load(output) as session:
        (y,) = session.run({"x": np.ones((2, 8), np.float32)}).values()
    np.testing.assert_allclose(y, np.ones((2, 8)) @ (np.arange(64).reshape(8, 8) / 64), rtol=1e-5)


LOCALES: dict[str, dict[str, str]] = {
    "C": {"LC_ALL": "C"},
    "C, printing ASCII": {"LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
    "C, without UTF-8 mode": {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
}


@pytest.mark.parametrize("locale", LOCALES)
def test_letters_beyond_ascii_in_the_locale_c(locale: str, small_model: Path) -> None:
    """``small_model`` lies in a folder with such letters."""
    command = [sys.executable, "-m", "edgepack", "inspect", small_model, "--json"]
    done = subprocess.run(command, env=os.environ | LOCALES[locale], capture_output=True, check=True)
    assert json.loads(done.stdout)["inputs"]


def test_what_is_written_as_json_has_no_halves_of_characters() -> None:
    assert as_text(os.fsdecode(b"m\xf6del.onnx")) == "m\ufffddel.onnx"
    assert as_text("größe") == "größe"


def test_libraries_that_want_text_get_a_link(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "w.bin").write_bytes(b"weights")
    own = folder.parent / "own"
    own.mkdir()
    monkeypatch.chdir(own)
    link = utf8_folder(folder)
    str(link).encode("utf-8")
    assert (link / "w.bin").read_bytes() == b"weights"
    assert utf8_folder(folder) == link
    assert utf8_folder(own) == own
    job = utf8_paths({"model": str(folder / "m.onnx"), "imported": str(own), "shapes": {}})
    assert job == {"model": str(link / "m.onnx"), "imported": str(own), "shapes": {}}


def test_engines_that_want_text_get_a_link(folder: Path, tmp_path: Path) -> None:
    (folder / "program.wasm").write_bytes(b"wasm")
    with _path_of_text(folder) as place:
        str(place).encode("utf-8")
        assert (place / "program.wasm").read_bytes() == b"wasm"
    assert folder.exists() and not place.is_symlink()
    with _path_of_text(tmp_path) as place:
        assert place == tmp_path

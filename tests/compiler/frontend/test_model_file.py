from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.model_file import external_files, read_model
from edgepack.errors import ModelError
from tests.models import build, save


def saved_with_external_data(folder: Path, seed: int = 0) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "mlp.onnx"
    onnx.save(
        build("mlp", seed), str(path), save_as_external_data=True, location="mlp.weights", size_threshold=0
    )
    return path


def refusal(path: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert "\n" not in caught.value.message
    return caught.value


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "no model file" in refusal(tmp_path / "none.onnx").message


def test_directory_is_refused_and_its_models_are_listed(tmp_path: Path) -> None:
    save(build("mlp"), tmp_path, "inside.onnx")
    error = refusal(tmp_path)
    assert "is a directory" in error.message
    assert "inside.onnx" in error.hint


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.touch()
    assert "empty" in refusal(path).message


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04 a zip file", b"\x89PNG\r\n\x1a\n", b"import torch\n", bytes(range(256))]
)
def test_other_formats_are_not_onnx(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert "is not an ONNX file" in refusal(path).message


def test_git_lfs_pointer_is_recognised(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n", encoding="utf-8")
    assert "git lfs pull" in refusal(path).hint


@pytest.mark.parametrize("part", [0.001, 0.1, 0.5, 0.999])
def test_truncated_file(tmp_path: Path, part: float) -> None:
    path = save(build("mlp"), tmp_path)
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * part)])
    assert "truncated" in refusal(path).message


def test_external_data_is_loaded(tmp_path: Path) -> None:
    model = read_model(saved_with_external_data(tmp_path))
    loaded = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    for tensor in build("mlp").graph.initializer:
        np.testing.assert_array_equal(loaded[tensor.name], onnx.numpy_helper.to_array(tensor))


def test_missing_external_data_file_is_named(tmp_path: Path) -> None:
    path = saved_with_external_data(tmp_path)
    (tmp_path / "mlp.weights").unlink()
    error = refusal(path)
    assert "mlp.weights" in error.message
    assert "missing" in error.message


def test_truncated_external_data_is_found(tmp_path: Path) -> None:
    path = saved_with_external_data(tmp_path)
    data = tmp_path / "mlp.weights"
    data.write_bytes(data.read_bytes()[:1000])
    assert "mlp.weights" in refusal(path).message


@pytest.mark.parametrize("location", ["../outside.bin", "/etc/hostname"])
def test_external_data_outside_of_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    path = saved_with_external_data(tmp_path / "model")
    model = onnx.load(str(path), load_external_data=False)
    for entry in model.graph.initializer[0].external_data:
        if entry.key == "location":
            entry.value = location
    path.write_bytes(model.SerializeToString())
    (tmp_path / "outside.bin").write_bytes(bytes(10_000_000))
    assert location in refusal(path).message


def test_path_with_spaces_and_other_letters(tmp_path: Path) -> None:
    path = saved_with_external_data(tmp_path / "mein Modell größe")
    assert len(read_model(path).graph.node) == 6
    assert external_files(path) == (path.parent / "mlp.weights",)

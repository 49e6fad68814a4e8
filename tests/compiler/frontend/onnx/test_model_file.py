from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.onnx.model_file import external_files, read_model
from edgepack.compiler.memory import at_most
from edgepack.errors import ModelError
from workbench.models import build, save


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


def stored_in(file: Path, nbytes: int, fields: dict[str, object], shape: tuple[int, ...] = (4,)) -> Path:
    """A model of one addition, whose float32 operand lies in a sparse file of so many bytes."""
    fields = {"location": file.name, **fields}
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=shape)
    weight.data_location = TensorProto.EXTERNAL
    for key, value in fields.items():
        weight.external_data.add(key=key, value=str(value))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", ends[:1], ends[1:], [weight])
    with file.open("wb") as stream:
        stream.truncate(nbytes)
        stream.seek(8 if fields.get("offset") else 0)
        stream.write(np.arange(4, dtype="f4").tobytes())
    path = file.with_suffix(".onnx")
    path.write_bytes(helper.make_model(graph).SerializeToString())
    return path


@pytest.mark.parametrize(
    "fields", [{}, {"length": 0}, {"length": 16}, {"offset": 8}, {"offset": 8, "length": 16}]
)
def test_of_a_file_of_any_size_only_what_the_tensor_needs_is_read(
    fields: dict[str, object], tmp_path: Path
) -> None:
    path = stored_in(tmp_path / "sparse", 8 << 30, fields)
    with at_most(1 << 30):
        model = read_model(path)
    loaded = onnx.numpy_helper.to_array(model.graph.initializer[0])
    np.testing.assert_array_equal(loaded, np.arange(4, dtype="f4"))
    assert model.ByteSize() < 1000


def test_an_empty_tensor_reads_nothing(tmp_path: Path) -> None:
    path = stored_in(tmp_path / "sparse", 8 << 30, {}, (0, 4))
    with at_most(1 << 30):
        assert read_model(path).graph.initializer[0].raw_data == b""


@pytest.mark.parametrize("length", [15, 17, 8 << 30])
def test_external_data_of_another_size_than_the_tensor_is_refused(length: int, tmp_path: Path) -> None:
    error = refusal(stored_in(tmp_path / "sparse", 8 << 30, {"length": length}))
    assert f"needs 16 bytes, and has {length} in the external data file sparse" in error.message


def test_a_file_without_a_length_that_is_too_short_is_refused(tmp_path: Path) -> None:
    assert "ends at byte 25" in refusal(stored_in(tmp_path / "sparse", 0, {"offset": 9})).message


def test_tensors_that_need_more_memory_than_there_is_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may all lie in the same bytes of a small file."""
    path = stored_in(tmp_path / "sparse", 1 << 20, {}, (1 << 18,))
    model = onnx.load(str(path), load_external_data=False)
    for index in range(100):
        model.graph.initializer.add().CopyFrom(model.graph.initializer[0])
        model.graph.initializer[-1].name = f"w{index}"
        model.graph.output.append(helper.make_tensor_value_info(f"w{index}", TensorProto.FLOAT, (1 << 18,)))
    path.write_bytes(model.SerializeToString())
    monkeypatch.setattr("edgepack.compiler.memory._available", lambda: 100 << 20)
    with pytest.raises(MemoryError):
        read_model(path)
    monkeypatch.setattr("edgepack.compiler.memory._available", lambda: 102 << 20)
    assert read_model(path).ByteSize() > 101 << 20


def test_external_data_of_a_function_is_read_too(tmp_path: Path) -> None:
    path = stored_in(tmp_path / "sparse", 8 << 30, {})
    model = onnx.load(str(path), load_external_data=False)
    constant = helper.make_node("Constant", [], ["w"], value=model.graph.initializer[0])
    body = [constant, helper.make_node("Add", ["a", "w"], ["b"])]
    opsets = [helper.make_opsetid("", 17)]
    function = helper.make_function("own", "f", ["a"], ["b"], body, opsets)
    ends = (model.graph.input, model.graph.output)
    graph = helper.make_graph([helper.make_node("f", ["x"], ["y"], domain="own")], "g", *ends)
    opsets.append(helper.make_opsetid("own", 1))
    whole = helper.make_model(graph, functions=[function], opset_imports=opsets)
    path.write_bytes(whole.SerializeToString())
    (tensor,) = (a.t for n in read_model(path).functions[0].node for a in n.attribute)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(tensor), np.arange(4, dtype="f4"))
    assert external_files(path) == (tmp_path / "sparse",)


def test_path_with_spaces_and_other_letters(tmp_path: Path) -> None:
    path = saved_with_external_data(tmp_path / "mein Modell größe")
    assert len(read_model(path).graph.node) == 6
    assert external_files(path) == (path.parent / "mlp.weights",)

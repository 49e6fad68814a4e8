"""Models in memory: what is packed is what a file of them would be, and an error does not name its folder."""

from __future__ import annotations

import gc
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

import edgepack
from edgepack.errors import ConfigError, ModelError
from edgepack.pipeline.model_objects import model_file
from edgepack.registry import object_kind
from tests.support import fake
from workbench.models import build, save


def test_a_path_is_the_file_itself(tmp_path: Path) -> None:
    with model_file(str(tmp_path / "net.onnx"), "name") as file:
        assert file == tmp_path / "net.onnx"


def test_an_object_becomes_a_private_file_that_is_removed() -> None:
    model = build("mlp")
    with model_file(model) as file:
        assert onnx.load(file) == model
        assert file.stat().st_uid == file.parent.stat().st_uid
        assert file.parent.stat().st_mode & 0o077 == 0
        first = file.read_bytes()
    assert not file.parent.exists()
    with model_file(model) as file:
        assert file.read_bytes() == first
    gc.collect()


@pytest.mark.parametrize(
    ("graph", "chosen", "name"),
    [
        ("ResNet-18 (v2)", None, "ResNet-18_v2.onnx"),
        ("main_graph", None, "model.onnx"),
        ("", None, "model.onnx"),
        ("../../etc/passwd", None, "etc_passwd.onnx"),
        ("n" * 300, None, "n" * 48 + ".onnx"),
        ("net", "mine", "mine.onnx"),
    ],
)
def test_the_file_is_called_by_the_chosen_name_or_the_graphs(
    graph: str, chosen: str | None, name: str
) -> None:
    model = build("mlp")
    model.graph.name = graph
    with model_file(model, chosen) as file:
        assert file.name == name


def with_external(place: str) -> onnx.ModelProto:
    """A model of which one tensor's numbers are in a file: a weight, or a constant in a branch."""
    tensor = helper.make_tensor("w", TensorProto.FLOAT, [4], [0.0] * 4)
    tensor.ClearField("float_data")
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value="weights.bin")
    model = build("mlp")
    if place == "branch":
        inner = helper.make_graph([helper.make_node("Constant", [], ["c"], value=tensor)], "then", [], [])
        model.graph.node.append(helper.make_node("If", ["x"], ["y"], then_branch=inner, else_branch=inner))
    else:
        model.graph.initializer.append(tensor)
    return model


@pytest.mark.parametrize("place", ["weight", "branch"])
def test_weights_that_are_not_in_memory_are_refused(place: str) -> None:
    with (
        pytest.raises(ModelError, match="tensor 'w' is in an external file") as refused,
        model_file(with_external(place)),
    ):
        pass
    assert "onnx.load" in refused.value.hint


class ModelProto:
    """One of more than 2 GB, which protocol buffers do not write."""

    graph = onnx.GraphProto()

    def SerializeToString(self, **options: Any) -> bytes:  # noqa: N802
        raise ValueError("Message onnx.ModelProto exceeds maximum protobuf size of 2GB")


def test_a_model_that_no_file_holds_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ModelProto, "__module__", "onnx.somewhere")
    with pytest.raises(ModelError, match="2GB") as refused, model_file(ModelProto()):
        pass
    assert "save_as_external_data=True" in refused.value.hint


def test_kinds_are_told_by_package_and_class() -> None:
    assert object_kind(onnx.ModelProto()) == "onnx.ModelProto"
    assert object_kind(onnx.GraphProto()) == object_kind(b"") == object_kind(ModelProto()) == ""
    with pytest.raises(ConfigError, match="not one of GraphProto"), model_file(onnx.GraphProto()):
        pass


def test_errors_name_the_file_without_its_folder() -> None:
    model = build("mlp")
    with pytest.raises(ModelError) as raised, model_file(model) as file:
        raise ModelError(f"{file} is refused.", hint=f"Look at {file}.", detail=str(file))
    error = raised.value
    assert (error.message, error.hint, error.detail) == (
        f"{file.name} is refused.",
        f"Look at {file.name}.",
        file.name,
    )


def test_packed_from_memory_is_packed_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is found in the cache where the file was packed before."""
    fake.install("ok", monkeypatch.setattr)
    model = build("mlp")
    stages: list[str] = []
    file = save(model, tmp_path, "net.onnx")
    first = edgepack.pack(file, output=tmp_path / "first")
    second = edgepack.pack(
        model, output=tmp_path / "second", name="net", progress=lambda stage, detail: stages.append(stage)
    )
    assert second.manifest.model.file == "net.onnx"
    assert second.manifest == first.manifest
    assert "look in the cache" in stages
    assert "start the compiler" not in stages
    assert edgepack.check(model).model.endswith(".onnx")

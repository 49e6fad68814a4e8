"""Which frontend reads a model: by its suffix, then by its contents, and a sentence where none does."""

from __future__ import annotations

import zipfile
from pathlib import Path

import onnx
import pytest

from edgepack.compiler.frontend import base
from edgepack.compiler.frontend.choose import choose, frontend_of
from edgepack.compiler.frontend.onnx import recognises
from edgepack.compiler.frontend.torch.recognise import is_script_file
from edgepack.errors import ConfigError, ModelError
from edgepack.registry import FRONTENDS
from workbench.models import build, save


@pytest.fixture(scope="module")
def model() -> bytes:
    return build("mlp").SerializeToString()


@pytest.mark.parametrize("name", ["net.onnx", "NET.ONNX", "net", "net.bin", "onnx"])
def test_a_model_of_any_name_is_read_by_what_knows_its_format(
    name: str, tmp_path: Path, model: bytes
) -> None:
    (tmp_path / name).write_bytes(model)
    assert choose(tmp_path / name) == "onnx"


@pytest.mark.parametrize("name", ["vad.jit", "vad.model", "vad", "vad.zip", "vad.pt2", "vad.pt"])
@pytest.mark.parametrize(
    ("entries", "script"),
    [
        (("code/__torch__/net.py", "constants.pkl", "data.pkl", "data/0"), True),
        (("models/model.json", "archive_format", "data/weights/0"), False),
    ],
)
def test_archives_of_pytorch_are_told_apart_by_their_entries(
    name: str, entries: tuple[str, ...], script: bool, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        for entry in entries:
            archive.writestr(f"net/{entry}", b"")
    assert choose(tmp_path / name) == "torch"
    assert is_script_file(tmp_path / name) is script


@pytest.mark.parametrize(("name", "script"), [("net.pt", True), ("net.pt2", False)])
def test_an_archive_of_pytorch_that_does_not_say_which_is_what_its_suffix_says(
    name: str, script: bool, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(b"PK")
    assert is_script_file(tmp_path / name) is script
    with zipfile.ZipFile(tmp_path / name, "w") as archive:
        archive.writestr("net/data.pkl", b"")
    assert is_script_file(tmp_path / name) is script


def test_a_file_that_is_damaged_or_not_there_is_left_to_the_frontend_of_its_suffix(tmp_path: Path) -> None:
    (tmp_path / "net.onnx").write_text("no model")
    assert choose(tmp_path / "net.onnx") == choose(tmp_path / "none.onnx") == "onnx"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer"),
        (b"PK\3\4", "no model of a format that edgepack reads"),
    ],
)
def test_what_no_frontend_knows_is_refused_in_a_sentence(
    content: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / "net.bin").write_bytes(content)
    with pytest.raises(ModelError, match=message) as refused:
        choose(tmp_path / "net.bin")
    assert refused.value.hint
    with pytest.raises(ModelError, match="There is no model file"):
        choose(tmp_path / "none.bin")
    with pytest.raises(ModelError, match="is a directory"):
        choose(tmp_path)
    with pytest.raises(ConfigError, match="no frontend 'pt3'"):
        frontend_of("pt3")


def test_a_model_whose_graph_comes_first_is_recognised_and_half_of_it_is_not(tmp_path: Path) -> None:
    made = build("mlp")
    graph = onnx.ModelProto(graph=made.graph).SerializeToString()
    made.ClearField("graph")
    file = tmp_path / "net"
    file.write_bytes(graph + made.SerializeToString())
    assert recognises(file)
    file.write_bytes(graph[:-1])
    assert not recognises(file)
    file.write_bytes(made.SerializeToString()[2:])  # neither a version first nor a graph
    assert not recognises(file)
    assert not recognises(tmp_path / "none")


def test_every_frontend_has_the_functions_of_the_protocol() -> None:
    functions = {name for name in vars(base.Frontend) if not name.startswith("_")}
    assert functions == {"model_files", "summarise", "prepare", "record", "load"}
    for name in FRONTENDS.own():
        assert not {one for one in functions if not callable(getattr(frontend_of(name), one, None))}, name


def test_a_package_that_is_put_there_is_a_frontend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One file, and no list to be changed."""
    from edgepack import registry

    monkeypatch.setattr(registry, "PACKAGE", tmp_path / "edgepack")
    place = tmp_path / "edgepack" / "compiler" / "frontend"
    for name in ("onnx", "toy"):
        (place / name).mkdir(parents=True)
        (place / name / "__init__.py").write_text("")
    (place / "base.py").write_text("")
    assert FRONTENDS.own() == {name: f"edgepack.compiler.frontend.{name}" for name in ("onnx", "toy")}
    assert "toy" in FRONTENDS.names()


def test_the_models_of_the_tests_are_saved_as_what_is_recognised(tmp_path: Path) -> None:
    assert recognises(save(build("ds_cnn"), tmp_path, "net"))

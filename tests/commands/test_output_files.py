"""A file that a command writes takes the place of its like only: --force loses no model, key or weights."""

from __future__ import annotations

import os
from pathlib import Path

import onnx
import pytest

import edgepack
from edgepack.bundle.output_file import beside, check_output_file
from edgepack.errors import ConfigError
from workbench.models import save
from workbench.models.operators import CASES


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(CASES["conv_1x1"](), tmp_path, "net.onnx")


def unchanged(path: Path, content: bytes) -> bool:
    return path.read_bytes() == content and not [one for one in path.parent.iterdir() if one.name[0] == "."]


def test_a_report_replaces_a_report_only(small_bundle: edgepack.Bundle, model: Path) -> None:
    page = model.with_name("page.html")
    small_bundle.report(page)
    small_bundle.report(page, force=True)
    before = model.read_bytes()
    with pytest.raises(ConfigError, match=r"net\.onnx is not a report; force=True replaces only such"):
        small_bundle.report(model, force=True)
    assert unchanged(model, before)


def test_new_params_replace_params_only_and_no_file_of_the_bundle(
    small_bundle: edgepack.Bundle, model: Path
) -> None:
    """Before anything is packed."""
    before = model.read_bytes()
    with pytest.raises(ConfigError, match=r"net\.onnx is not a params file"):
        edgepack.update(small_bundle.path, model, model, force=True)
    assert unchanged(model, before)
    params = small_bundle.path / str(small_bundle.manifest.params.file)
    with pytest.raises(ConfigError, match=r"is a file of the bundle .*, which would differ from its sums"):
        edgepack.update(small_bundle.path, model, params, force=True)


def test_a_quantised_model_replaces_neither_its_model_nor_its_weights(tmp_path: Path) -> None:
    model = CASES["conv_1x1"]()
    path, weights = tmp_path / "net.onnx", tmp_path / "weights.onnx"
    onnx.save(model, path, save_as_external_data=True, location=weights.name, size_threshold=0)
    os.link(path, tmp_path / "second.onnx")
    before = weights.read_bytes()
    for output, why in ((path, "is the model itself"), (tmp_path / "second.onnx", "is the model itself")):
        with pytest.raises(ConfigError, match=why):
            edgepack.quantize(path, output, dynamic=True, force=True)
    with pytest.raises(ConfigError, match=r"is a file that net\.onnx names, such as that of its weights"):
        edgepack.quantize(path, weights, dynamic=True, force=True)
    assert unchanged(weights, before)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the system has no pipes with names")
def test_pipes_and_folders_are_not_replaced_or_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to-pipe").symlink_to("pipe")
    (tmp_path / "nowhere").symlink_to("missing")
    (tmp_path / "empty").touch()
    for name in ("pipe", "to-pipe", "nowhere", "/dev/null"):
        for begins in (b"", b"EPPARAMS"):
            with pytest.raises(ConfigError, match="is not a report; --force replaces only such"):
                check_output_file(tmp_path / name, force=True, what="a report", begins=begins)
    with pytest.raises(ConfigError, match="is a folder"):
        check_output_file(tmp_path, force=True, what="a report")
    check_output_file(tmp_path / "empty", force=True, what="a report", begins=b"EPPARAMS")
    check_output_file(tmp_path / "new", force=False, what="a report")


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_is_replaced_in_its_own_folder(tmp_path: Path) -> None:
    """Which may be another file system than the one that it leads to."""
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "there" / "file")
    assert beside(tmp_path / "here" / "link") == (tmp_path / "here").resolve()


def test_a_search_is_not_begun_for_a_file_that_cannot_be_written(model: Path, tmp_path: Path) -> None:
    stages: list[str] = []
    for output in (tmp_path / "missing" / "tuned.json", model / "tuned.json"):
        with pytest.raises(ConfigError, match=r"tuned\.json cannot be written: .* is no folder"):
            edgepack.tune(model, "host", output, trials=1, progress=lambda stage, _: stages.append(stage))
    assert stages == []

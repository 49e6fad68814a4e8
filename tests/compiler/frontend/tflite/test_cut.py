"""A model that is cut needs converters of nothing that is left out: the way out that the refusal names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.recorded import RECORDED
from edgepack.errors import ConfigError, ModelError
from workbench.models.tflite import Writer


def detector(folder: Path, scale: float | None) -> Path:
    """Two heads, and an operator behind them that nobody knows; LiteRT would refuse it."""
    writer, kind = Writer(), "float32" if scale is None else "int8"
    x, y, z, boxes = (
        writer.tensor([1, 6], kind, scale, name=name) for name in ("x", "scores", "raw", "boxes")
    )
    writer.operator("RELU", [x], [y], 2)
    writer.operator("ADD", [x, x], [z], 2)
    writer.operator("NON_MAX_SUPPRESSION_V4", [y, z], [boxes])
    path = folder / "model.tflite"
    path.write_bytes(writer.finished([x], [boxes]))
    return path


@pytest.mark.parametrize("scale", [None, 0.25])
@pytest.mark.parametrize("names", [["scores", "raw"], ["raw,scores"], ["raw"]])
def test_what_is_behind_the_outputs_need_not_be_known(
    names: list[str], scale: float | None, tmp_path: Path
) -> None:
    path, options = detector(tmp_path, scale), ImportOptions(outputs=names)
    with pytest.raises(ModelError, match="NON_MAX_SUPPRESSION_V4"):
        tflite.prepare(path, ImportOptions(), tmp_path / "whole")
    (folder := tmp_path / "cut").mkdir()
    tflite.prepare(path, options, folder)
    tflite.record(path, options, folder, seed=1, inputs={})
    recorded = json.loads((folder / RECORDED / "recorded.json").read_text(encoding="utf-8"))
    assert [one["name"] for one in recorded["outputs"]] == [one for text in names for one in text.split(",")]
    assert "LiteRT" in recorded["reference"]


def test_a_name_that_is_not_there_is_said_of_the_name(tmp_path: Path) -> None:
    writer = Writer()
    x, y = writer.tensor([1, 6], "float32", name="x"), writer.tensor([1, 6], "float32", name="y")
    writer.operator("RELU", [x], [y])
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [y]))
    with pytest.raises(ConfigError, match="nowhere"):
        tflite.prepare(path, ImportOptions(outputs=["nowhere"]), tmp_path)

"""Files that are damaged, or hold what cannot be compiled, are refused in one sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.errors import ConfigError, EdgepackError, ModelError
from workbench.models.tflite import Writer, drawn
from workbench.models.tflite.control_flow import counting, long_branches


def written(content: bytes, folder: Path) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def test_what_is_no_model_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="does not begin with the schema's identifier TFL3"):
        read_model(written(b"\0" * 64, tmp_path))
    with pytest.raises(ModelError, match="cannot be read"):
        read_model(tmp_path / "none.tflite")
    content = drawn("CONV_2D", 1)
    with pytest.raises(ModelError, match="lies outside of it"):
        read_model(written(content[: len(content) // 2], tmp_path))


def damaged(content: bytes, random: np.random.Generator) -> bytes:
    """Some bytes of a file are others, or it ends before its end."""
    made = bytearray(content)
    for _ in range(int(random.integers(1, 6))):
        made[int(random.integers(8, len(made)))] = int(
            random.choice([0, 1, 0x7F, 0x80, 0xFF, random.integers(256)])
        )
    return bytes(made[: int(random.integers(16, len(made)))] if not random.integers(5) else made)


def taken_or_refused(seeds: range, folder: Path) -> int:
    """How many damaged files are refused; any other error than edgepack's fails."""
    contents = [drawn(kind, 3) for kind in ("CONV_2D", "ADD", "SOFTMAX", "STRIDED_SLICE", "PAD", "LOGISTIC")]
    contents += [long_branches("int8"), counting(3, "float32")]
    refused = 0
    for seed in seeds:
        random = np.random.default_rng(seed)
        path = written(damaged(contents[seed % len(contents)], random), folder)
        try:
            tflite.summarise(path)
            convert(read_model(path))
        except EdgepackError:
            refused += 1
    return refused


def test_damaged_files_are_refused_or_taken(tmp_path: Path) -> None:
    assert 40 < taken_or_refused(range(400), tmp_path) < 400


@pytest.mark.slow
def test_twenty_thousand_damaged_files_are_refused_or_taken(tmp_path: Path) -> None:
    taken_or_refused(range(1000, 21000), tmp_path)


def test_all_operators_that_cannot_be_compiled_are_named_at_once(tmp_path: Path) -> None:
    writer = Writer()
    x, y, z = (writer.tensor([2, 3], "float32", name=name) for name in ("x", "y", "z"))
    writer.operator("UNIQUE", [x], [y])
    writer.operator("RFFT2D", [y], [z], table="Rfft2d")
    path = written(writer.finished([x], [z]), tmp_path)
    with pytest.raises(ModelError, match=r"2 operators.*UNIQUE: no converter.*\(y\); RFFT2D.*\(z\)"):
        convert(read_model(path))
    assert tflite.summarise(path).unsupported == {"UNIQUE": ["y"], "RFFT2D": ["z"]}


def test_other_sizes_are_what_the_interpreter_makes_of_them(tmp_path: Path) -> None:
    writer = Writer()
    x = writer.tensor([1, 4, 4, 2], "int8", 0.5, 3, name="x")
    y = writer.tensor([1, 2, 2, 2], "int8", 0.5, 3, name="y")
    writer.operator(
        "MAX_POOL_2D", [x], [y], 2, "Pool2D", padding=1, strideH=2, strideW=2, filterHeight=2, filterWidth=2
    )
    path = written(writer.finished([x], [y]), tmp_path)
    tflite.prepare(path, ImportOptions(shapes={"x": (1, 8, 6, 2)}, batch=3), tmp_path / "made")
    signature = tflite.load(tmp_path / "made").signature
    assert signature.inputs[0].shape == (3, 8, 6, 2)
    assert signature.outputs[0].shape == (3, 4, 3, 2)
    with pytest.raises(ConfigError, match="no input 'z'"):
        tflite.prepare(path, ImportOptions(shapes={"z": (1, 8)}), tmp_path / "other")
    with pytest.raises(ConfigError, match="2 dimensions given, the input has 4"):
        tflite.prepare(path, ImportOptions(shapes={"x": (1, 8)}), tmp_path / "other")

"""LiteRT is given a file that was written of what was read, with nothing that nobody looked at."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.tflite import interpreter, resized
from edgepack.compiler.frontend.tflite.checked_copy import checked_copy
from edgepack.compiler.frontend.tflite.flatbuffer import read_tables
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.compiler.frontend.tflite.schema import schema
from edgepack.compiler.reporter import Reporter, hearing
from edgepack.errors import ModelError
from workbench.models.tflite import Writer, drawn


def written(content: bytes, folder: Path) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def _with_more(writer: Writer) -> None:
    """Metadata, a text that no operator reads, options of a custom operator."""
    metadata = schema().MetadataT()
    metadata.name, metadata.buffer = b"secret", 1
    writer.model.metadata = [metadata]
    text = writer.tensor([1], "float32", data=np.frombuffer(b"\xff" * 4, np.float32), name="text")
    writer.graph.tensors[text].type = schema().TensorType.STRING
    writer.graph.operators[0].customOptions = list(b"options")


def _sum(change: Any = lambda _: None) -> bytes:
    writer = Writer()
    x, y = writer.tensor([2, 3], "float32", name="x"), writer.tensor([2, 3], "float32", name="y")
    w = writer.tensor([2, 3], "float32", data=np.arange(6, dtype=np.float32).reshape(2, 3), name="w")
    writer.operator("ADD", [x, w], [y])
    writer.signature({"given": x}, {"made": y})
    change(writer)
    return writer.finished([x], [y])


def test_what_litert_need_not_know_is_not_in_it(tmp_path: Path) -> None:
    made = read_tables(checked_copy(read_model(written(_sum(_with_more), tmp_path))))
    assert made.metadata is None and made.signatureDefs is None
    assert made.subgraphs[0].operators[0].customOptions is None
    assert [tensor.buffer for tensor in made.subgraphs[0].tensors] == [0, 0, 1, 0]
    assert made.buffers[0].data is None
    np.testing.assert_array_equal(made.buffers[1].data.view(np.float32), np.arange(6))


def test_a_copy_of_a_copy_is_the_same(tmp_path: Path) -> None:
    """Its numbers lie behind the tables, as in files above 2 GB."""
    for content in (_sum(), drawn("DENSIFY", 2), drawn("CONV_2D", 1)):
        once = checked_copy(read_model(written(content, tmp_path)))
        assert checked_copy(read_model(written(once, tmp_path))) == once


@pytest.mark.parametrize("exact", [True, False])
def test_litert_never_sees_the_file(exact: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where other sizes are asked for."""
    given, opened = list[bytes](), interpreter._opened

    def noted(model: bytes, shapes: Any) -> Any:
        given.append(model)
        return opened(model, shapes)

    monkeypatch.setattr(interpreter, "_opened", noted)
    writer = Writer()
    kind, scale = ("int8", 0.5) if exact else ("float32", None)
    x, y = (writer.tensor([1, 4, 4, 2], kind, scale, name=name) for name in "xy")
    writer.operator(
        "MAX_POOL_2D", [x], [y], 1 + exact, "Pool2D", strideH=1, strideW=1, filterHeight=1, filterWidth=1
    )
    path = written(writer.finished([x], [y]), tmp_path)
    options = ImportOptions(shapes={"x": (1, 8, 8, 2)})
    tflite.prepare(path, options, tmp_path / "made")
    tflite.record(path, options, tmp_path / "made", seed=1, inputs={})
    assert len(given) == 2
    assert set(given) == {checked_copy(read_model(path))}


def test_litert_is_asked_for_no_sizes_of_operators_that_edgepack_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        pytest.fail("the interpreter was started")

    monkeypatch.setattr(resized, "shapes_with", fail)
    writer = Writer()
    x, y = (writer.tensor([2, 3], "float32", name=name) for name in "xy")
    writer.operator("UNIQUE", [x], [y])
    path = written(writer.finished([x], [y]), tmp_path)
    with pytest.raises(ModelError, match="UNIQUE: no converter"):
        tflite.prepare(path, ImportOptions(shapes={"x": (4, 3)}), tmp_path / "made")


def test_whoever_listens_knows_when_litert_runs(tmp_path: Path) -> None:
    """A crash in between is the model's (``pipeline/worker_process.py``)."""

    class Heard(Reporter):
        def __init__(self) -> None:
            self.said: list[str] = []

        def running(self, name: str) -> None:
            self.said.append(name)

    heard = Heard()
    with hearing(heard):
        made = interpreter.Interpreter(_sum(), {0: np.ones((2, 3), np.float32)})
        made.run({0: np.ones((2, 3), np.float32)})
    assert heard.said == ["LiteRT's interpreter", ""] * 2


@pytest.mark.parametrize(("kind", "scale"), [("int8", 0.5), ("float32", None)])
def test_results_of_another_shape_than_litert_has_are_refused(
    kind: str, scale: float | None, tmp_path: Path
) -> None:
    """A sparse constant that is an output has as many elements there as are stored."""
    writer = Writer()
    stored = writer.tensor([4, 3], kind, scale, data=np.ones(6, kind), name="stored")
    writer.sparse(stored, [1, 3], 3)
    x, y = (writer.tensor([4, 3], kind, scale, name=name) for name in "xy")
    writer.operator("ADD", [x, x], [y], 2)
    path = written(writer.finished([x], [y, stored]), tmp_path)
    tflite.prepare(path, ImportOptions(), tmp_path / "made")
    with pytest.raises(ModelError, match=r"'stored' .*\[6\]"):
        tflite.record(path, ImportOptions(), tmp_path / "made", seed=1, inputs={})

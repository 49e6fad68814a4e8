"""The command lines of a refused model's cuts: they say what the user said, and can be followed."""

from __future__ import annotations

import shlex
from pathlib import Path

import onnx
import pytest

from edgepack.cli.main import main
from edgepack.cli.pack import command
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import prepare
from edgepack.errors import ModelError
from edgepack.options import PackOptions
from edgepack.pipeline.suggested_cuts import suggesting_cuts
from workbench.models.builder import Graph


def parsed(line: str) -> dict[str, object]:
    """What ``edgepack pack`` reads from a command line."""
    words = shlex.split(line)
    assert words[:2] == ["edgepack", "pack"]
    return command.make_context("pack", words[2:]).params


def test_the_commands_keep_sizes_device_and_odd_names() -> None:
    part = {"part": "before", "inputs": [], "outputs": ["a, b", "it's"], "nodes": 2, "of": 7}
    error = ModelError("No.", hint="Ask.", cuts=[part])
    options = PackOptions(
        shapes={"x=1": (2, 3), "s": ()}, dims={"n": 2}, cut_inputs=["i", "j"], custom=Path("my ops.yaml")
    )
    with pytest.raises(ModelError), suggesting_cuts(Path("my models/net.onnx"), "cortex-m4", options):
        raise error
    first, said, line = error.hint.splitlines()
    assert (first, said) == ("Ask.", "  What stands before it (2 of 7 nodes) can be compiled:")
    found = parsed(line)
    assert found["model"] == Path("my models/net.onnx")
    assert found["device"] == "cortex-m4"
    assert found["shapes"] == {"x=1": (2, 3), "s": ()}
    assert found["dims"] == {"n": 2}
    assert found["custom"] == Path("my ops.yaml")
    assert found["cut_inputs"] == ("i,j",)
    assert found["cut_outputs"] == ("a, b", "it's")


def test_a_refused_pack_prints_commands_that_work(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    g = Graph("detector")
    x = g.input("x", ["n", 16])
    boxes = g.op("Reshape", g.op("Gemm", x, g.weight(16, 32), name="boxes"), g.const([1, 8, 4]), name="b2")
    scores = g.op("Reshape", g.op("Gemm", x, g.weight(16, 8), name="scores"), g.const([1, 1, 8]), name="s2")
    g.output(g.op("Nms", boxes, scores, name="nms"), "int64")
    g.nodes[-1].domain = "my.ops"
    model = tmp_path / "detector.onnx"
    onnx.save(g.model(), str(model))
    assert main(["-q", "pack", str(model), "--dim", "n=1", "--no-cache", "-o", str(tmp_path / "out")]) == 3
    lines = [line for line in capsys.readouterr().err.splitlines() if "edgepack pack" in line]
    assert len(lines) == 1, "behind it stands nothing"
    found = parsed(lines[0])
    assert found["cut_outputs"] == ("b2,s2",)
    options = ImportOptions(
        shapes=found["shapes"],  # type: ignore[arg-type]
        dims=found["dims"],  # type: ignore[arg-type]
        inputs=found["cut_inputs"],  # type: ignore[arg-type]
        outputs=found["cut_outputs"],  # type: ignore[arg-type]
    )
    prepare(Path(str(found["model"])), options, tmp_path)
    normal = onnx.load(str(tmp_path / "model.onnx"), load_external_data=False)
    assert [value.name for value in normal.graph.output] == ["b2", "s2"]

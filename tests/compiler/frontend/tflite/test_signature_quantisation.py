"""What the integers of inputs and outputs mean is what LiteRT's interpreter says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from ai_edge_litert.interpreter import Interpreter

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.plan.types import LinearQuantisation, Signature
from workbench.models.tflite import Writer, drawn

FOLDER = Path(os.environ.get("EDGEPACK_REAL_MODELS", Path(__file__).parents[5] / "shared" / "models"))


def imported(content: bytes, folder: Path, options: ImportOptions | None = None) -> Signature:
    path = folder / "model.tflite"
    path.write_bytes(content)
    tflite.prepare(path, options or ImportOptions(), folder / "made")
    return tflite.load(folder / "made").signature


def said(details: list[dict[str, Any]]) -> list[LinearQuantisation | None]:
    """By the interpreter, of each tensor; it has a scale of 0 where there is none."""
    pairs = [(one["quantization"], one["dtype"].__name__) for one in details]
    return [
        LinearQuantisation(float(scale), int(zero)) if scale and "int" in dtype else None
        for (scale, zero), dtype in pairs
    ]


def compared(content: bytes, folder: Path) -> int:
    """How many tensors have a scale."""
    interpreter = Interpreter(model_content=content)
    signature = imported(content, folder)
    given, made = said(interpreter.get_input_details()), said(interpreter.get_output_details())
    assert [one.quantisation for one in signature.inputs][: len(given)] == given
    assert [one.quantisation for one in signature.outputs][: len(made)] == made
    return sum(one is not None for one in (*given, *made))


def test_it_is_the_interpreters_of_drawn_models(tmp_path: Path) -> None:
    known = 0
    for seed in range(4):
        for kind in ("CONV_2D", "QUANTIZE", "DEQUANTIZE", "ADD", "ARG_MAX", "RESHAPE"):
            (folder := tmp_path / f"{kind}{seed}").mkdir()
            known += compared(drawn(kind, seed), folder)
    assert known > 20


@pytest.mark.parametrize("name", ["mlperf_tiny_kws_int8", "micro_speech_int8", "mlperf_tiny_kws_float32"])
def test_it_is_the_interpreters_of_trained_models(name: str, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.tflite"
    if not path.exists():
        pytest.skip(f"there is no {path} (EDGEPACK_REAL_MODELS)")
    assert compared(path.read_bytes(), tmp_path) == (0 if "float" in name else 2)


def test_a_tensor_that_becomes_an_output_has_its_own_and_one_of_many_scales_none(tmp_path: Path) -> None:
    writer = Writer()
    x = writer.tensor([1, 4], scale=0.25, zero=3, name="x")
    inner = writer.tensor([1, 4], scale=0.25, zero=3, name="inner")
    last = writer.tensor([4, 1], scale=0.25, zero=3, name="last")
    many = writer.tensor([2], scale=[0.5, 1], data=np.int8([1, 2]), name="many")
    writer.operator("RESHAPE", [x], [inner], newShape=[1, 4])
    writer.operator("RESHAPE", [inner], [last], newShape=[4, 1])
    content = writer.finished([x], [last, many])
    known = LinearQuantisation(0.25, 3)
    assert [one.quantisation for one in imported(content, tmp_path).outputs] == [known, None]
    (cut := tmp_path / "cut").mkdir()
    (output,) = imported(content, cut, ImportOptions(outputs=["inner"])).outputs
    assert output.quantisation == known


def test_a_state_has_that_of_its_variable(tmp_path: Path) -> None:
    for seed in range(20):
        content = drawn("SVDF", seed)
        (folder := tmp_path / str(seed)).mkdir()
        details = {one["name"]: one for one in Interpreter(model_content=content).get_tensor_details()}
        signature = imported(content, folder)
        state, returned = signature.inputs[-1], signature.outputs[-1]
        if state.dtype == "int16":
            assert [state.quantisation] == said([details[state.name]]) == [returned.quantisation]
            return
    raise AssertionError("no SVDF of integers was drawn")

"""Each operator of TFLite is what LiteRT's reference kernels compute: integers bit for bit.

The sweep of 30 models of each operator: ``pytest -m slow tests/compiler/frontend/tflite/test_operators.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.tflite.convert import convert, converters
from edgepack.compiler.frontend.tflite.model_file import read_model
from tests.support.tflite import Case, assert_same
from workbench.compiled import Compiled, target_with
from workbench.models.tflite import DRAWN, Writer, drawn

#: On which operators are compiled.
REGISTERS = ("scalar", "128x16", "512x32")


def converted_as(case: Case) -> dict[str, object]:
    """What ONNX's evaluator computes of the converted model."""
    names = [spec.name for spec in case.converted.outputs]
    return dict(zip(names, evaluate(case.converted.model, case.inputs), strict=True))


def test_every_converter_has_a_drawn_model() -> None:
    assert set(DRAWN) == set(converters())


@pytest.mark.parametrize("kind", sorted(DRAWN))
def test_a_converted_operator_is_the_interpreters(kind: str, tmp_path: Path) -> None:
    for seed in range(3):
        case = Case(drawn(kind, seed), tmp_path, seed)
        assert_same(converted_as(case), case.expected, f"{kind} {seed}")


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(DRAWN))
def test_thirty_converted_operators_are_the_interpreters(kind: str, tmp_path: Path) -> None:
    for seed in range(100, 130):
        case = Case(drawn(kind, seed), tmp_path, seed)
        assert_same(converted_as(case), case.expected, f"{kind} {seed}")


def compiled(kinds: Iterable[str], seeds: range, registers: str, folder: Path) -> None:
    cases = {f"{kind} {seed}": Case(drawn(kind, seed), folder, seed) for kind in kinds for seed in seeds}
    models = {name: case.converted.model for name, case in cases.items()}
    made = Compiled(models, folder, target_with(registers))
    for name, case in cases.items():
        assert_same(made.run(name, case.inputs, poison=0xFF), case.expected, f"{name} on {registers}")


@pytest.mark.parametrize("registers", REGISTERS)
def test_compiled_operators_are_the_interpreters(registers: str, tmp_path: Path) -> None:
    """Each operator on one kind of registers, in turn."""
    compiled(sorted(DRAWN)[REGISTERS.index(registers) :: len(REGISTERS)], range(2), registers, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("registers", REGISTERS)
@pytest.mark.parametrize("kind", sorted(DRAWN))
def test_eight_compiled_operators_are_the_interpreters(kind: str, registers: str, tmp_path: Path) -> None:
    compiled([kind], range(100, 108), registers, tmp_path)


def test_the_page_lists_the_operators() -> None:
    page = (Path(__file__).parents[4] / "docs" / "tflite.md").read_text(encoding="utf-8")
    _, _, listed = page.partition("<!-- operators: compared with the converters by a test -->")
    names = listed.split(", and the variables")[0].replace("\n", " ").split(",")
    assert [name.strip() for name in names] == sorted(converters())


@pytest.mark.parametrize("count", [511, 600, 5000])
def test_softmax_of_many_equal_scores(count: int, tmp_path: Path) -> None:
    """From 512 on the interpreter's kernel ends its process; here rows are what more bits would give."""
    writer = Writer()
    x, y = writer.tensor([1, count], "int8", 0.1), writer.tensor([1, count], "int8", 1 / 256, -128)
    writer.operator("SOFTMAX", [x], [y], 2, beta=1.0)
    path = tmp_path / "softmax.tflite"
    path.write_bytes(writer.finished([x], [y]))
    (found,) = evaluate(convert(read_model(path)).model, {"t0": np.zeros((1, count), np.int8)})
    assert abs(int(found.min()) + 128 - 256 / count) <= 0.75
    assert found.min() == found.max()

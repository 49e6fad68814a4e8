"""Each operator of TFLite is what LiteRT's reference kernels compute: integers bit for bit.

The sweep of 30 models of each operator: ``pytest -m slow tests/compiler/frontend/tflite/test_operators.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.tflite.convert import convert, converters
from edgepack.compiler.frontend.tflite.flatbuffer import read_tables
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.errors import ModelError
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


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
def test_quotients_of_integers_are_rounded_down(dtype: str, tmp_path: Path) -> None:
    """Also where what is left of a division has no room beside the dividend; int32 was an internal error."""
    writer = Writer()
    x, y, z = (writer.tensor([1, 12], dtype, name=name) for name in "xyz")
    writer.operator("FLOOR_DIV", [x, y], [z], 2)
    case = Case(writer.finished([x, y], [z]), tmp_path)
    least, most = np.iinfo(dtype).min, np.iinfo(dtype).max
    values = (
        [least, least, least, most, most, 7, -7, 7, -7, 0, 6, -6],
        [3, -3, 7, 2, -2, 2, 2, -2, -2, 5, 3, 3],
    )
    inputs = {name: np.array([one], dtype) for name, one in zip("xy", values, strict=True)}
    wanted = {"z": inputs["x"] // inputs["y"]}
    assert_same(dict(zip("z", evaluate(case.converted.model, inputs), strict=True)), wanted, dtype)
    made = Compiled({"model": case.converted.model}, tmp_path, target_with("128x16"))
    assert_same(made.run("model", inputs, poison=0xFF), wanted, dtype)


#: Of an operator, its operands' type, and what is said of it: LiteRT's kernel reads something else there
#: than what the file says, or ends the process.
MISREAD = {
    "bytes without a scale": ("ADD", "int8", "operands of int8 that have no scale"),
    "unsigned bytes without scale": ("SUB", "uint8", "operands of uint8 that have no scale"),
    "words without a scale": ("SUB", "int16", "operands of int16 that have no scale"),
    "a softmax of bytes without a scale": ("SOFTMAX", "uint8", "operands of uint8 that have no scale"),
    "a difference of bytes without a scale": (
        "SQUARED_DIFFERENCE",
        "int8",
        "operands of int8 that have no scale",
    ),
}


@pytest.mark.parametrize("what", MISREAD)
def test_bytes_that_litert_takes_for_others_are_refused(what: str, tmp_path: Path) -> None:
    kind, dtype, said = MISREAD[what]
    writer = Writer()
    x, y = (writer.tensor([2, 3], dtype, name=name) for name in "xy")
    writer.operator(kind, [x] if kind == "SOFTMAX" else [x, x], [y])
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [y]))
    with pytest.raises(ModelError, match=said):
        convert(read_model(path))


def test_a_bias_has_the_type_that_the_kernel_reads(tmp_path: Path) -> None:
    """LiteRT's kernel for bytes takes the 8 bytes of each for two numbers."""
    writer = Writer()
    x = writer.tensor([1, 4], "int8", 0.5, 0, name="x")
    w = writer.tensor([3, 4], "int8", 0.5, 0, data=np.ones((3, 4), np.int8))
    bias = writer.tensor([3], "int64", 0.25, 0, data=np.arange(3))
    y = writer.tensor([1, 3], "int8", 0.5, 0, name="y")
    writer.operator("FULLY_CONNECTED", [x, w, bias], [y], 1)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [y]))
    with pytest.raises(ModelError, match="a bias of int64"):
        convert(read_model(path))


def test_parts_that_are_empty_or_do_not_fill_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    for sizes in ([1, 1, -1, 3], [1, 1, 2, 3], [0, 5, 0, 0]):
        writer = Writer()
        x = writer.tensor([2, 5], "float32", name="x")
        given = writer.tensor([4], "int32", data=np.array(sizes, np.int32))
        axis = writer.tensor([], "int32", data=np.int32(1))
        made = [writer.tensor([2, 1], "float32") for _ in sizes]
        writer.operator("SPLIT_V", [x, given, axis], made, 2, numSplits=4)
        path.write_bytes(writer.finished([x], made))
        with pytest.raises(ModelError, match="SPLIT_V: parts of"):
            convert(read_model(path))


def test_a_variable_of_texts_is_refused(tmp_path: Path) -> None:
    writer = Writer()
    x, y = writer.tensor([1, 2], "float32", name="x"), writer.tensor([1, 2], "float32", name="y")
    state = writer.tensor([1, 2], "string", variable=True, name="state")
    writer.operator("SVDF", [x, x, x, -1, state], [y], 1)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [y]))
    with pytest.raises(ModelError, match="variable 'state' is of string"):
        convert(read_model(path))


def test_cells_without_an_activation_function_are_refused(tmp_path: Path) -> None:
    """LiteRT's kernel then multiplies by what another gate left in its memory."""
    model = read_tables(drawn("UNIDIRECTIONAL_SEQUENCE_LSTM", 1))
    model.subgraphs[0].operators[0].builtinOptions.fusedActivationFunction = 0
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    path = tmp_path / "model.tflite"
    path.write_bytes(bytes(builder.Output()))
    with pytest.raises(ModelError, match="cells without an activation function"):
        convert(read_model(path))

"""Custom operators in the frontend: shapes from their declaration, the model around them normalised, and
reference outputs from the user's Python."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import frontend
from edgepack.compiler.graph.lower import lower
from edgepack.compiler.planner.build import build_plan
from edgepack.errors import ConfigError, ModelError
from edgepack.plan.custom import CFunction, CustomOperator, CustomOutput, ExpressionError, evaluate
from workbench.executor import host_target
from workbench.models.builder import Graph

REFERENCE = """
import numpy as np
def blend(x, y, *, alpha):
    return np.float32(alpha) * x + y
def rows(x):
    return x.sum(axis=1), x[:, ::2].copy()
def wrong(x, y, *, alpha):
    return x[:1]
"""
BLEND = CustomOperator("my.ops", "Blend", "blend", "blend.c", arguments=("inputs[0][0]", "alpha"))
ROWS = CustomOperator(
    *("my.ops", "Rows", "rows", "blend.c"),
    outputs=(CustomOutput(("inputs[0][0]",)), CustomOutput(("inputs[0][0]", "inputs[0][1] // 2"))),
)


@pytest.fixture
def operators(tmp_path: Path) -> list[CustomOperator]:
    path = tmp_path / "reference.py"
    path.write_text(REFERENCE, encoding="utf-8")
    return [replace(one, reference=str(path), function=one.symbol) for one in (BLEND, ROWS)]


def model() -> onnx.ModelProto:
    """One reads an input and a constant, the next one its result and what was computed from that; a result is
    an output, and the shape of one is read."""
    g = Graph("net", seed=3)
    x = g.input("x", ["n", 8])
    ms = {"domain": "my.ops"}
    first = g.op("Blend", x, g.weight(4, 8), alpha=0.5, **ms, name="first")
    again = g.op("Blend", first, g.op("Relu", g.op("Neg", first)), alpha=2.0, **ms, name="again")
    sums, halves = g.ops("Rows", again, outputs=2, **ms)
    flat = g.op("Reshape", g.op("Sqrt", g.op("Abs", halves)), g.op("Shape", halves))
    g.op("Add", flat, halves, name="y")
    g.output("y")
    g.output(sums)
    return g.model()


def prepared(folder: Path, operators: list[CustomOperator]) -> tuple[Path, ImportOptions]:
    path = folder / "net.onnx"
    onnx.save(model(), str(path))
    options = ImportOptions(dims={"n": 4}, custom=operators)
    frontend.prepare(path, options, folder)
    return path, options


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("inputs[1]", (5, 6)),
        ("inputs[0][0] * 2 - 1", 3),
        ("max(inputs[0][1], -4) // axis", 1),
        ("(inputs[1][0] + 0.5) / 2 % 3", 2.75),
    ],
)
def test_an_expression_has_the_value_that_it_reads_as(text: str, value: object) -> None:
    assert evaluate(text, [(2, 3), (5, 6)], {"axis": 2}) == value


@pytest.mark.parametrize(
    "text", ["inputs[2]", "beta", "__import__('os')", "inputs[0].x", "1 +", "[1]", "1 // 0", "inputs + 1"]
)
def test_what_is_no_expression_is_said(text: str) -> None:
    with pytest.raises(ExpressionError):
        evaluate(text, [(2, 3)], {"axis": 2})


def test_steps_call_the_functions_between_kernels(tmp_path: Path, operators: list[CustomOperator]) -> None:
    prepared(tmp_path, operators)
    imported = frontend.load(tmp_path)
    plan = build_plan(
        lower(imported.module), imported.signature, host_target(), name="m", symbol_prefix="m_"
    ).plan
    functions = [plan.kernel(step.kernel).c_function for step in plan.steps]
    assert [f for f in functions if f is not None] == [
        CFunction("blend", "blend.c", ("float32", "float32"), ("float32",), (4, 0.5)),
        CFunction("blend", "blend.c", ("float32", "float32"), ("float32",), (4, 2.0)),
        CFunction("rows", "blend.c", ("float32",), ("float32", "float32")),
    ]
    assert [spec.shape for spec in plan.outputs] == [(4, 4), (4,)]


def test_reference_outputs_come_from_the_users_python(
    tmp_path: Path, operators: list[CustomOperator]
) -> None:
    whole = model()
    path, sizes = prepared(tmp_path, operators)
    frontend.record(path, sizes, tmp_path, seed=1, inputs={})
    folder = tmp_path / "recorded"
    x = np.fromfile(folder / "input_0.bin", "f4").reshape(4, 8)
    weight = onnx.numpy_helper.to_array(whole.graph.initializer[0])
    first = np.float32(0.5) * x + weight
    again = 2 * first + np.maximum(-first, 0)
    expected = np.sqrt(np.abs(again[:, ::2])) + again[:, ::2]
    np.testing.assert_allclose(np.fromfile(folder / "output_0.bin", "f4").reshape(4, 4), expected, rtol=1e-6)
    np.testing.assert_allclose(np.fromfile(folder / "output_1.bin", "f4"), again.sum(axis=1), rtol=1e-6)
    assert "reference.py" in (folder / "recorded.json").read_text()


def test_without_a_reference_there_is_nothing_to_compare_with(
    tmp_path: Path, operators: list[CustomOperator]
) -> None:
    operators[1] = replace(operators[1], reference="")
    path, sizes = prepared(tmp_path, operators)
    with pytest.raises(ConfigError, match="nothing to compare rows with: Rows has no reference") as caught:
        frontend.record(path, sizes, tmp_path, seed=1, inputs={})
    assert "reference: file.py:function" in caught.value.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"outputs": (CustomOutput(("inputs[0][7]",)),)}, "node Blend_0: its output 'first': 'inputs"),
        ({"outputs": (CustomOutput(("inputs[0][0] - 4",)),)}, r"would have the shape \[0\]"),
        ({"arguments": ("beta",)}, "an argument: 'beta': the node has no attribute 'beta'"),
        ({"arguments": ("inputs[0]",)}, "no 32-bit number"),
    ],
)
def test_a_declaration_that_does_not_fit_names_the_node(
    change: dict[str, Any], message: str, tmp_path: Path, operators: list[CustomOperator]
) -> None:
    with pytest.raises(ModelError, match=message):
        prepared(tmp_path, [replace(operators[0], **change), operators[1]])


def test_a_reference_of_another_shape_is_refused(tmp_path: Path, operators: list[CustomOperator]) -> None:
    operators[0] = replace(operators[0], function="wrong")
    path, sizes = prepared(tmp_path, operators)
    message = r"gives float32 \[1, 8\] for 'first', float32 \[4, 8\] is declared"
    with pytest.raises(ModelError, match=message):
        frontend.record(path, sizes, tmp_path, seed=1, inputs={})


def test_outputs_may_be_given_instead(tmp_path: Path, operators: list[CustomOperator]) -> None:
    without = [replace(one, reference="") for one in operators]
    path, sizes = prepared(tmp_path, without)
    files = {name: tmp_path / f"{name}.npy" for name in ("x", "y", "Rows_4")}
    rng = np.random.default_rng(2)
    shapes = {"x": (4, 8), "y": (4, 4), "Rows_4": (4,)}
    arrays = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
    for name, array in arrays.items():
        np.save(files[name], array)
    inputs, outputs = {"x": files["x"]}, {name: files[name] for name in ("Rows_4", "y")}
    frontend.record(path, replace(sizes, expected=outputs), tmp_path, seed=1, inputs=inputs)
    recorded = json.loads((tmp_path / "recorded" / "recorded.json").read_text())
    assert [output["name"] for output in recorded["outputs"]] == ["y", "Rows_4"]
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "recorded" / "output_0.bin", "f4").reshape(4, 4), arrays["y"]
    )
    for changed, given, message in (
        ({"y": files["y"]}, inputs, "the output 'Rows_4' is not given"),
        (outputs, {}, "there is no --input for 'x'"),
        ({**outputs, "z": files["y"]}, inputs, "the model has no output 'z'"),
        ({**outputs, "y": files["x"]}, inputs, r"is float32 \[4, 8\], the model gives float32 \[4, 4\]"),
    ):
        with pytest.raises(ConfigError, match=message):
            frontend.record(path, replace(sizes, expected=changed), tmp_path, seed=1, inputs=given)

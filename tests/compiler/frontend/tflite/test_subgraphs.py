"""Branches are computed and chosen between, signatures name inputs and outputs, states are kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import edgepack

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.interpreter import Interpreter
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.errors import ModelError
from tests.support.tflite import Case, assert_same
from workbench.models.tflite import Writer, drawn
from workbench.models.tflite.control_flow import counting, long_branches


def branching(then: int = 1) -> bytes:
    """ABS or SQUARE of x, where the sum is positive or not."""
    writer = Writer()
    x, y = writer.tensor([3], "float32", name="x"), writer.tensor([3], "float32", name="y")
    axis = writer.tensor([], "int32", data=np.int32(0))
    zero = writer.tensor([], "float32", data=np.float32(0))
    total, positive = writer.tensor([], "float32"), writer.tensor([], "bool")
    writer.operator("SUM", [x, axis], [total], 1, "Reducer")
    writer.operator("GREATER", [total, zero], [positive], 1)
    writer.operator("IF", [positive, x], [y], 1, thenSubgraphIndex=then, elseSubgraphIndex=2)
    writer.signature({"signal": x}, {"magnitude": y})
    for kind in ("ABS", "SQUARE"):
        writer.next_subgraph([0], [1])
        a, b = writer.tensor([3], "float32", name="x"), writer.tensor([3], "float32", name="y")
        writer.operator(kind, [a], [b], 1)
    return writer.finished([0], [1])


def written(content: bytes, folder: Path) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("signal", [[1.5, -1, 2], [1.5, -3, 1]])
def test_a_branch_is_taken_as_the_condition_says(signal: list[float], tmp_path: Path) -> None:
    content = branching()
    converted = convert(read_model(written(content, tmp_path)))
    x = np.asarray(signal, np.float32)
    interpreter = Interpreter(content, {0: x})
    interpreter.run({0: x})
    np.testing.assert_array_equal(evaluate(converted.model, {"signal": x})[0], interpreter.tensor(1))


def test_a_branch_that_calls_its_caller_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="IF calls a subgraph 7 that is not there"):
        convert(read_model(written(branching(then=7), tmp_path)))


@pytest.mark.parametrize("kind", ["IF", "WHILE"])
def test_control_flow_that_changes_variables_is_refused(kind: str, tmp_path: Path) -> None:
    """Both branches would assign."""
    writer = Writer()
    condition, x = writer.tensor([], "bool", name="c"), writer.tensor([3], "float32", name="x")
    results = [writer.tensor([], "bool")] * (kind == "WHILE") + [writer.tensor([3], "float32")]
    given = {"thenSubgraphIndex": 1, "elseSubgraphIndex": 1}
    if kind == "WHILE":
        given = {"condSubgraphIndex": 2, "bodySubgraphIndex": 1}
    writer.operator(kind, [condition, x], results, 1, **given)
    writer.next_subgraph([condition, x], results)
    taken = [writer.tensor([], "bool")] * (kind == "WHILE") + [writer.tensor([3], "float32")]
    handle = writer.tensor([], "resource")
    writer.operator("VAR_HANDLE", [], [handle], 1, sharedName=b"kept")
    writer.operator("ASSIGN_VARIABLE", [handle, taken[-1]], [], 1)
    writer.next_subgraph(taken, taken)
    both = [writer.tensor([], "bool"), writer.tensor([3], "float32")]
    with pytest.raises(ModelError, match=f"{kind} of the model uses variables that are kept between runs"):
        convert(read_model(written(writer.finished(both, both[:1]), tmp_path)))


CONTROL_FLOW = {
    **{f"if, {dtype}": long_branches(dtype) for dtype in ("float32", "int8")},
    **{f"while, {dtype}": counting(6, dtype) for dtype in ("float32", "int8")},
    "while, no trip": counting(0, "float32"),
}


@pytest.mark.parametrize("name", CONTROL_FLOW)
def test_control_flow_goes_where_the_interpreter_goes(name: str, tmp_path: Path) -> None:
    """Float32 within 1e-5 of the largest result, as sums are in another order; int8 exactly."""
    content = CONTROL_FLOW[name]
    bundle = edgepack.pack(written(content, tmp_path), "host", tmp_path / "bundle", max_trips=20)
    assert {kernel.rule for kernel in bundle.manifest.kernels} >= {"branch"}
    dtype = name.rpartition(" ")[2] if "8" in name else "float32"
    graph, different = read_model(tmp_path / "model.tflite").main, set()
    with edgepack.load(bundle) as session:
        for seed in range(12):
            shape = session.inputs[0].shape
            x = np.random.default_rng(seed).uniform(-100, 6.0 * 2**seed % 100, shape).astype(dtype)
            interpreter = Interpreter(content, {graph.inputs[0]: x})
            interpreter.run({graph.inputs[0]: x})
            found = session.run({session.inputs[0].name: x})
            for index, output in zip(graph.outputs, session.outputs, strict=True):
                expected = interpreter.tensor(index)
                different.add(expected.tobytes())
                largest = np.abs(expected).max(initial=0) if dtype == "float32" else 0
                np.testing.assert_allclose(found[output.name], expected, 0, 1e-5 * largest)
    assert len(different) > 3


def test_inputs_and_outputs_are_named_as_in_the_signature(tmp_path: Path) -> None:
    converted = convert(read_model(written(branching(), tmp_path)))
    assert [spec.name for spec in (*converted.inputs, *converted.outputs)] == ["signal", "magnitude"]


def test_states_of_recurrent_operators_are_recorded_as_they_were_before_the_run(tmp_path: Path) -> None:
    """Those that the operator changes in place: what the run took, not what it left."""
    seed = next(n for n in range(99) if b"int8" in _dtypes(drawn("SVDF", n), tmp_path))
    path = written(drawn("SVDF", seed), tmp_path)
    tflite.prepare(path, ImportOptions(), tmp_path / "made")
    tflite.record(path, ImportOptions(), tmp_path / "made", seed=1, inputs={})
    folder = tmp_path / "made" / "recorded"
    recorded = json.loads((folder / "recorded.json").read_text())
    read = {
        one["name"]: np.fromfile(folder / one["file"], one["dtype"]).reshape(one["shape"])
        for one in (*recorded["inputs"], *recorded["outputs"])
    }
    converted = convert(read_model(path))
    names = [spec.name for spec in converted.outputs]
    inputs = {spec.name: read[spec.name] for spec in converted.inputs}
    found = dict(zip(names, evaluate(converted.model, inputs), strict=True))
    (state,) = converted.states
    assert read[state.name].any() and not np.array_equal(read[state.name], read[state.returned_as])
    assert_same(found, {name: read[name] for name in names}, "SVDF")


def _dtypes(content: bytes, folder: Path) -> bytes:
    """The types of a model's inputs, as text."""
    case = Case(content, folder)
    return " ".join(spec.dtype for spec in case.converted.inputs).encode()


@pytest.mark.parametrize("plain", [True, False])
def test_a_composite_is_its_parts(plain: bool, tmp_path: Path) -> None:
    """As converters of PyTorch and JAX keep a norm together, without a shape of the result. LiteRT gets no
    attributes, which nobody looked at; where a result is there twice, or an operand, it computes others."""
    writer = Writer()
    x = writer.tensor([2, 3], "float32", name="x")
    results = [writer.tensor([2, 3], "float32", name=f"r{place}") for place in range(1 if plain else 3)]
    total = writer.tensor([2, 3], "float32", name="total")
    options = {"name": b"norm", "decompositionSubgraphIndex": 1, "compositeAttributes": [255] * 9}
    writer.operator("STABLEHLO_COMPOSITE", [x], results, 1, "StableHLOComposite", **options)
    writer.operator("ADD", [results[0], x], [total], 1)
    writer.next_subgraph([x], [total, *results[1:]])
    inner, squares, norm = (writer.tensor([2, 3], "float32", name=name) for name in ("x", "squares", "norm"))
    writer.operator("MUL", [inner, inner], [squares], 1)
    writer.operator("SQRT", [squares], [norm], 1)
    main = writer.model.subgraphs[0]
    main.tensors[results[0]].shape, main.tensors[results[0]].shapeSignature = [1, 1], [-1, -1]
    case = Case(writer.finished([inner], [norm, norm, inner][: len(results)]), tmp_path)
    found = evaluate(case.converted.model, case.inputs)
    x_, size = case.inputs["x"], np.abs(case.inputs["x"])
    for made, wanted in zip(found, (size + x_, size, x_), strict=False):
        np.testing.assert_allclose(made, wanted, atol=1e-6)
    if plain:
        assert_same({"total": found[0]}, case.expected, "composite")

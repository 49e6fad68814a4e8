"""Operators that choose among elements, with a maximum where the data decide how many."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx.bounded_shapes.prepare import (
    padded_results,
    with_bounded_shapes,
    with_counts,
)
from edgepack.compiler.frontend.onnx.reference_run import run_reference
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.errors import ModelError
from workbench.compiled import Compiled, target_with
from workbench.models.builder import Graph
from workbench.models.counted import CHOICES


def top_k(shape: tuple[int, ...], k: int, dtype: str, **attributes: Any) -> onnx.ModelProto:
    g = Graph("topk")
    names = g.ops("TopK", g.input("x", shape, dtype), g.const([k]), outputs=2, **attributes)
    g.output(names[0], dtype)
    g.output(names[1], "int64")
    return g.model()


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Few different values, many zeros, boxes that overlap."""
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        shape = [d.dim_value for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name == "boxes":
            found[value.name] = rng.uniform(0, 1, shape).astype(dtype)
        elif value.name == "scores":
            found[value.name] = (rng.integers(0, 12, shape) / 12).astype(dtype)  # some are equal
        else:
            found[value.name] = rng.integers(0, 2 if dtype.kind == "b" else 3, shape).astype(dtype)
            if dtype.kind in "fi" and value.name != "kept":
                found[value.name] -= found[value.name].dtype.type(1)
    return found


def expected(
    model: onnx.ModelProto, maxima: Mapping[str, int], inputs: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
    """What the reference gives, with the padding and the counts."""
    *_, padding = with_bounded_shapes(model, maxima)
    results = reference(with_counts(model, padding), inputs)
    return padded_results(results, padding, [value.name for value in model.graph.output])


def reference(model: onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """By ONNX's own evaluator where ONNX Runtime has no kernel for a type."""
    try:
        return run_reference(model, inputs)
    except ModelError:
        names = [value.name for value in model.graph.output]
        return dict(zip(names, evaluate(model, inputs), strict=True))


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: model for name, (model, _) in CHOICES.items()}
    maxima = {name: {"y": most} for name, (_, most) in CHOICES.items()}
    return Compiled(models, tmp_path_factory.mktemp("selection"), target_with("256x16"), maxima=maxima)


@pytest.mark.parametrize("name", CHOICES)
def test_entries_are_those_of_onnx_runtime(compiled: Compiled, name: str) -> None:
    model, most = CHOICES[name]
    for seed in range(3):
        inputs = inputs_of(model, seed)
        got = compiled.run(name, inputs, seed=seed)
        for output, array in expected(model, {"y": most}, inputs).items():
            assert got[output].dtype == array.dtype, output
            np.testing.assert_array_equal(got[output], array, err_msg=output)


#: Each form of the rule, all kinds of types, rows that are not contiguous.
TOP_K = {
    "heap": top_k((3, 50), 7, "float32"),
    "long": top_k((5000,), 3, "float32", largest=0),
    "one": top_k((9, 20), 1, "float32"),
    "least": top_k((2, 3, 40), 40, "float32", axis=1 + 1, largest=0),
    "columns": top_k((40, 3), 5, "int32", axis=0),
    "long columns": top_k((5000, 2), 3, "float32", axis=0),
    "bytes": top_k((2, 300), 20, "uint8"),
    "radix": top_k((2, 1500), 1100, "float32"),
    "radix, least": top_k((1500, 2), 1200, "int32", axis=0, largest=0),
    "threshold": top_k((2, 4000), 150, "float32"),
    "threshold, least": top_k((4000, 2), 150, "int32", axis=0, largest=0),
    "threshold of bytes": top_k((6000,), 300, "uint8"),
    "wide radix": top_k((2, 200), 150, "int64", largest=0),
    "wide": top_k((2, 70), 9, "int64"),
    "wide floats": top_k((2, 33), 9, "float64", largest=0),
    "unsigned": top_k((70,), 9, "uint64"),
}


@pytest.fixture(scope="module")
def sorting(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    return Compiled(TOP_K, tmp_path_factory.mktemp("top_k"), target_with("256x16"))


@pytest.mark.parametrize("name", TOP_K)
def test_the_greatest_come_first_and_of_equal_ones_the_first(sorting: Compiled, name: str) -> None:
    value = TOP_K[name].graph.input[0]
    dtype = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    rng = np.random.default_rng(4)
    x = rng.integers(0, 100, shape).astype(dtype)
    if dtype.kind in "fi":
        x = (x - 50) * np.asarray(2**40 if dtype.itemsize == 8 else 1, dtype)
    if dtype.kind == "f":
        x[rng.random(shape) < 0.1] *= -0.0
    inputs = {"x": x.astype(dtype)}
    got = sorting.run(name, inputs)
    for output, array in reference(TOP_K[name], inputs).items():
        np.testing.assert_array_equal(got[output], array, err_msg=output)


@pytest.mark.parametrize("form", ["heap", "radix", "threshold"])
def test_the_form_is_that_of_the_name(sorting: Compiled, form: str) -> None:
    for name in (name for name in TOP_K if name.startswith(form)):
        assert form in {kernel.parameters.get("form") for kernel in sorting.plan(name).kernels}, name


@pytest.mark.parametrize("spread", [1.0, 1e-40, 0.0])
def test_a_threshold_is_found_among_numbers_of_any_size(sorting: Compiled, spread: float) -> None:
    """NaN goes before infinity, of equal numbers the first ones are taken."""
    x = (np.random.default_rng(5).standard_normal((2, 4000)) * spread).astype(np.float32)
    x[:, 5::50], x[:, 7::100], x[:, 9::20] = np.inf, -np.inf, 0
    x[1, 11::40] = np.nan
    values, positions = sorting.run("threshold", {"x": x}).values()
    places = np.broadcast_to(np.arange(4000), x.shape)
    order = np.lexsort((places, -np.where(np.isnan(x), 0, x), ~np.isnan(x)))[:, :150]
    np.testing.assert_array_equal(positions, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_kernels_without_vectors_choose_the_same(tmp_path: Path) -> None:
    boxes, most = CHOICES["boxes of classes"]
    models = {"boxes": boxes, "long": TOP_K["long"]}
    compiled = Compiled(models, tmp_path, target_with("scalar"), maxima={"boxes": {"y": most}})
    inputs = inputs_of(boxes, 1)
    np.testing.assert_array_equal(
        compiled.run("boxes", inputs)["y"], expected(boxes, {"y": most}, inputs)["y"]
    )
    x = {"x": np.random.default_rng(2).standard_normal(5000).astype(np.float32)}
    for output, array in reference(TOP_K["long"], x).items():
        np.testing.assert_array_equal(compiled.run("long", x)[output], array)

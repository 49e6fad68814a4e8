"""Results of a maximum of entries, and what stands behind them, against ONNX Runtime with the real sizes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_model, prepare, record
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.bounded_shapes.prepare import (
    padded_results,
    with_bounded_shapes,
    with_counts,
)
from edgepack.compiler.frontend.onnx.reference_run import run_reference
from edgepack.compiler.frontend.onnx.storage_types import as_bytes
from edgepack.errors import EdgepackError, ModelError
from workbench.compiled import Compiled, target_with
from workbench.models import save
from workbench.models.builder import Graph
from workbench.models.counted import CHAINS
from workbench.node_tests import load_tests


def inputs_of(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    found = {}
    for value in model.graph.input:
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        if value.type.tensor_type.elem_type == onnx.TensorProto.BOOL:
            found[value.name] = rng.random(shape) < 0.5
        elif value.name == "boxes":
            found[value.name] = np.sort(rng.random(shape), axis=-1)[..., [0, 1, 2, 3]].astype(np.float32)
        else:
            found[value.name] = rng.standard_normal(shape).astype(np.float32)
    return found


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {name: build() for name, (build, _) in CHAINS.items()}
    maxima = {name: most for name, (_, most) in CHAINS.items()}
    return Compiled(models, tmp_path_factory.mktemp("maxima"), target_with("256x16"), maxima=maxima)


@pytest.mark.parametrize("name", CHAINS)
def test_entries_are_those_of_the_model_and_the_rest_is_zero(compiled: Compiled, name: str) -> None:
    model, maxima = compiled.models[name], CHAINS[name][1]
    *_, padding = with_bounded_shapes(model, maxima)
    for seed in range(2):
        inputs = inputs_of(model, seed)
        got = compiled.run(name, inputs, seed=seed)
        results = run_reference(with_counts(model, padding), inputs)
        wanted = padded_results(results, padding, [value.name for value in model.graph.output])
        assert list(got) == list(wanted)
        for output, array in wanted.items():
            assert (got[output].shape, got[output].dtype) == (array.shape, array.dtype), output
            np.testing.assert_allclose(got[output], array, rtol=1e-5, atol=1e-5, err_msg=output)


def test_a_count_of_the_first_ones_is_an_output_too(compiled: Compiled) -> None:
    assert {"kept_count", "first_count"} <= {spec.name for spec in compiled.plan("detected").outputs}


@pytest.mark.parametrize(("limit", "count"), [(-3.0, 0), (0.0, 0), (0.2, 1), (4.0, 4), (4.5, 5), (99.0, 99)])
@pytest.mark.parametrize("step", [1.0, -1.0])
def test_numbers_up_to_an_end_of_the_data_are_counted_as_onnx_does(
    limit: float, count: int, step: float
) -> None:
    g = Graph("numbers")
    end = g.op("Mul", g.input("x", ()), g.const(step))
    g.output(g.op("Range", g.const(0.0), end, g.const(step), name="y"))
    model = g.model()
    bounded, *_ = with_bounded_shapes(model, {"y": 6})
    found = run_reference(bounded, {"x": np.asarray(limit, np.float32)})
    assert (found["y_count"], found["y"].shape) == (count, (6,))
    (wanted,) = run_reference(model, {"x": np.asarray(limit, np.float32)}).values()
    np.testing.assert_array_equal(found["y"], np.pad(wanted[:6], (0, 6 - min(6, count))))


def test_a_range_without_a_maximum_says_which_one_to_give_and_where_only_its_end_may_vary() -> None:
    g = Graph("numbers")
    x = g.input("x", ())
    g.output(g.op("Range", g.const(0.0), x, g.const(1.0), name="y"))
    model = g.model()
    bind(model, shapes={}, dims={})
    with pytest.raises(ModelError, match="depends on values") as caught:
        import_model(model)
    assert caught.value.hint == "Give it a maximum of entries: --max y=1000."
    g = Graph("begins")
    x = g.input("x", ())
    g.output(g.op("Range", x, g.const(4.0), g.const(1.0), name="y"))
    with pytest.raises(EdgepackError, match="decide where the Range 'y' begins"):
        with_bounded_shapes(g.model(), {"y": 6})


def _made(parent: Path) -> Path:
    folder = parent / "prepared"
    folder.mkdir()
    return folder


def behind(operator: str, *more: object, **attributes: object) -> onnx.ModelProto:
    """A node that reads the places of what is not zero."""
    g = Graph("behind")
    places = g.op("NonZero", g.input("x", (3, 4)), name="found")
    given = [g.const(value) for value in more]
    g.output(g.op(operator, places, *given, name="y", **attributes), "int64")
    return g.model()


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (behind("ReduceSum", [1]), "reduces the entries"),
        (behind("Reshape", [-1]), "would not be one of its own"),
        (behind("Pad", [0, 0, 0, 1]), "behind their padding"),
        (behind("Gather", 2, axis=1), "looks up one of the entries"),
        (behind("Concat", [[1], [2]], axis=1), "joins entries with what"),
        (behind("Slice", [-2], [9], [1]), "counts the entries from the end"),
        (behind("Size"), "mixes entries"),
        (behind("NonZero"), "would depend on padding"),
    ],
)
def test_what_would_mix_entries_and_padding_is_refused(model: onnx.ModelProto, why: str) -> None:
    with pytest.raises(ModelError, match=rf"cannot be computed behind --max found=5: .*{why}") as error:
        import_model(
            model, {"found": 5, "y": 5} if model.graph.node[1].op_type == "NonZero" else {"found": 5}
        )
    assert "--outputs found" in error.value.hint


def test_the_number_of_entries_is_no_number_to_compute_with() -> None:
    g = Graph("mean")
    places = g.op("NonZero", g.input("x", (3, 4)), name="found")
    size = g.op("Cast", g.op("Slice", g.op("Shape", places), g.const([1]), g.const([2])), to=1)
    g.output(g.op("Div", g.const([1.0]), size, name="share"))
    with pytest.raises(ModelError, match="computes with the number of entries"):
        import_model(g.model(), {"found": 5})


def test_without_a_maximum_the_error_says_which_one_to_give(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'found' depends on .* \(NonZero, NonZero_0\)") as error:
        prepare(save(behind("Abs"), tmp_path), ImportOptions(), _made(tmp_path))
    assert "--max found=12" in error.value.hint
    g = Graph("boxes")
    limit, scores = g.const([2**31]), g.input("scores", (1, 80, 2000))
    kept = g.op("NonMaxSuppression", g.input("boxes", (1, 2000, 4)), scores, limit, name="kept")
    g.output(kept, "int64")
    with pytest.raises(ModelError) as error:
        import_model(g.model())
    assert "--max kept=300" in error.value.hint


@pytest.mark.parametrize(
    ("options", "why"),
    [
        (ImportOptions(maxima={"fund": 3}), "no tensor 'fund'"),
        (ImportOptions(maxima={"found": 3, "y": 3}), "'y' is no result of a node whose number of entries"),
        (ImportOptions(maxima={"found": 3}, batch=2), "together with --set-batch"),
        (ImportOptions(maxima={"found": 3}, weights="float16"), "together with --weights float16"),
    ],
)
def test_a_maximum_of_something_else_is_refused(options: ImportOptions, why: str, tmp_path: Path) -> None:
    with pytest.raises(EdgepackError, match=why):
        prepare(save(behind("Abs"), tmp_path), options, _made(tmp_path))


def test_a_recorded_run_of_too_many_entries_is_told(tmp_path: Path) -> None:
    options = ImportOptions(maxima={"found": 3})
    model = save(behind("Abs"), tmp_path)
    folder = _made(tmp_path)
    prepare(model, options, folder)
    (warning,) = record(model, options, folder, seed=0, inputs={})
    assert warning == "'found' has 12 entries in the recorded run, of which --max leaves 3."
    outputs = json.loads((folder / "recorded" / "recorded.json").read_text())["outputs"]
    assert [(output["name"], output["shape"]) for output in outputs] == [("y", [2, 3]), ("found_count", [])]


@pytest.mark.slow
def test_what_onnx_itself_tests_passes_with_a_maximum(tmp_path: Path) -> None:
    tests = {
        name: test
        for name, test in load_tests().items()
        if test.excluded == "shapes that depend on data" and test.operator != "ImageDecoder"
    }
    assert len(tests) >= 23
    models, maxima = {}, {}
    for name, test in tests.items():
        models[name] = onnx.ModelProto()
        models[name].CopyFrom(test.model)
        bind(models[name], shapes={}, dims={})
        maxima[name] = {models[name].graph.node[0].output[0]: 7}
    compiled = Compiled(models, tmp_path, target_with("256x16"), maxima=maxima)
    for name, test in tests.items():
        *_, padding = with_bounded_shapes(models[name], maxima[name])
        results = {
            value.name: array for value, array in zip(models[name].graph.output, test.outputs, strict=True)
        }
        wanted = padded_results(results, padding, list(results))
        got = compiled.run(name, test.inputs)
        for output, array in wanted.items():
            np.testing.assert_array_equal(got[output], as_bytes(array), err_msg=f"{name} {output}")


@pytest.mark.parametrize(
    ("operator", "attributes", "why"),
    [
        ("Conv", {"pads": [0, 0]}, "as many windows"),
        ("Conv", {"pads": [1, 1], "strides": [2]}, "as many windows"),
        ("Conv", {"auto_pad": "SAME_UPPER"}, None),
        ("ConvTranspose", {"pads": [0, 0], "strides": [2]}, "as many results for each entry"),
        ("ConvTranspose", {"pads": [1, 0], "strides": [2]}, None),
        ("ConvTranspose", {"pads": [1, 1], "strides": [2], "output_padding": [1]}, None),
    ],
)
def test_windows_along_entries_are_those_that_keep_their_number(
    operator: str, attributes: dict[str, object], why: str | None
) -> None:
    g = Graph("windows")
    frames = g.op("Range", g.const(0.0), g.input("x", ()), g.const(1.0), name="frames")
    rows = g.op("Unsqueeze", frames, g.const([0, 1]))
    g.output(g.op(operator, rows, g.weight(1, 1, 3), name="y", **attributes))
    if why is None:
        bounded, _, padding = with_bounded_shapes(g.model(), {"frames": 8})
        (wanted,) = run_reference(g.model(), {"x": np.asarray(5, np.float32)}).values()
        found = run_reference(bounded, {"x": np.asarray(5, np.float32)})
        np.testing.assert_allclose(found["y"][..., : wanted.shape[-1]], wanted, rtol=1e-6)
        assert found["y_count" if operator == "ConvTranspose" else "frames_count"] == wanted.shape[-1]
        assert padding.shapes["y"][-1] == 8 * (2 if operator == "ConvTranspose" else 1)
        return
    with pytest.raises(ModelError, match=why):
        with_bounded_shapes(g.model(), {"frames": 8})

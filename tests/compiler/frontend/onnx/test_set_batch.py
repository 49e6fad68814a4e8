"""Another batch for a model that was exported with one of 1: the numbers of its samples one by one, or a
refusal that names the node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import load, prepare
from edgepack.compiler.frontend.onnx.binding import model_inputs
from edgepack.compiler.frontend.onnx.cut import open_model
from edgepack.compiler.frontend.onnx.reference import record
from edgepack.errors import ConfigError, ModelError
from edgepack.plan.types import TensorSpec
from workbench.models import DIMS, build, save
from workbench.models.builder import Graph
from workbench.models.evaluate import run_onnxruntime
from workbench.models.single import single

BATCH = 3


def literal_reshapes() -> onnx.ModelProto:
    """Attention as a static export has it: rows, then heads, merged with the batch."""
    g = Graph("attention", seed=1)
    rows = g.op("Reshape", g.input("x", (1, 6, 8)), g.const([6, 8]))
    heads = g.op("Reshape", g.gemm(rows, 8, 8), g.const([1, 6, 2, -1]))
    heads = g.op("Reshape", g.op("Transpose", heads, perm=[0, 2, 1, 3]), g.const([2, 6, 4]))
    scores = g.op("Softmax", g.op("MatMul", heads, g.op("Transpose", heads, perm=[0, 2, 1])), axis=-1)
    values = g.op("Reshape", g.op("MatMul", scores, heads), g.const([1, 2, 6, 4]))
    g.op("Reshape", g.op("Transpose", values, perm=[0, 2, 1, 3]), g.const([0, 6, 8]), name="y")
    g.output("y")
    return g.model()


def sequence_first() -> onnx.ModelProto:
    """The batch is axis 1 from the transposition on, and merged with the heads."""
    g = Graph("sequence_first", seed=2)
    x = g.op("Transpose", g.input("x", (1, 6, 8)), perm=[1, 0, 2])
    heads = g.op("Transpose", g.op("Reshape", x, g.const([6, 2, 4])), perm=[1, 0, 2])
    heads = g.op("Softmax", g.op("MatMul", heads, g.op("Transpose", heads, perm=[0, 2, 1])), axis=-1)
    g.op("Reshape", heads, g.const([1, 2, 6, 6]), name="y")
    g.output("y")
    return g.model()


def class_token() -> onnx.ModelProto:
    """A constant of batch 1 beside the samples, sizes read from the tensor, a resize to literal sizes."""
    g = Graph("class_token", seed=3)
    x = g.input("x", (1, 2, 4, 4))
    large = g.op("Resize", x, "", "", g.const([1, 2, 8, 8]), mode="nearest")
    rows = g.op("Reshape", large, g.op("Concat", g.op("Shape", large, start=0, end=2), g.const([-1]), axis=0))
    token = g.op("Concat", g.weight(1, 1, 64), rows, axis=1)
    zeros = g.op("Expand", g.weight(1, 1, 1), g.op("Shape", token))
    g.op("Add", token, zeros, name="y")
    g.output("y")
    return g.model()


def states() -> onnx.ModelProto:
    """An LSTM whose initial states are constants of batch 1."""
    g = Graph("states", seed=4)
    x = g.op("Transpose", g.input("x", (1, 5, 3)), perm=[1, 0, 2])
    w, r, b = g.weight(1, 16, 3), g.weight(1, 16, 4), g.weight(1, 32)
    y = g.op("LSTM", x, w, r, b, "", g.weight(1, 1, 4), g.weight(1, 1, 4), hidden_size=4)
    g.op("Transpose", g.op("Squeeze", y, g.const([1])), perm=[1, 0, 2], name="y")
    g.output("y")
    return g.model()


MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{f.__name__: f for f in (literal_reshapes, sequence_first, class_token, states)},
    **{name: lambda name=name: build(name) for name in ("mlp", "ds_cnn", "vit", "bert")},  # type: ignore[misc]
}


@pytest.mark.parametrize("name", MODELS)
def test_a_batch_gives_what_its_samples_give(name: str, tmp_path: Path) -> None:
    path = save(MODELS[name](), tmp_path)
    one, many = (ImportOptions(dims=DIMS.get(name, {}), batch=batch) for batch in (0, BATCH))
    model, wanted = open_model(path, many), open_model(path, one)
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    for item in model_inputs(model):
        assert item.shape is not None and item.shape[0] == BATCH
        arrays[item.name] = rng.normal(size=item.shape).astype("f4") if item.dtype == "float32" else None
        if arrays[item.name] is None:
            arrays[item.name] = rng.integers(0, 2, item.shape, dtype=item.dtype)
    got = run_onnxruntime(model, arrays)
    singly = [run_onnxruntime(wanted, {k: x[i : i + 1] for k, x in arrays.items()}) for i in range(BATCH)]
    for index, output in enumerate(got):
        together = np.concatenate([one[index] for one in singly])
        np.testing.assert_allclose(output, together, rtol=1e-4, atol=1e-5)


def test_the_recorded_outputs_are_of_single_runs_and_the_model_is_imported(tmp_path: Path) -> None:
    path, sizes = save(class_token(), tmp_path), ImportOptions(batch=2)
    prepare(path, sizes, tmp_path)
    (spec,) = load(tmp_path).signature.inputs
    assert spec.shape == (2, 2, 4, 4)
    record(path, [spec], sizes, seed=0, inputs={}, directory=tmp_path)
    assert "2 runs with a batch of 1" in (tmp_path / "recorded.json").read_text()
    x, y = (np.fromfile(tmp_path / name, "f4") for name in ("input_0.bin", "output_0.bin"))
    x, y = x.reshape(2, 1, 2, 4, 4), y.reshape(2, 1, 3, 64)
    for sample, want in zip(x, y, strict=True):
        (got,) = run_onnxruntime(class_token(), {"x": sample})
        np.testing.assert_array_equal(got, want)


REFUSED = {
    "Squeeze": lambda g, x: g.op("Squeeze", x, g.const([0]), name="bad"),
    "Gather": lambda g, x: g.op("Gather", x, g.const(0), axis=0, name="bad"),
    "ReduceMean": lambda g, x: g.op("ReduceMean", x, axes=[0], keepdims=1, name="bad"),
    "Add": lambda g, x: g.op("Add", g.op("Reshape", x, g.const([4, 6])), g.weight(4, 6), name="bad"),
    "Reshape": lambda g, x: g.op("Reshape", g.op("Transpose", x, perm=[1, 0, 2]), g.const([24]), name="bad"),
}


@pytest.mark.parametrize("op", REFUSED)
def test_a_node_that_cannot_have_another_batch_is_named(op: str, tmp_path: Path) -> None:
    path = save(single((1, 4, 6), REFUSED[op]), tmp_path)
    with pytest.raises(
        ModelError, match=f"^--set-batch 3: {op}, {op}_., cannot have another batch: "
    ) as caught:
        open_model(path, ImportOptions(batch=BATCH))
    assert "dynamic" in caught.value.hint
    assert "\n" not in caught.value.message


def test_samples_that_mix_are_seen_in_the_numbers(tmp_path: Path) -> None:
    path = save(single((1, 4), lambda g, x: g.op("Softmax", x, axis=0)), tmp_path)
    with pytest.raises(ModelError, match="the output 'y' of a batch is not that of its samples one by one"):
        record(
            path,
            [TensorSpec("x", "float32", (2, 4))],
            ImportOptions(batch=2),
            seed=0,
            inputs={},
            directory=tmp_path,
        )


def test_only_a_batch_of_one_is_changed(tmp_path: Path) -> None:
    path = save(single((4, 6), lambda g, x: g.op("Relu", x)), tmp_path)
    with pytest.raises(ConfigError, match="the model's batch is 4; only one of 1 can be changed"):
        open_model(path, ImportOptions(batch=2))
    assert model_inputs(open_model(path, ImportOptions(batch=4)))[0].shape == (4, 6)

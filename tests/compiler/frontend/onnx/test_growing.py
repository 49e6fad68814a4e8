"""Loops whose carried tensors grow with each trip, against ONNX Runtime, which has them as they grow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import import_model, prepare, record
from edgepack.compiler.frontend.onnx.growing import parts
from edgepack.compiler.frontend.onnx.growing.apply import bound_growth
from edgepack.compiler.frontend.onnx.rewrites.editor import attributes
from edgepack.compiler.frontend.onnx.shapes import all_nodes, static_shape
from edgepack.errors import ConfigError, ModelError
from workbench.compiled import Compiled, assert_close
from workbench.models.builder import Graph
from workbench.models.decoders import DECODERS, decoder, lists_of_sentences, lists_of_tokens, sentences
from workbench.models.evaluate import run_onnxruntime
from workbench.models.growing import CHAINS, growing

#: How likely the token is that ends, how many trips there are at most, and a seed.
RUNS = (
    *((-9.0, 0, 0), (-9.0, 1, 1), (99.0, 5, 2), (-9.0, 9, 3), (2.25, 9, 41), (3.25, 9, 61)),
    *((likely / 4, 9, 4 + likely) for likely in range(4, 12)),
)


#: For so many tokens there is room.
ROOMS = {"cell": 12, "again": 12, "transformer": 40, "cache": 12}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    models = {kind: decoder(kind, first=1 if kind == "cache" else 3) for kind in DECODERS}
    models["nested"] = sentences()
    maxima = {kind: {"tokens": ROOMS[kind]} for kind in DECODERS}
    return Compiled(models, tmp_path_factory.mktemp("growing"), maxima=maxima)


@pytest.mark.parametrize("kind", DECODERS)
def test_decoders(compiled: Compiled, kind: str) -> None:
    model, counts = compiled.models[kind], set()
    for likely, most, seed in RUNS:
        inputs = lists_of_tokens(model, likely, seed, most)
        (expected,) = run_onnxruntime(model, inputs)
        got = compiled.run(kind, inputs, seed=most)
        count = int(got["tokens_count"])
        assert got["tokens"].shape == (1, ROOMS[kind])
        assert got["tokens"][0, :count].tolist() == expected[0].tolist()
        assert not got["tokens"][0, count:].any()
        counts.add(count - model.graph.input[0].type.tensor_type.shape.dim[1].dim_value)
    assert {0, 1, 9} <= counts
    assert counts & set(range(2, 9)), "none ended in the middle"


def test_a_run_of_more_trips_than_there_is_room_for_fails(compiled: Compiled) -> None:
    """With EP_E_TRIPS, as of ``--max-trips``."""
    branches = [kernel.branch for kernel in compiled.plan("cache").kernels if kernel.branch]
    assert {(branch.most, branch.bounded) for branch in branches} == {(11, True)}


def test_as_many_trips_as_the_model_says_need_no_maximum() -> None:
    model = decoder("transformer", trips=9, ends=False)
    inputs = lists_of_tokens(model, -9, 3, 0)
    (expected,) = run_onnxruntime(model, inputs)
    growth = bound_growth(model, 100)
    assert growth.changed
    assert not growth.counts
    np.testing.assert_array_equal(run_onnxruntime(model, inputs)[0], expected)
    assert static_shape(model.graph.output[0]) in {None, (1, 10)}


def test_attention_with_a_mask_of_run_time_is_one_kernel(compiled: Compiled) -> None:
    rules = {kernel.rule for kernel in compiled.plan("transformer").kernels}
    assert any(rule.startswith("attention") for rule in rules), rules


def test_a_loop_that_grows_inside_another_one(compiled: Compiled) -> None:
    """What is made of it has a known size again."""
    for count in (0, 1, 4):
        model = compiled.models["nested"]
        inputs = lists_of_sentences(count)
        assert_close(model, compiled.run("nested", inputs), compiled.expected("nested", inputs))


@pytest.mark.parametrize("kind", ["again", "transformer"])
@pytest.mark.parametrize("trips", [None, 24])
def test_loops_for_fewer_trips_compute_less(
    monkeypatch: pytest.MonkeyPatch, kind: str, trips: int | None
) -> None:
    """A large trip is that of several loops, of which the first ones have less room."""
    monkeypatch.setattr(parts, "WORTH", 0)
    model = decoder(kind, trips=trips)
    original = onnx.ModelProto()
    original.CopyFrom(model)
    assert bound_growth(model, 100, {"tokens": 25}, count=True).counts == {"tokens_count": ("tokens", 1)}
    assert [node.op_type for node in model.graph.node].count("Loop") == 4, "3, 6, 12, 18 trips, and 24"
    ends = set()
    for seed in range(12):
        inputs = lists_of_tokens(original, seed / 4 if seed else -9, seed, (0, 3, 24)[seed % 3])
        (expected,) = run_onnxruntime(original, inputs)
        tokens, count = run_onnxruntime(model, inputs)
        np.testing.assert_array_equal(tokens[:, :count], expected)
        assert not tokens[:, count:].any()
        ends.add(int(count))
    assert len(ends) > 1


# Operators over what has grown -----------------------------------------------------------------------------


def _inputs(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(0)
    rows = [i for i in model.graph.input if i.name != "last"]
    shapes = {i.name: [d.dim_value for d in i.type.tensor_type.shape.dim] for i in rows}
    return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("name", CHAINS)
def test_operators_over_what_has_grown(name: str) -> None:
    """ONNX Runtime computes the same with room for the largest size."""
    model = growing({name: CHAINS[name]})
    inputs = _inputs(model)
    expected = run_onnxruntime(model, inputs)
    assert bound_growth(model, 100).changed
    assert all(static_shape(value) for value in attributes(model.graph.node[-1])["body"].input[2:])
    np.testing.assert_allclose(run_onnxruntime(model, inputs), expected, rtol=2e-5, atol=2e-5)
    assert expected[0].any()


@pytest.mark.slow
def test_operators_over_what_has_grown_compiled(tmp_path: Path) -> None:
    """All in one loop."""
    Compiled({"m": growing(CHAINS)}, tmp_path).check("m")


# What is refused -----------------------------------------------------------------------------------------


def _einsum(g: Graph, x: str) -> str:
    return g.op("Einsum", x, x, equation="bik,bil->kl")


def _scattered(g: Graph, x: str) -> str:
    return g.op("ScatterElements", g.const(np.zeros((1, 40, 4), np.float32)), _whole_numbers(g, x), x, axis=1)


def _whole_numbers(g: Graph, x: str) -> str:
    return g.op("Cast", x, to=onnx.TensorProto.INT64)


#: What reads rows that have grown, and what is said of it.
REFUSED: dict[str, tuple[Callable[[Graph, str], str], str]] = {
    "einsum": (_einsum, "The Einsum node"),
    "scatter": (_scattered, "The ScatterElements node"),
    "top": (
        lambda g, x: g.ops("TopK", x, g.const([4]), axis=1, outputs=2)[0],
        "more elements than there may be",
    ),
    "unequal": (lambda g, x: g.op("Add", x, g.weight(1, 3, 4)), "it joins sizes of which it is not known"),
    "turned": (lambda g, x: g.op("Reshape", x, g.const([4, -1])), "joins a size that changes with each trip"),
    "beyond": (lambda g, x: g.op("Slice", x, *_axis_1(g, 0, 5)), "whether it ends behind the last element"),
}


def _axis_1(g: Graph, first: int, last: int) -> list[str]:
    return [g.const([number]) for number in (first, last, 1)]


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_exact_is_refused_with_the_node_and_why(name: str) -> None:
    chain, said = REFUSED[name]
    with pytest.raises(ModelError) as caught:
        import_model(growing({"refused": chain}, trips=60))
    assert said in caught.value.message
    assert "changes with each trip" in caught.value.message
    assert "--outputs" in caught.value.hint


def _doubling(trips: int, *, ends: bool = False) -> onnx.ModelProto:
    """Rows that stand behind themselves with each trip."""
    model = growing({"sum": CHAINS["all"]}, trips, ends=ends)
    body = attributes(model.graph.node[-1])["body"]
    place = next(i for i, node in enumerate(body.node) if body.output[1].name in node.output)
    body.node[place].input[1] = body.node[place].input[0]
    return model


def test_a_carried_tensor_that_doubles_in_many_trips_is_refused() -> None:
    with pytest.raises(ModelError, match="does not grow evenly"):
        import_model(_doubling(60))


# What is written out -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["einsum", "scatter", "doubled"])
def test_few_trips_are_written_out(name: str) -> None:
    """Each with its own sizes, whatever its operators are."""
    chain = REFUSED.get(name, (None,))[0]
    model = _doubling(5, ends=True) if chain is None else growing({name: chain}, 5, ends=True)
    original = onnx.ModelProto()
    original.CopyFrom(model)
    growth = bound_growth(model, 100, count=True)
    assert growth.changed
    assert "Loop" not in {node.op_type for node in all_nodes(model.graph)}
    room = 64 if chain is None else 7
    for last in (-1, 0, 2, 4, 9):
        inputs = {**_inputs(original), "last": np.asarray(last, np.int64)}
        rows, result = run_onnxruntime(original, inputs)
        whole, got, count = run_onnxruntime(model, inputs)
        assert whole.shape == (1, room, 4)
        assert count == rows.shape[1]
        np.testing.assert_array_equal(whole[:, :count], rows)
        assert not whole[:, count:].any()
        np.testing.assert_allclose(got, result, rtol=2e-5, atol=2e-5)


def test_trips_that_are_written_out_are_compiled(tmp_path: Path) -> None:
    model = growing({"einsum": REFUSED["einsum"][0]}, 3, ends=True)
    compiled = Compiled({"m": model}, tmp_path, maxima={"m": {"looped": 5}})
    for last in (0, 1, 4):
        inputs = {**_inputs(model), "last": np.asarray(last, np.int64)}
        rows, result = run_onnxruntime(model, inputs)
        got = compiled.run("m", inputs)
        assert int(got["looped_count"]) == rows.shape[1]
        np.testing.assert_allclose(got["looped"][:, : rows.shape[1]], rows, rtol=1e-6)
        np.testing.assert_allclose(list(got.values())[1], result, rtol=1e-5)


def test_without_a_bound_the_option_is_named() -> None:
    with pytest.raises(ModelError) as caught:
        import_model(decoder("cell"))
    assert "'tokens' grows with each trip" in caught.value.message
    assert "--max tokens=101" in caught.value.hint
    with pytest.raises(ModelError) as caught:
        import_model(decoder("cell", trips=20))
    assert "the size of 'tokens', is known at run time only" in caught.value.message
    assert "--max tokens=21" in caught.value.hint


def test_a_recorded_run_of_more_trips_than_there_is_room_for_is_refused(tmp_path: Path) -> None:
    """And it ends, though the model itself would make a million."""
    path, room = tmp_path / "model.onnx", tmp_path / "prepared"
    model = decoder("cell", ends=False)
    onnx.save(model, path)
    room.mkdir()
    options = ImportOptions(maxima={"tokens": 5})
    prepare(path, options, room)
    np.save(tmp_path / "most.npy", np.asarray(10**6, np.int64))
    with pytest.raises(ConfigError, match="more entries in the recorded run than the 5"):
        record(path, options, room, seed=0, inputs={"most": tmp_path / "most.npy"})


def test_a_maximum_for_trips_that_are_known_is_refused() -> None:
    with pytest.raises(ConfigError, match="number of trips"):
        import_model(decoder("transformer", trips=9, ends=False), {"tokens": 5})

"""Sizes that are proposed for open dimensions work: names that compute, totals, and sizes that are tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import check_run, explained, load, prepare
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.related_sizes import value_of
from edgepack.compiler.graph.lower import lower
from edgepack.errors import ModelError
from workbench.models import save
from workbench.models.builder import Graph


def decoder(ids: str, past: str, total: str) -> onnx.ModelProto:
    """Scores of new keys behind those of a cache, with a mask over both."""
    g = Graph("decoder", opset=18)
    tokens, mask = g.input("input_ids", ["batch", ids], "int64"), g.input("mask", ["batch", total])
    cache = g.input("past_key_values.0.key", ["batch", 4, past, 8])
    rows = g.op("Gather", g.weight(50, 32), tokens)
    split = g.op("Reshape", rows, g.const([0, 0, 4, 8]))
    keys = g.op("Concat", cache, g.op("Transpose", split, perm=[0, 2, 1, 3]), axis=2)
    scores = g.op("ReduceMean", keys, g.const([1, 3]), keepdims=0)
    g.output(g.op("Add", scores, mask))
    return g.model()


def tagger(dtype: str) -> onnx.ModelProto:
    """Numbers of characters, as Keras gives them, in a dimension that tf2onnx has numbered."""
    g = Graph("tagger")
    numbers = g.op(
        "Cast", g.input("characters", ["unk__1915", "unk__1916"], dtype), to=onnx.TensorProto.INT32
    )
    g.output(g.op("Gather", g.weight(90, 16), numbers))
    return g.model()


def mirrored(length: str | None, pad: int = 64) -> onnx.ModelProto:
    """What a spectrum does with the ends of a sound."""
    g = Graph("mirrored")
    x = g.op("Pad", g.input("input", ["batch", length]), g.const([0, pad, 0, pad]), mode="reflect")
    rows = g.op("Unsqueeze", x, g.const([1]))
    g.output(g.op("Conv", rows, g.weight(8, 1, 256), strides=[128], kernel_shape=[256]))
    return g.model()


def unet() -> onnx.ModelProto:
    """An image halved five times, and doubled again beside what it was."""
    g = Graph("unet")
    x = g.input("image", [1, 1, "height", "width"])
    small = g.op("AveragePool", x, kernel_shape=[32, 32], strides=[32, 32])
    scales = g.const([1.0, 1.0, 32.0, 32.0])
    g.output(g.op("Add", x, g.op("Resize", small, "", scales, mode="nearest")))
    return g.model()


def asked(model: onnx.ModelProto) -> ModelError:
    with pytest.raises(ModelError) as caught:
        bind(model, shapes={}, dims={})
    return caught.value


def tried(model: onnx.ModelProto, folder: Path, options: ImportOptions | None = None) -> ModelError:
    """What is said of a model that cannot be prepared."""
    path, given = save(model, folder), options or ImportOptions()
    (folder := folder / "prepared").mkdir()

    def compiles(other: ImportOptions) -> None:
        prepare(path, other, folder)
        lower(load(folder).module)

    with pytest.raises(ModelError) as caught:
        compiles(given)
        check_run(path, given)
    return explained(path, given, caught.value, compiles)


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("past_length + length", 12),
        ("past_length + 1", 9),
        ("2*length", 8),
        ("floor(past_length/3) - 1", 1),
        ("Max(1, length - 9)", 1),
        ("length", None),
        ("past-length", None),
        ("other + 1", None),
        ("length - 4", None),
        ("1/(length - 4)", None),
        ("__import__('os')", None),
    ],
)
def test_a_name_that_computes_with_others_has_their_size(name: str, size: int | None) -> None:
    assert value_of(name, {"past_length": 8, "length": 4}) == size


def test_a_size_that_follows_from_others_is_not_asked_for() -> None:
    def model() -> onnx.ModelProto:
        return decoder("sequence_length", "past_length", "past_length + sequence_length")

    assert asked(model()).hint.endswith(": --dim sequence_length=128 --dim past_length=128")
    bound = bind(model(), shapes={}, dims={"sequence_length": 1, "past_length": 7})
    assert bound.shapes["mask"] == (1, 8)


def test_a_total_is_proposed_as_the_sum_of_what_is_over_it() -> None:
    model = decoder("sequence_length", "past_sequence_length", "total_sequence_length")
    assert asked(model).hint.endswith(
        ": --dim sequence_length=128 --dim total_sequence_length=256 --dim past_sequence_length=128"
    )


def test_numbers_of_characters_are_no_sound_whatever_their_type() -> None:
    assert asked(tagger("float32")).hint.endswith(": --shape characters=1,128")
    assert asked(tagger("int32")).hint.endswith(": --shape characters=1,128")


def test_sound_is_known_by_what_reads_it_unless_a_state_says_that_it_comes_in_pieces() -> None:
    model = mirrored("n_1")
    assert asked(model).hint.endswith(": --dim n_1=16000")
    state = onnx.helper.make_tensor_value_info("state", onnx.TensorProto.FLOAT, [2, None, 64])
    model.graph.input.append(state)
    assert "--dim n_1=64 " in asked(model).hint


@pytest.mark.parametrize(
    ("length", "said"),
    [
        (None, "--shape input=1,128 (with --shape input=1,64 the model does not run)"),
        ("tokens", "--dim tokens=256 (with --dim tokens=128 the model does not run)"),
    ],
)
def test_sizes_that_are_too_small_to_run_are_not_proposed(
    length: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "edgepack.compiler.frontend.onnx.binding.input_uses", lambda _, names: dict.fromkeys(names, "")
    )
    error = tried(mirrored(length, 64 if length is None else 200), tmp_path)
    assert error.hint.endswith(f", for example: {said}")


@pytest.mark.parametrize(
    ("model", "options", "said", "works"),
    [
        (
            lambda: mirrored("tokens"),
            ImportOptions(dims={"tokens": 60}),
            "--dim tokens=60 is too small: ONNX Runtime cannot run the model with it (",
            "--dim tokens=240 works",
        ),
        (
            lambda: mirrored(None),
            ImportOptions(shapes={"input": [1, 32]}),
            "--shape input=1,32 is too small: ONNX Runtime cannot run the model with it (Pad reflect: ",
            "--shape input=1,128 works",
        ),
        (
            unet,
            ImportOptions(dims={"height": 100, "width": 64}),
            "--dim height=100 --dim width=64 is not a size that the model takes: ",
            "--dim height=128 --dim width=64 works",
        ),
    ],
)
def test_sizes_that_do_not_work_are_said_to_be_that_with_some_that_do(
    model: Callable[[], onnx.ModelProto], options: ImportOptions, said: str, works: str, tmp_path: Path
) -> None:
    error = tried(model(), tmp_path, options)
    assert error.message.startswith(said), error.message
    assert error.hint == f"{works}, the smallest that was tried."
    assert not error.cuts


def test_what_larger_sizes_do_not_mend_stays_what_it_is(tmp_path: Path) -> None:
    g = Graph("refused")
    g.output(g.op("NoSuchOperator", g.input("x", [1, "tokens"])))
    options = ImportOptions(dims={"tokens": 4})
    assert "NoSuchOperator" in tried(g.model(), tmp_path, options).message


def test_an_image_of_another_height_is_proposed_where_the_usual_one_does_not_fit(tmp_path: Path) -> None:
    """A reader of lines of text: their height becomes 1."""
    g = Graph("reader")
    x = g.op("AveragePool", g.input("x", ["n", 3, None, "width"]), kernel_shape=[48, 1])
    g.output(g.op("Squeeze", x, g.const([2])))
    said = "--shape x=1,3,48,320 (with --shape x=1,3,224,224 the model does not run)"
    assert tried(g.model(), tmp_path).hint.endswith(f": {said}")

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.onnx.binding import bind, model_inputs, unbound_dims
from edgepack.errors import ConfigError, EdgepackError, ModelError
from workbench.models import build
from workbench.models.builder import Graph
from workbench.models.odd import ODD


def model_of(inputs: Mapping[str, Sequence[Any] | None], dtype: str = "float32") -> onnx.ModelProto:
    g = Graph("test")
    for name, shape in inputs.items():
        g.output(g.op("Identity", g.input(name, shape, dtype)), dtype)
    return g.model()


def bound(
    model: onnx.ModelProto, shapes: dict[str, list[int]] | None = None, dims: dict[str, int] | None = None
) -> dict[str, tuple[int, ...]]:
    return bind(model, shapes=shapes or {}, dims=dims or {}).shapes


def refusal(kind: type[EdgepackError], model: onnx.ModelProto, **options: Any) -> EdgepackError:
    with pytest.raises(kind) as caught:
        bound(model, **options)
    assert "\n" not in caught.value.message
    return caught.value


def test_static_shapes_need_nothing() -> None:
    assert bound(model_of({"x": [2, 3], "s": []})) == {"x": (2, 3), "s": ()}


def test_a_named_dimension_is_bound_in_every_input() -> None:
    shapes = bound(build("bert"), dims={"batch": 2, "sequence": 7})
    assert shapes == {"input_ids": (2, 7), "attention_mask": (2, 7)}


def test_a_shape_binds_its_named_dimensions_in_the_other_inputs() -> None:
    shapes = bound(build("bert"), shapes={"input_ids": [2, 7]})
    assert shapes["attention_mask"] == (2, 7)


def test_a_shape_gives_unnamed_dimensions_and_unknown_rank() -> None:
    model = model_of({"x": [None, 3], "y": None})
    assert bound(model, shapes={"x": [2, 3], "y": [4]}) == {"x": (2, 3), "y": (4,)}


def test_the_shapes_are_written_and_stale_ones_removed() -> None:
    model = build("bert")
    model.graph.value_info.append(helper.make_tensor_value_info("Add_9", TensorProto.FLOAT, [9, 9]))
    bound(model, dims={"batch": 1, "sequence": 4})
    assert [d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim] == [1, 4]
    assert not model.graph.value_info
    assert not any(value.type.tensor_type.HasField("shape") for value in model.graph.output)


@pytest.mark.parametrize("name", ["batch", "N", "s0", "unk__77", "DynamicDimension.0"])
def test_an_open_first_dimension_is_a_batch_of_1_and_said(name: str) -> None:
    model = model_of({"image": [name, 3, 224, 224], "state": [2, name, 64], "flat": [name]})
    found = bind(model, shapes={}, dims={})
    assert found.shapes == {"image": (1, 3, 224, 224), "state": (2, 1, 64), "flat": (1,)}
    (text,) = found.batches
    assert f"of image, {name!r}, is open and taken for a batch of 1 (--dim {name}=..." in text
    assert bound(model_of({"image": [name, 3]}), dims={name: 4}) == {"image": (4, 3)}
    assert bound(model_of({"image": [name, 3]}), shapes={"image": [4, 3]}) == {"image": (4, 3)}


def test_an_open_first_dimension_without_a_name_is_a_batch_too() -> None:
    found = bind(model_of({"a": [None, 3], "b": [None, 4]}), shapes={"b": [2, 4]}, dims={})
    assert found.shapes == {"a": (1, 3), "b": (2, 4)}
    assert found.batches == (
        "the first dimension of a is open and taken for a batch of 1 (--shape a=... gives another size)",
    )


@pytest.mark.parametrize("name", ["sequence_length", "time", "num_samples", "T"])
def test_a_first_dimension_that_is_a_length_is_asked_for(name: str) -> None:
    assert f"--dim {name}=" in refusal(ModelError, model_of({"x": [name, 3]})).hint


def test_the_only_dimension_of_an_input_is_asked_for() -> None:
    assert "--shape x=" in refusal(ModelError, model_of({"x": [None]})).hint


@pytest.mark.parametrize("name", ["?", "-1", "", "None", "unknown"])
def test_what_stands_in_the_place_of_a_name_is_none(name: str) -> None:
    """Paddle2ONNX calls each open dimension '?'."""
    model = model_of({"x": [name, 3, name, name]})
    assert bound(model, shapes={"x": [1, 3, 48, 320]}) == {"x": (1, 3, 48, 320)}
    error = refusal(ModelError, model_of({"x": [name, 3, name, name]}))
    assert "dimension 2, dimension 3" in error.message
    assert error.hint == "Choose their sizes, for example: --shape x=1,3,224,224"


def test_all_that_is_open_is_said_at_once_with_one_command() -> None:
    model = model_of({"ids": ["batch", "seq"], "mask": ["batch", "seq"]}, "int64")
    g = Graph("more")
    for name, shape in {"audio": [None, None], "state": [2, None, 128], "image": ["b", 3, "h", "w"]}.items():
        g.output(g.op("Identity", g.input(name, shape)))
    more = g.model()
    model.graph.input.extend(more.graph.input)
    error = refusal(ModelError, model)
    for part in ("'ids' (batch x seq): dimension 'seq'", "input 'mask'", "'audio' (1 x ?): dimension 1"):
        assert part in error.message
    assert error.hint == (
        "Choose their sizes, for example: --dim seq=128 --dim h=224 --dim w=224 --shape audio=1,64 "
        "--shape state=2,1,128"
    )


def test_tokens_are_no_samples_and_a_states_batch_is_no_length() -> None:
    model = model_of({"tokens": [1, "audio_tokens"]}, "int64")
    assert "--dim audio_tokens=128" in refusal(ModelError, model).hint
    assert "--shape h=2,1,64" in refusal(ModelError, model_of({"h": [2, None, 64]})).hint
    assert "--shape x=1,128,80" in refusal(ModelError, model_of({"x": [1, None, 80]})).hint


def test_hint_keeps_what_is_already_bound() -> None:
    error = refusal(ModelError, model_of({"x": ["a", 3, None, None]}), dims={"a": 5})
    assert "--shape x=5,3,224,224" in error.hint


def test_unknown_rank_is_asked_for() -> None:
    assert "--shape x=" in refusal(ModelError, model_of({"x": None})).hint


def test_shape_for_an_unknown_input_names_the_nearest() -> None:
    error = refusal(ConfigError, model_of({"pixel_values": [1, 3]}), shapes={"pixel_value": [1, 3]})
    assert "'pixel_value'" in error.message
    assert "pixel_values" in error.hint


def test_shape_that_contradicts_a_fixed_dimension() -> None:
    error = refusal(ConfigError, model_of({"x": ["n", 3]}), shapes={"x": [1, 4]})
    assert "dimension 1" in error.message
    assert "fixed to 3" in error.message


def test_a_batch_that_the_model_fixes_says_what_to_do() -> None:
    error = refusal(ConfigError, model_of({"x": [1, 3]}), shapes={"x": [2, 3]})
    assert "dimension 0 of the input is fixed to 1 in the model, not 2" in error.message
    assert "Export the model with dynamic axes" in error.hint
    assert "--set-batch 2" in error.hint
    error = refusal(ConfigError, model_of({"x": [1, 3]}), shapes={"x": [1, 4]})
    assert "--set-batch" not in error.hint and "dynamic axes" in error.hint


@pytest.mark.parametrize(
    ("shape", "dtype", "proposed"),
    [
        (["batch", 3, "h", None], "float32", "1,3,224,224"),
        (["N", "channels", "height", None], "float32", "1,3,224,224"),
        ([None, None, None, 3], "uint8", "1,224,224,3"),
        ([None, 3, None, None], "float32", "1,3,224,224"),
        (["batch", "past_sequence_length", None], "float32", "1,128,64"),
        (["B", "n_mels", None], "float32", "1,100,64"),
        (["unk__1", None], "int32", "1,128"),
        (["batch", 3, None, "height", "width"], "float32", "1,3,16,224,224"),
        ([None], "float32", "1"),
        (["batch", 0, 5], "float32", "1,128,5"),
    ],
)
def test_hints_propose_sizes_that_make_sense(shape: list[Any], dtype: str, proposed: str) -> None:
    assert f"--shape x={proposed}" in refusal(ModelError, model_of({"x": shape}, dtype)).hint


@pytest.mark.parametrize(
    ("shape", "dtype", "proposed"),
    [
        (["batch", 3, "h", "w"], "float32", "--dim h=224 --dim w=224"),
        (["batch_size", "sequence_length"], "int64", "--dim sequence_length=128"),
        (["batch", "audio_samples"], "float32", "--dim audio_samples=16000"),
        (["B", "n_mels", "T"], "float32", "--dim n_mels=100 --dim T=100"),
        (["unk__1", "unk__2"], "int32", "--shape x=1,128"),
    ],
)
def test_hints_name_dimensions_that_have_a_name(shape: list[Any], dtype: str, proposed: str) -> None:
    assert refusal(ModelError, model_of({"x": shape}, dtype)).hint.endswith(f": {proposed}")


def test_shape_of_the_wrong_rank() -> None:
    error = refusal(ConfigError, model_of({"x": ["n", 3]}), shapes={"x": [1, 3, 1]})
    assert "rank 2, not 3" in error.message
    assert "--shape x=1,3" in error.hint


def test_shape_and_dim_that_contradict_each_other() -> None:
    error = refusal(ConfigError, build("bert"), shapes={"input_ids": [1, 8]}, dims={"sequence": 9})
    assert "already 9" in error.message


def test_dim_that_no_input_has_names_the_nearest() -> None:
    error = refusal(ConfigError, build("bert"), dims={"sequense": 9})
    assert "'sequense'" in error.message
    assert "sequence" in error.hint


def test_dim_for_a_static_model() -> None:
    assert "no named dimensions" in refusal(ConfigError, model_of({"x": [1]}), dims={"n": 1}).hint


def test_negative_sizes_are_refused() -> None:
    refusal(ConfigError, build("bert"), dims={"batch": -1})
    refusal(ConfigError, build("bert"), shapes={"input_ids": [1, -1]})


def test_an_input_of_no_elements_is_one_that_the_user_asks_for() -> None:
    """In a file, 0 is a size of nothing or one that the exporter did not know."""
    model = model_of({"x": [2, 0, 3]})
    error = refusal(ModelError, model)
    assert "size 0" in error.message
    assert "--shape x=2,128,3;" in error.hint
    assert error.hint.endswith("--shape x=2,0,3")
    assert bind(model, shapes={"x": [2, 0, 3]}, dims={}).shapes == {"x": (2, 0, 3)}
    assert bind(model_of({"x": ["batch", 3]}), shapes={}, dims={"batch": 0}).shapes == {"x": (0, 3)}


def test_string_input_is_refused() -> None:
    model = model_of({"x": [1]})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    error = refusal(ModelError, model)
    assert "string" in error.message


def test_sequence_input_is_refused() -> None:
    model = model_of({"x": [1]})
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]))
    error = refusal(ModelError, model)
    assert "list of tensors (a sequence)" in error.message and "--inputs" in error.hint


def test_initializers_listed_as_inputs_are_no_inputs() -> None:
    assert [item.name for item in model_inputs(ODD["old_initializer_inputs"]())] == ["x"]


def test_unbound_dims_are_those_of_open_inputs_only() -> None:
    model = model_of({"x": ["n", 3], "y": [2]})
    assert unbound_dims(model) == {"x": ("n", 3)}

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.binding import bind, model_inputs, unbound_dims
from edgepack.errors import ConfigError, EdgepackError, ModelError
from tests.models import build
from tests.models.builder import Graph
from tests.models.odd import ODD


def model_of(inputs: Mapping[str, Sequence[Any] | None], dtype: str = "float32") -> onnx.ModelProto:
    g = Graph("test")
    for name, shape in inputs.items():
        g.output(g.op("Identity", g.input(name, shape, dtype)), dtype)
    return g.model()


def bound(
    model: onnx.ModelProto, shapes: dict[str, list[int]] | None = None, dims: dict[str, int] | None = None
) -> dict[str, tuple[int, ...]]:
    return bind(model, shapes=shapes or {}, dims=dims or {})


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


def test_unbound_named_dimension_gives_the_option_that_binds_it() -> None:
    error = refusal(ModelError, model_of({"image": ["batch", 3, 224, 224]}))
    assert "'image'" in error.message
    assert "'batch'" in error.message
    assert "--dim batch=1" in error.hint
    assert "--shape image=1,3,224,224" in error.hint


def test_unbound_nameless_dimension_gives_the_shape_option() -> None:
    error = refusal(ModelError, model_of({"image": [None, 3, 224, 224]}))
    assert "dimension 0" in error.message
    assert "--shape image=1,3,224,224" in error.hint
    assert "--dim" not in error.hint


def test_hint_keeps_what_is_already_bound() -> None:
    error = refusal(ModelError, build("bert"), dims={"batch": 5})
    assert "--dim sequence=128" in error.hint
    assert "--shape input_ids=5,128" in error.hint


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
        (["batch", 3, "h", "w"], "float32", "1,3,224,224"),
        (["N", "channels", "height", "width"], "float32", "1,3,224,224"),
        ([None, None, None, 3], "uint8", "1,224,224,3"),
        ([None, 3, None, None], "float32", "1,3,224,224"),
        (["batch_size", "sequence_length"], "int64", "1,128"),
        (["batch", "past_sequence_length", 64], "float32", "1,128,64"),
        (["batch", "audio_samples"], "float32", "1,16000"),
        (["B", "n_mels", "T"], "float32", "1,100,100"),
        (["unk__1", "unk__2"], "int32", "1,128"),
        (["batch", 3, None, "height", "width"], "float32", "1,3,16,224,224"),
        ([None], "float32", "1"),
        (["batch", 0, 5], "float32", "1,128,5"),
    ],
)
def test_hints_propose_sizes_that_make_sense(shape: list[Any], dtype: str, proposed: str) -> None:
    assert f"--shape x={proposed}" in refusal(ModelError, model_of({"x": shape}, dtype)).hint


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


@pytest.mark.parametrize("size", [0, -1])
def test_sizes_below_one(size: int) -> None:
    refusal(ConfigError, build("bert"), dims={"batch": size})
    refusal(ConfigError, build("bert"), shapes={"input_ids": [1, size]})


def test_zero_size_dimension_in_the_file() -> None:
    error = refusal(ModelError, model_of({"x": [0, 3]}))
    assert "size 0" in error.message
    assert "--shape x=" in error.hint


def test_string_input_is_refused() -> None:
    model = model_of({"x": [1]})
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.STRING
    error = refusal(ModelError, model)
    assert "string" in error.message


def test_sequence_input_is_refused() -> None:
    model = model_of({"x": [1]})
    model.graph.input[0].CopyFrom(helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [1]))
    assert "sequence_type" in refusal(ModelError, model).message


def test_initializers_listed_as_inputs_are_no_inputs() -> None:
    assert [item.name for item in model_inputs(ODD["old_initializer_inputs"]())] == ["x"]


def test_unbound_dims_are_those_of_open_inputs_only() -> None:
    model = model_of({"x": ["n", 3], "y": [2]})
    assert unbound_dims(model) == {"x": ("n", 3)}

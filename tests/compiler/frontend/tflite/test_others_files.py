"""What other converters write of what integers mean, and what the schema leaves out, is read as it is meant:
LiteRT, which refuses some of it, is given a copy that says it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend import tflite
from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.recorded import RECORDED
from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.compiler.frontend.tflite.schema import schema
from edgepack.errors import ModelError
from tests.support.tflite import Case, assert_same
from workbench.models.tflite import Writer

#: Places of the tensors of a layer.
IMAGE, WEIGHTS, BIAS, RESULT = range(4)


def layer(kind: str = "CONV_2D") -> Writer:
    """A convolution of bytes with a scale for each of 3 filters, or a fully connected layer of 3 units."""
    random = np.random.default_rng(1)
    writer = Writer()
    scales = np.array([0.01, 0.02, 0.03], np.float32)
    shape, weights = ([1, 4, 4, 2], [3, 2, 2, 2]) if kind == "CONV_2D" else ([1, 4], [3, 4])
    result = [1, 4, 4, 3] if kind == "CONV_2D" else [1, 3]
    writer.tensor(shape, "int8", 0.05, 3, name="x")
    writer.tensor(weights, "int8", scales, data=random.integers(-127, 128, weights, np.int8), name="w")
    bias = random.integers(-900, 900, 3, np.int32)
    writer.tensor([3], "int32", scales * np.float32(0.05), data=bias, name="b")
    writer.tensor(result, "int8", 0.1, -2, name="y")
    options = {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    writer.operator(
        kind,
        [IMAGE, WEIGHTS, BIAS],
        [RESULT],
        5,
        table="Conv2D" if kind == "CONV_2D" else "",
        **options if kind == "CONV_2D" else {},
    )
    return writer


def _axis(tensor: int, axis: int) -> Callable[[Writer], None]:
    def change(writer: Writer) -> None:
        writer.graph.tensors[tensor].quantization.quantizedDimension = axis

    return change


def _no_zero_points(writer: Writer) -> None:
    writer.graph.tensors[WEIGHTS].quantization.zeroPoint = None
    writer.graph.tensors[BIAS].quantization.zeroPoint = []


def _one_zero_point(writer: Writer) -> None:
    writer.graph.tensors[WEIGHTS].quantization.zeroPoint = [0]


def _ranges(writer: Writer) -> None:
    for tensor in writer.graph.tensors:
        tensor.quantization.min, tensor.quantization.max = [-1.0], [1.0]


def _range_of_the_bias_alone(writer: Writer) -> None:
    made = schema().QuantizationParametersT()
    made.min, made.max = [0.0], [0.0]
    writer.graph.tensors[BIAS].quantization = made


def _first_buffer_has_bytes(writer: Writer) -> None:
    writer.model.buffers[0].data = np.zeros(3, np.uint8)


def _bias_of_four_dimensions(writer: Writer) -> None:
    bias = writer.graph.tensors[BIAS]
    bias.shape, bias.quantization.scale, bias.quantization.zeroPoint = [1, 1, 1, 3], None, None


def _no_shape_of_the_result(writer: Writer) -> None:
    writer.graph.tensors[RESULT].shape = None


def _no_names(writer: Writer) -> None:
    for tensor in writer.graph.tensors[1:3]:
        tensor.name = None
    writer.graph.name = None


def _old_codes(writer: Writer) -> None:
    """From before operators had numbers above 127."""
    for code in writer.model.operatorCodes:
        code.deprecatedBuiltinCode, code.builtinCode = code.builtinCode, 0


def _new_codes(writer: Writer) -> None:
    for code in writer.model.operatorCodes:
        code.deprecatedBuiltinCode = 0


#: What others write of a layer that is the same all the same.
FORMS: dict[str, Callable[[Writer], None]] = {
    "the axis of the weights at the bias": _axis(BIAS, 3),
    "an axis below 0 at the bias": _axis(BIAS, -1),
    "an axis of one scale that is not there": _axis(IMAGE, 7),
    "no zero points": _no_zero_points,
    "one zero point of many scales": _one_zero_point,
    "ranges beside scales": _ranges,
    "a range of the bias, and no scale": _range_of_the_bias_alone,
    "a first buffer that is not empty": _first_buffer_has_bytes,
    "a bias of the result's rank": _bias_of_four_dimensions,
    "no shape of the result": _no_shape_of_the_result,
    "no names": _no_names,
    "old numbers of operators": _old_codes,
    "new numbers of operators": _new_codes,
}


@pytest.mark.parametrize("what", FORMS)
def test_a_layer_as_others_wrote_it_is_the_same(what: str, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    plain = Case(layer().finished([IMAGE], [RESULT]), tmp_path / "plain")
    writer = layer()
    FORMS[what](writer)
    case = Case(writer.finished([IMAGE], [RESULT]), tmp_path)
    assert_same(case.expected, plain.expected, what)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, what)


def test_an_axis_that_could_be_another_is_refused(tmp_path: Path) -> None:
    """Of weights no other axis is guessed."""
    writer = layer()
    _axis(WEIGHTS, 4)(writer)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([IMAGE], [RESULT]))
    with pytest.raises(ModelError, match=r"tensor 'w' of \[3, 2, 2, 2\] has 3 scales along axis 4"):
        read_model(path)


@pytest.mark.parametrize("kind", ["CONV_2D", "FULLY_CONNECTED"])
def test_a_channel_of_zeros_may_have_the_scale_0(kind: str, tmp_path: Path) -> None:
    """As TensorFlow's quantiser writes it: the channel is its zero point, the bias is lost."""
    writer = layer(kind)
    for tensor in (WEIGHTS, BIAS):
        scales = writer.graph.tensors[tensor].quantization.scale
        scales[1] = 0.0
    case = Case(writer.finished([IMAGE], [RESULT]), tmp_path)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, kind)
    assert (case.expected["y"][..., 1] == -2).all()


def test_a_scale_of_0_of_what_is_computed_is_refused(tmp_path: Path) -> None:
    writer = layer()
    writer.graph.tensors[RESULT].quantization.scale = [0.0]
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([IMAGE], [RESULT]))
    with pytest.raises(ModelError, match="tensor 'y' has no valid scales"):
        read_model(path)


def test_what_is_said_of_integers_is_not_asked_of_floats(tmp_path: Path) -> None:
    """Scales that training left at floats: two that differ, one that fits no axis, one that is no number."""
    writer = Writer()
    x = writer.tensor([1, 4, 4, 2], "float32", 0.5, 3, name="x")
    y = writer.tensor([1, 2, 2, 2], "float32", [0.25, 0.5, 1.0], 0, axis=1, name="y")
    z = writer.tensor([1, 2, 2, 2], "float32", float("nan"), 0, name="z")
    writer.operator("MAX_POOL_2D", [x], [y], 1, "Pool2D", strideH=2, strideW=2, filterHeight=2, filterWidth=2)
    writer.operator("RELU", [y], [z])
    case = Case(writer.finished([x], [z]), tmp_path)
    assert_same({"z": evaluate(case.converted.model, case.inputs)[0]}, case.expected, "floats")


def test_shapes_of_what_is_computed_are_not_believed(tmp_path: Path) -> None:
    """Converters leave them open, or out: of a convolution and a pooled image all sizes are 1 in the file."""
    writer = layer()
    writer.graph.tensors[RESULT].shape, writer.graph.tensors[RESULT].shapeSignature = [1] * 4, [-1] * 4
    y = writer.tensor([], "int8", 0.1, -2, name="pooled")
    options = {"strideH": 2, "strideW": 1, "filterHeight": 2, "filterWidth": 3, "padding": 1}
    writer.operator("AVERAGE_POOL_2D", [RESULT], [y], 2, "Pool2D", **options)
    case = Case(writer.finished([IMAGE], [y]), tmp_path)
    assert case.converted.outputs[0].shape == (1, 2, 2, 3)
    found = evaluate(case.converted.model, case.inputs)[0]
    assert_same({"pooled": found}, case.expected, "pooled")


def test_a_bias_without_a_scale_has_that_of_the_products(tmp_path: Path) -> None:
    """LiteRT refuses a fully connected layer whose bias has another."""
    for scale in (0.005, 0.3):
        writer = layer("FULLY_CONNECTED")
        writer.graph.tensors[WEIGHTS].quantization.scale = [scale]
        writer.graph.tensors[WEIGHTS].quantization.zeroPoint = [0]
        writer.graph.tensors[BIAS].quantization = None
        case = Case(writer.finished([IMAGE], [RESULT]), tmp_path)
        assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, str(scale))


@pytest.mark.parametrize("kind", ["BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "SPLIT_V"])
def test_an_operand_that_is_left_out_is_not_the_last_tensor(kind: str, tmp_path: Path) -> None:
    """-1 stands for it; LiteRT ends the process."""
    writer = Writer()
    x = writer.tensor([4, 2, 2, 1], "float32", name="x")
    sizes = writer.tensor([2], "int32", data=np.array([2, 2], np.int32))
    y = writer.tensor([1, 4, 4, 1], "float32", name="y")
    writer.tensor([2, 2], "int32", data=np.zeros((2, 2), np.int32), name="last")
    writer.operator(kind, [x, sizes, -1], [y])
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [y]))
    with pytest.raises(ModelError, match=f"{kind}: an operand that is left out"):
        convert(read_model(path))


def test_a_value_to_pad_with_may_be_left_out(tmp_path: Path) -> None:
    writer = Writer()
    x, y = writer.tensor([2, 3], "int8", 0.5, 7, name="x"), writer.tensor([4, 3], "int8", 0.5, 7, name="y")
    pads = writer.tensor([2, 2], "int32", data=np.array([[1, 1], [0, 0]], np.int32))
    writer.operator("PADV2", [x, pads, -1], [y], 2, "PadV2")
    case = Case(writer.finished([x], [y]), tmp_path)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, "padded")


def test_options_that_are_missing_are_the_schemas(tmp_path: Path) -> None:
    """Classes along the first axis, not the last."""
    writer = Writer()
    x, y = writer.tensor([2], "int32", name="x"), writer.tensor([3, 2], "float32", name="y")
    depth, on, off = (
        writer.tensor([], kind, data=np.array(value, kind))
        for kind, value in (("int32", 3), ("float32", 1), ("float32", 0))
    )
    writer.operator("ONE_HOT", [x, depth, on, off], [y])
    writer.graph.operators[0].builtinOptions, writer.graph.operators[0].builtinOptionsType = None, 0
    case = Case(writer.finished([x], [y]), tmp_path)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, "classes")


def test_a_model_need_not_have_a_buffer(tmp_path: Path) -> None:
    writer = Writer()
    x, y = (writer.tensor([2, 3], "float32", name=name) for name in "xy")
    writer.operator("ADD", [x, x], [y])
    writer.graph.inputs, writer.graph.outputs, writer.model.buffers = [x], [y], None
    builder = flatbuffers.Builder(1024)
    builder.Finish(writer.model.Pack(builder), b"TFL3")
    case = Case(bytes(builder.Output()), tmp_path)
    np.testing.assert_array_equal(case.expected["y"], 2 * case.inputs["x"])


@pytest.mark.parametrize("scale", [None, 0.1])
def test_sizes_that_are_an_input_are_those_of_the_file(scale: float | None, tmp_path: Path) -> None:
    """As tests of TensorFlow Lite Micro have it, which does not read them; LiteRT was given any numbers."""
    writer, kind = Writer(), "float32" if scale is None else "int8"
    sizes = writer.tensor([4], "int32", name="sizes")
    x = writer.tensor([1, 3, 3, 2], kind, scale, name="x")
    numbers = np.random.default_rng(2).integers(-127, 127, [4, 2, 2, 2]).astype(kind)
    w = writer.tensor([4, 2, 2, 2], kind, scale, data=numbers)
    y = writer.tensor([1, 6, 6, 4], kind, scale, name="y")
    writer.operator("TRANSPOSE_CONV", [sizes, w, x], [y], 3, strideH=2, strideW=2)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([sizes, x], [y]))
    notes = tflite.prepare(path, ImportOptions(), tmp_path)
    assert any("'sizes' says the shape of a result, which is [1, 6, 6, 4]" in note for note in notes)
    tflite.record(path, ImportOptions(), tmp_path, seed=1, inputs={})
    recorded = json.loads((tmp_path / RECORDED / "recorded.json").read_text(encoding="utf-8"))
    assert recorded["reference"] == "LiteRT, reference kernels"

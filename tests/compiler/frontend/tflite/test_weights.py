"""Weights of all widths beside floats, bytes and words: what LiteRT reads as it is, and what it misreads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend.onnx.fixed_point_reference import multiply
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.tflite.convert import Converted, convert
from edgepack.compiler.frontend.tflite.fixed_point import quantize_multiplier
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.errors import ModelError
from tests.support.tflite import Case, assert_same
from workbench.models.tflite import Writer

FILTERS = 4

#: Shapes of the data, the weights and the result, and the axis of the filters.
SHAPES: dict[str, tuple[list[int], list[int], list[int], int]] = {
    "FULLY_CONNECTED": ([2, 6], [FILTERS, 6], [2, FILTERS], 0),
    "CONV_2D": ([1, 5, 5, 3], [FILTERS, 2, 2, 3], [1, 5, 5, FILTERS], 0),
    "DEPTHWISE_CONV_2D": ([1, 5, 5, FILTERS], [1, 2, 2, FILTERS], [1, 5, 5, FILTERS], 3),
    "BATCH_MATMUL": ([1, 2, 6], [1, 6, FILTERS], [1, 2, FILTERS], 2),
}
TABLES = {"CONV_2D": "Conv2D", "DEPTHWISE_CONV_2D": "DepthwiseConv2D", "BATCH_MATMUL": "BatchMatMul"}
RANGES = {"int8": 127, "int4": 7, "int2": 1, "uint8": 255}


def packed(numbers: Any, bits: int) -> Any:
    """As many numbers of so many bits as a byte holds, the first one lowest."""
    each = 8 // bits
    flat = numbers.reshape(-1).astype(np.int64) & ((1 << bits) - 1)
    flat = np.append(flat, np.zeros(-flat.size % each, np.int64)).reshape(-1, each)
    return (flat << (bits * np.arange(each))).sum(1).astype(np.uint8)


def layer(
    kind: str, data: str, weights: str, *, many: bool = False, bias: str = "", zero: int = 0, **options: Any
) -> tuple[bytes, Any]:
    """A layer of 4 filters, and its weights' integers."""
    random, writer = np.random.default_rng(5), Writer()
    image, shape, result, axis = SHAPES[kind]
    middle = {"int8": 3, "uint8": 131}.get(data, 0)
    scaled = {} if data == "float32" else {"scale": 0.05, "zero": middle}
    x = writer.tensor(image, data, name="x", **scaled)
    scales: Any = np.arange(1, FILTERS + 1, dtype=np.float32) / 100 if many else np.float32(0.02)
    numbers = random.integers(-RANGES[weights] if weights != "uint8" else 0, RANGES[weights] + 1, shape)
    bits = {"int4": 4, "int2": 2}.get(weights)
    content = packed(numbers, bits) if bits else numbers.astype(weights)
    operands = [x, writer.tensor(shape, weights, scales, zero, axis, content)]
    if bias:
        scale = None if bias == "float32" else np.float32(0.05) * scales
        added = random.integers(-300, 300, FILTERS) / (300 if bias == "float32" else 1)
        operands.append(writer.tensor([FILTERS], bias, scale, data=added.astype(bias)))
    y = writer.tensor(result, data, name="y", **(scaled and {**scaled, "scale": 0.1}))
    if "CONV" in kind:
        options |= {"strideH": 1, "strideW": 1, "dilationHFactor": 1, "dilationWFactor": 1}
    if kind == "DEPTHWISE_CONV_2D":
        options["depthMultiplier"] = 1
    writer.operator(kind, operands, [y], 5, TABLES.get(kind, ""), **options)
    return writer.finished([x], [y]), numbers


def converted(content: bytes, folder: Path) -> Converted:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return convert(read_model(path))


def products(kind: str, x: Any, weights: Any) -> Any:
    """Sums of products of a fully connected layer, or of a convolution (SAME: zeros behind)."""
    if kind == "FULLY_CONNECTED":
        return x @ weights.T
    wide = np.pad(x, ((0, 0), (0, 1), (0, 1), (0, 0)))
    windows = np.stack([wide[:, r : r + 5, c : c + 5] for r in (0, 1) for c in (0, 1)], -2)
    if kind == "DEPTHWISE_CONV_2D":
        return (windows * weights.reshape(4, FILTERS)).sum(-2)
    return np.einsum("nhwtc,otc->nhwo", windows, weights.reshape(FILTERS, 4, 3))


@pytest.mark.parametrize("weights", ["int8", "int4", "int2"])
@pytest.mark.parametrize("data", ["int8", "int16"])
def test_a_fully_connected_layer_takes_narrow_weights(data: str, weights: str, tmp_path: Path) -> None:
    for many in (False, True):
        bias = "int32" if data == "int8" else "int64"
        case = Case(layer("FULLY_CONNECTED", data, weights, many=many, bias=bias)[0], tmp_path)
        assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, weights)


#: Layers whose weights LiteRT would read as another type, or without their zero point.
MISREAD = {
    "bytes without sign for such with one": ("FULLY_CONNECTED", "int8", "uint8", {}, "weights of uint8 for"),
    "bytes with a sign for such without": ("FULLY_CONNECTED", "uint8", "int8", {}, "weights of int8 for"),
    "such of a convolution": ("CONV_2D", "uint8", "int8", {}, "weights of int8 for data of uint8"),
    "halves of bytes for words": (
        "DEPTHWISE_CONV_2D",
        "int16",
        "int4",
        {},
        "weights of int4 for data of int16",
    ),
    "a zero point of filters": ("DEPTHWISE_CONV_2D", "int8", "int8", {"zero": 5}, "zero points of weights"),
    "zero points of channels": ("FULLY_CONNECTED", "int8", "int8", {"zero": 5, "many": True}, "zero points"),
    "scales of columns": ("BATCH_MATMUL", "int8", "int8", {"many": True}, "several scales of an operand"),
    "a zero point beside floats": (
        "FULLY_CONNECTED",
        "float32",
        "uint8",
        {"zero": 128},
        "weights of uint8 with",
    ),
}


@pytest.mark.parametrize("what", MISREAD)
def test_weights_that_litert_misreads_are_refused(what: str, tmp_path: Path) -> None:
    kind, data, weights, more, said = MISREAD[what]
    bias = {"int16": "int64", "float32": "float32"}.get(data, "int32") if kind != "BATCH_MATMUL" else ""
    with pytest.raises(ModelError, match=f"{kind}: {said}"):
        converted(layer(kind, data, weights, bias=bias, **more)[0], tmp_path)


@pytest.mark.parametrize("kind", ["FULLY_CONNECTED", "CONV_2D"])
def test_bytes_without_sign_beside_floats_have_one(kind: str, tmp_path: Path) -> None:
    """As files have them from before there was int8, and as LiteRT reads them."""
    case = Case(layer(kind, "float32", "uint8", bias="float32")[0], tmp_path)
    found, wanted = evaluate(case.converted.model, case.inputs)[0], case.expected["y"]
    assert np.abs(found - wanted).max() < 0.02 * np.abs(wanted).max()


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_filters_of_one_scale_beside_floats_are_not_asked_of_litert(weights: str, tmp_path: Path) -> None:
    """Of each channel its kernel reads a scale of its own, behind the only one."""
    content, numbers = layer("DEPTHWISE_CONV_2D", "float32", weights)
    made = converted(content, tmp_path)
    x = np.random.default_rng(1).standard_normal((1, 5, 5, FILTERS)).astype(np.float32)
    wanted = products("DEPTHWISE_CONV_2D", x, numbers * np.float32(0.02)).astype(np.float32)
    assert_same({"y": evaluate(made.model, {"x": x})[0]}, {"y": wanted}, weights)
    assert made.foreign == {"DEPTHWISE_CONV_2D"} and made.hybrid == 1


@pytest.mark.parametrize("kind", ["FULLY_CONNECTED", "CONV_2D"])
@pytest.mark.parametrize("many", [False, True])
def test_a_bias_of_32_bits_of_words_is_that_of_the_micro_kernel(
    kind: str, many: bool, tmp_path: Path
) -> None:
    """LiteRT reads pairs of them as 64 bits, but of convolutions that say their type."""
    content, numbers = layer(kind, "int16", "int8", many=many, bias="int32")
    made = converted(content, tmp_path)
    bias = next(one.data for one in made.subgraph.tensors if one.dtype == "int32" and one.data is not None)
    x = np.random.default_rng(2).integers(-9000, 9000, SHAPES[kind][0]).astype(np.int16)
    sums = (products(kind, x.astype(np.int64), numbers) + bias).astype(np.int32)
    scales = np.arange(1, FILTERS + 1, dtype=np.float32) / 100 if many else [np.float32(0.02)] * FILTERS
    factors = [float(np.float32(0.05)) * float(one) / float(np.float32(0.1)) for one in scales]
    parts = [multiply(sums[..., i], *map(np.asarray, quantize_multiplier(f))) for i, f in enumerate(factors)]
    wanted = np.clip(np.stack(parts, -1), -32768, 32767).astype(np.int16)
    assert_same({"y": evaluate(made.model, {"x": x})[0]}, {"y": wanted}, kind)
    assert made.foreign == {kind}


def test_a_convolution_that_says_the_type_of_its_bias_is_asked_of_litert(tmp_path: Path) -> None:
    case = Case(layer("CONV_2D", "int16", "int8", bias="int32", quantizedBiasType=2)[0], tmp_path)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, "a bias of int32")
    assert not case.converted.foreign


def test_a_convolution_need_not_have_a_bias(tmp_path: Path) -> None:
    """LiteRT wants one, TensorFlow Lite Micro does not."""
    content, numbers = layer("CONV_2D", "int8", "int8")
    made = converted(content, tmp_path)
    x = np.random.default_rng(3).integers(-128, 128, SHAPES["CONV_2D"][0]).astype(np.int8)
    factor = float(np.float32(0.05)) * float(np.float32(0.02)) / float(np.float32(0.1))
    sums = products("CONV_2D", x.astype(np.int32) - 3, numbers).astype(np.int32)
    scaled = multiply(sums, *map(np.asarray, quantize_multiplier(factor)))
    wanted = np.clip(scaled + 3, -128, 127).astype(np.int8)
    assert_same({"y": evaluate(made.model, {"x": x})[0]}, {"y": wanted}, "no bias")
    assert made.foreign == {"CONV_2D"}


@pytest.mark.parametrize("constant", [True, False])
def test_words_times_bytes_are_the_interpreters(constant: bool, tmp_path: Path) -> None:
    random, writer = np.random.default_rng(8), Writer()
    x = writer.tensor([2, 3, 40], "int16", 0.001, name="x")
    numbers = random.integers(-127, 128, [2, 40, 5], np.int8) if constant else None
    w = writer.tensor([2, 40, 5], "int8", 0.02, data=numbers, name="w")
    y = writer.tensor([2, 3, 5], "int16", 0.003, name="y")
    writer.operator("BATCH_MATMUL", [x, w], [y], 4, "BatchMatMul")
    case = Case(writer.finished([x] if constant else [x, w], [y]), tmp_path)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, "words times bytes")
    assert np.unique(case.expected["y"]).size > 10


@pytest.mark.parametrize(
    ("other", "count", "said"), [("int16", 4, "int16 and int16"), ("int8", 600, "32 bits")]
)
def test_products_of_words_that_need_64_bits_are_refused(
    other: str, count: int, said: str, tmp_path: Path
) -> None:
    writer = Writer()
    x, w = writer.tensor([3, count], "int16", 0.001), writer.tensor([count, 5], other, 0.02)
    y = writer.tensor([3, 5], "int16", 0.003)
    writer.operator("BATCH_MATMUL", [x, w], [y], 4, "BatchMatMul")
    with pytest.raises(ModelError, match=said):
        converted(writer.finished([x, w], [y]), tmp_path)

"""QUANTIZE and DEQUANTIZE between all types, by one scale and by several."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ai_edge_litert", reason="LiteRT is not installed: pip install edgepack[tflite]")

from edgepack.compiler.frontend.onnx.fixed_point_reference import multiply
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.tflite.convert import convert
from edgepack.compiler.frontend.tflite.fixed_point import quantize_multiplier
from edgepack.compiler.frontend.tflite.interpreter import Interpreter
from edgepack.compiler.frontend.tflite.model_file import read_model
from edgepack.errors import ModelError
from tests.support.tflite import Case, assert_same
from workbench.compiled import Compiled, target_with
from workbench.models.tflite import Writer

INTEGERS = ("int8", "uint8", "int16", "int32")

#: What LiteRT has no kernel for; TensorFlow Lite Micro has the first.
NOT_LITERTS = {
    ("int8", "int32"),
    ("uint8", "int32"),
    ("int16", "uint8"),
    ("int32", "uint8"),
    ("int32", "int32"),
}


def requantising(source: str, target: str, scales: tuple[float, float], zeros: tuple[int, int]) -> bytes:
    writer = Writer()
    x = writer.tensor([2, 64], source, scales[0], zeros[0], name="x")
    y = writer.tensor([2, 64], target, scales[1], zeros[1], name="y")
    writer.operator("QUANTIZE", [x], [y], 2)
    return writer.finished([x], [y])


def numbers(dtype: str, zero: int) -> Any:
    """The ends and what lies around the zero point; of int32 what a scaled sum may be."""
    info = np.iinfo(dtype)
    ends = (-(1 << 30), 1 << 30) if dtype == "int32" else (info.min, info.max)
    drawn = np.random.default_rng(3).integers(*ends, 124, endpoint=True)
    return np.clip([*ends, zero, zero + 1, *drawn], *ends).astype(dtype).reshape(2, 64)


@pytest.mark.parametrize("target", INTEGERS)
@pytest.mark.parametrize("source", INTEGERS)
def test_integers_become_those_of_another_scale(source: str, target: str, tmp_path: Path) -> None:
    """By LiteRT where it has a kernel, and always as ``reference_ops::Requantize`` says."""
    bits = {"int8": 8, "uint8": 8, "int16": 16, "int32": 30}
    zeros = {"int8": -3, "uint8": 131, "int16": 0, "int32": 0}
    scales = 0.013, float(np.float32(0.017 * 2.0 ** max(bits[source] - bits[target], -8)))
    content = requantising(source, target, scales, (zeros[source], zeros[target]))
    path = tmp_path / "model.tflite"
    path.write_bytes(content)
    converted = convert(read_model(path))
    inputs = {"x": numbers(source, zeros[source])}
    factor = float(np.float32(scales[0])) / float(np.float32(scales[1]))
    centred = inputs["x"].astype(np.int32) - zeros[source]
    scaled = multiply(centred, *(np.asarray(value) for value in quantize_multiplier(factor)))
    info = np.iinfo(target)
    wanted = {"y": np.clip(scaled.astype(np.int64) + zeros[target], info.min, info.max).astype(target)}
    assert_same({"y": evaluate(converted.model, inputs)[0]}, wanted, f"{source} to {target}")
    assert bool(converted.foreign) == ((source, target) in NOT_LITERTS)
    if not converted.foreign:
        case = Case(content, tmp_path)
        assert_same({"y": evaluate(converted.model, case.inputs)[0]}, case.expected, f"{source} to {target}")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_floats_become_integers_by_a_scale_for_each_channel(dtype: str, tmp_path: Path) -> None:
    writer = Writer()
    zeros = {"int8": [-5, 0, 7], "uint8": [120, 128, 131], "int16": 0}[dtype]
    x = writer.tensor([2, 3, 5], "float32", name="x")
    y = writer.tensor([2, 3, 5], dtype, [0.011, 0.03, 0.007], zeros, axis=1, name="y")
    writer.operator("QUANTIZE", [x], [y], 2)
    case = Case(writer.finished([x], [y]), tmp_path)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, dtype)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32"])
def test_integers_of_a_scale_for_each_channel_become_floats(dtype: str, tmp_path: Path) -> None:
    """LiteRT has no kernel for the wide ones, and is not asked."""
    writer = Writer()
    scales, zeros = np.array([0.011, 0.03, 0.007], np.float32), np.array([5, 0, 7])
    x = writer.tensor([2, 3, 5], dtype, scales, zeros, axis=1, name="x")
    z = writer.tensor([2, 3, 5], "float32", name="z")
    writer.operator("DEQUANTIZE", [x], [z], 5)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [z]))
    converted = convert(read_model(path))
    inputs = {"x": np.random.default_rng(4).integers(0, 100, [2, 3, 5]).astype(dtype)}
    centred = (inputs["x"].astype(np.int32) - zeros.reshape(3, 1)).astype(np.float32)
    wanted = {"z": centred * scales.reshape(3, 1)}
    assert_same({"z": evaluate(converted.model, inputs)[0]}, wanted, dtype)
    assert bool(converted.foreign) == (dtype in {"int16", "int32"})


def test_halves_and_what_is_next_to_them_are_rounded_as_litert_does(tmp_path: Path) -> None:
    """The largest float below a half became 1: half of it was added to it."""
    writer = Writer()
    x, y = writer.tensor([1, 64], "float32", name="x"), writer.tensor([1, 64], "int16", 1.0, name="y")
    writer.operator("QUANTIZE", [x], [y], 2)
    case = Case(writer.finished([x], [y]), tmp_path)
    halves = np.array([0.5, 1.5, 2.5, 7.5, 100.5, 1000.5, 16383.5, 32766.5, 32767.5, 40000.0], np.float32)
    near = np.concatenate(
        [halves, np.nextafter(halves, np.float32(0)), np.nextafter(halves, np.float32(1e9))]
    )
    values = np.concatenate([near, -near, [0, -0.0, np.inf, -np.inf]]).astype(np.float32).reshape(1, 64)
    down = np.floor(np.abs(values.astype(np.float64)) + 0.5)
    wanted = {"y": np.clip(np.copysign(down, values), -32768, 32767).astype(np.int16)}
    assert_same({"y": evaluate(case.converted.model, {"x": values})[0]}, wanted, "halves")
    made = Compiled({"model": case.converted.model}, tmp_path, target_with("128x16"))
    assert_same(made.run("model", {"x": values}, poison=0xFF), wanted, "halves, compiled")


@pytest.mark.parametrize("source", ["float32", "int8"])
def test_several_scales_where_no_kernel_has_them_are_refused(source: str, tmp_path: Path) -> None:
    writer = Writer()
    x = writer.tensor([3], source, None if source == "float32" else 0.5, name="x")
    kind = "int32" if source == "float32" else "int8"
    y = writer.tensor([3], kind, [0.5, 0.25, 1.0], name="y")
    writer.operator("QUANTIZE", [x], [y], 2)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [y]))
    with pytest.raises(ModelError, match="float32 as int32" if source == "float32" else "has not one scale"):
        convert(read_model(path))


def test_parts_without_sign_are_brought_to_the_scale_of_the_whole(tmp_path: Path) -> None:
    """As LiteRT does for uint8 alone, in float32: all bytes of parts of ten scales."""
    random = np.random.default_rng(6)
    writer, parts, values = Writer(), [], {}
    for place in range(10):
        scale, zero = float(random.uniform(0.01, 0.1)), int(random.integers(256))
        parts.append(
            writer.tensor([1, 256], "uint8", *((scale, zero) if place else (0.05, 120)), name=f"x{place}")
        )
        values[f"x{place}"] = np.arange(256, dtype=np.uint8).reshape(1, 256)
    y = writer.tensor([10, 256], "uint8", 0.05, 120, name="y")
    writer.operator("CONCATENATION", parts, [y], 1, axis=0)
    content = writer.finished(parts, [y])
    case = Case(content, tmp_path)
    interpreter = Interpreter(content, dict(zip(parts, values.values(), strict=True)))
    interpreter.run(dict(zip(parts, values.values(), strict=True)))
    wanted = {"y": interpreter.tensor(y)}
    assert_same({"y": evaluate(case.converted.model, values)[0]}, wanted, "parts")
    made = Compiled({"model": case.converted.model}, tmp_path, target_with("128x16"))
    assert_same(made.run("model", values, poison=0xFF), wanted, "parts, compiled")


def test_bytes_that_are_moved_are_as_they_are_whatever_scale_is_said_behind(tmp_path: Path) -> None:
    writer = Writer()
    x = writer.tensor([2, 6], "int8", 0.5, 3, name="x")
    reshaped = writer.tensor([3, 4], "int8", name="reshaped")
    pooled = writer.tensor([1, 3, 4, 1], "int8", 0.25, 1, name="image")
    y = writer.tensor([1, 3, 4, 1], "int8", 0.25 + 5e-7, 1, name="y")
    writer.operator("RESHAPE", [x], [reshaped], newShape=[3, 4])
    writer.operator("RESHAPE", [reshaped], [pooled], newShape=[1, 3, 4, 1])
    writer.operator(
        "MAX_POOL_2D", [pooled], [y], 2, "Pool2D", strideH=1, strideW=1, filterHeight=2, filterWidth=2
    )
    case = Case(writer.finished([x], [y]), tmp_path)
    assert_same({"y": evaluate(case.converted.model, case.inputs)[0]}, case.expected, "moved")


def test_padding_wants_one_scale(tmp_path: Path) -> None:
    writer = Writer()
    x, y = writer.tensor([2, 3], "int8", 0.5, 7, name="x"), writer.tensor([4, 3], "int8", 0.25, 7, name="y")
    pads = writer.tensor([2, 2], "int32", data=np.array([[1, 1], [0, 0]], np.int32))
    writer.operator("PAD", [x, pads], [y], 2)
    path = tmp_path / "model.tflite"
    path.write_bytes(writer.finished([x], [y]))
    with pytest.raises(ModelError, match="PAD: another scale behind it than before"):
        convert(read_model(path))

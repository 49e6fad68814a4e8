"""Element types of 8 bits and fewer: their tables against those of ml_dtypes, and how they are recorded."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.base import ImportOptions
from edgepack.compiler.frontend.onnx import prepare, record
from edgepack.compiler.frontend.onnx.storage_types import as_bytes, encoding, from_bytes

FLOATS = {
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
}


def hard_numbers(least: np.ndarray) -> np.ndarray:
    """Magnitudes at, next to and between the borders of codes."""
    rng = np.random.default_rng(7)
    between = rng.uniform(0, 1, (8, len(least) - 1)) * np.diff(least) + least[:-1]
    borders = [least, np.nextafter(least, np.float32(0)), np.nextafter(least, np.float32(np.inf))]
    return np.concatenate([np.zeros(1), *borders, between.reshape(-1)]).astype(np.float32)


@pytest.mark.parametrize("name", FLOATS)
def test_number_of_borders_that_are_reached_is_the_code(name: str) -> None:
    least, table, nan = encoding(name, "nearest")
    numbers = hard_numbers(least)
    numbers = numbers[numbers < least[-1]]
    codes = (numbers[:, None] >= least).sum(axis=1)
    expected = numbers.astype(FLOATS[name])
    np.testing.assert_array_equal(codes, expected.view(np.uint8))
    np.testing.assert_array_equal(table[codes], expected.astype(np.float32))
    assert np.isnan(table[nan]) or name == "float4e2m1"  # which has none


@pytest.mark.parametrize(("rounding", "direction"), [("up", 1), ("down", -1)])
def test_powers_of_two_are_rounded_as_asked(rounding: str, direction: int) -> None:
    least, table, _ = encoding("float8e8m0", rounding)
    numbers = np.float32([0.25, 0.3, 0.5, 0.50001, 3, 4])
    codes = (numbers[:, None] >= least).sum(axis=1)
    exact = np.log2(numbers.astype(np.float64))
    wanted = 2.0 ** (np.ceil(exact) if direction > 0 else np.floor(exact))
    np.testing.assert_array_equal(table[codes], wanted.astype(np.float32))


def test_bytes_are_what_was_held() -> None:
    for array, element in (
        (np.arange(-8, 8).astype(ml_dtypes.int4), TensorProto.INT4),
        (np.arange(16).astype(ml_dtypes.uint4), TensorProto.UINT4),
        (np.arange(256, dtype=np.uint8).view(ml_dtypes.float8_e5m2), TensorProto.FLOAT8E5M2),
    ):
        held = as_bytes(array)
        assert held.dtype == (np.int8 if element == TensorProto.INT4 else np.uint8)
        assert from_bytes(held, element).tobytes() == array.tobytes()


def test_narrow_outputs_are_recorded_as_bytes_by_onnx(tmp_path: Path) -> None:
    node = helper.make_node("Cast", ["x"], ["y"], to=TensorProto.FLOAT8E4M3FN)
    values = [
        helper.make_tensor_value_info("x", TensorProto.INT4, [2, 5]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT8E4M3FN, [2, 5]),
    ]
    graph = helper.make_graph([node], "narrow", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    path = tmp_path / "narrow.onnx"
    onnx.save(model, path)
    prepare(path, ImportOptions(), tmp_path)
    record(path, ImportOptions(), tmp_path, seed=1, inputs={})
    recorded = json.loads((tmp_path / "recorded" / "recorded.json").read_text(encoding="utf-8"))
    assert recorded["reference"] == f"onnx {onnx.__version__}"
    assert [item["dtype"] for item in (*recorded["inputs"], *recorded["outputs"])] == ["int8", "uint8"]
    x = np.fromfile(tmp_path / "recorded" / "input_0.bin", np.int8)
    y = np.fromfile(tmp_path / "recorded" / "output_0.bin", np.uint8)
    assert np.abs(x).max() > 0
    np.testing.assert_array_equal(y.view(ml_dtypes.float8_e4m3fn).astype(np.float32), x)

"""Weights beside a model's file, and how much memory they take on their way into a bundle."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from edgepack.compiler.frontend.onnx.external_data import read_tensor, save_with_data

#: Times the params, and what Python, TVM and ONNX Runtime take themselves.
TIMES, BASE = 3.0, 350 << 20


def test_what_was_saved_is_the_same_model_and_the_given_one_is_unchanged(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    large = numpy_helper.from_array(rng.standard_normal((40, 50)).astype(np.float32), "large")
    narrow = helper.make_tensor("narrow", onnx.TensorProto.INT4, [4096], rng.bytes(2048), raw=True)
    typed = helper.make_tensor("typed", onnx.TensorProto.FLOAT, [500], rng.standard_normal(500))
    constants = [large, narrow, typed, numpy_helper.from_array(np.float32(2), "small")]
    nodes = [helper.make_node("MatMul", ["x", "large"], ["y"], name="product")]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "graph", [value("x", 1, [1, 40])], [value("y", 1, [1, 50])], constants, "what it is"
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], producer_name="us")
    helper.set_model_props(model, {"key": "value"})
    before = model.SerializeToString(deterministic=True)

    save_with_data(model, tmp_path / "model.onnx", "model.data")
    assert model.SerializeToString(deterministic=True) == before
    light = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert [tensor.data_location for tensor in light.graph.initializer] == [1, 1, 0, 0]
    for tensor, wanted in zip(light.graph.initializer, constants, strict=True):
        np.testing.assert_array_equal(read_tensor(tensor, tmp_path), numpy_helper.to_array(wanted))
        assert not tensor.raw_data or tensor.data_location == onnx.TensorProto.DEFAULT
    whole = onnx.load(tmp_path / "model.onnx")
    for tensor in whole.graph.initializer:
        del tensor.external_data[:]
        tensor.ClearField("data_location")
    assert whole.SerializeToString(deterministic=True) == before


_PACK = """
import resource, sys
import edgepack
edgepack.pack(sys.argv[1], "linux-x86_64-v3", sys.argv[2], cache=False)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


@pytest.mark.slow
def test_a_model_takes_no_more_memory_than_three_times_its_params(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    weights = [numpy_helper.from_array(rng.standard_normal((4096, 4096), "f"), f"w{i}") for i in range(12)]
    nodes = []
    for i in range(12):
        nodes.append(helper.make_node("MatMul", [f"x{i}", f"w{i}"], [f"h{i}"]))
        nodes.append(helper.make_node("Relu", [f"h{i}"], [f"x{i + 1}"]))
    value = helper.make_tensor_value_info
    graph = helper.make_graph(nodes, "g", [value("x0", 1, [1, 4096])], [value("x12", 1, [1, 4096])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "large.onnx", save_as_external_data=True, location="large.bin")
    command = [sys.executable, "-c", _PACK, str(tmp_path / "large.onnx"), str(tmp_path / "bundle")]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    params = (tmp_path / "bundle/params/large.params").stat().st_size
    assert int(done.stdout.split()[-1]) < TIMES * params + BASE

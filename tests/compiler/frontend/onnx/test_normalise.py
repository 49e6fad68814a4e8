from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from edgepack.compiler.frontend.onnx import onnxruntime_session
from edgepack.compiler.frontend.onnx.binding import bind
from edgepack.compiler.frontend.onnx.normalise import normalise
from edgepack.compiler.frontend.onnx.onnxruntime_session import as_source
from edgepack.compiler.frontend.onnx.shapes import infer_shapes
from workbench.models import DIMS, build
from workbench.models.builder import Graph
from workbench.models.evaluate import random_inputs, run_onnxruntime


def bound(name: str) -> onnx.ModelProto:
    model = build(name)
    bind(model, shapes={}, dims=DIMS.get(name, {}))
    return model


@pytest.mark.parametrize("name", ["bert", "mobilenetv3", "yolo", "light_shufflenet"])
def test_normalised_model_is_standard_and_static_and_computes_the_same(name: str) -> None:
    normal = normalise(bound(name))
    assert {node.domain for node in normal.graph.node} == {""}
    assert not {"Shape", "Constant", "ConstantOfShape"} & {node.op_type for node in normal.graph.node}
    assert [i.name for i in normal.graph.input] == list(random_inputs(build(name), 0, DIMS.get(name)))
    inputs = random_inputs(build(name), 3, DIMS.get(name))
    for wanted, found in zip(
        run_onnxruntime(bound(name), inputs), run_onnxruntime(normal, inputs), strict=True
    ):
        np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-4 * np.abs(wanted).max())


def test_functions_that_onnxruntime_inlines_are_folded_too() -> None:
    from workbench.models.operators import CASES

    operators = {node.op_type for node in normalise(CASES["groupnorm_21"]()).graph.node}
    assert not {"Shape", "Concat", "Cast"} & operators


def test_shapes_of_all_values_are_known_though_large_weights_are_left_out() -> None:
    model = bound("mobilenetv3")
    inferred = infer_shapes(model)
    assert inferred.ByteSize() < model.ByteSize() / 2
    known = {value.name for value in (*inferred.graph.value_info, *inferred.graph.output)}
    assert {name for node in model.graph.node for name in node.output} <= known


def test_models_beyond_the_limit_of_protobuf_go_through_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnxruntime_session, "SERIALISED_LIMIT", 1000)
    model = build("mlp")
    before = model.SerializeToString()
    with as_source(model) as source:
        assert isinstance(source, str)
        assert Path(source).with_name("model.data").stat().st_size > 900_000
    assert not Path(source).exists()
    assert model.SerializeToString() == before
    x = random_inputs(model, 1)
    normal = normalise(model)
    np.testing.assert_allclose(run_onnxruntime(normal, x)[0], run_onnxruntime(build("mlp"), x)[0], rtol=1e-5)


@pytest.mark.parametrize("second", [(0.03, 10), (0.1, 0), (0.4, 90)])
def test_a_number_that_is_quantised_twice_is_rounded_twice(second: tuple[float, int]) -> None:
    """ONNX Runtime's basic optimiser makes one pair of the two, whose results are up to a step off."""
    g = Graph("twice", seed=4, opset=18)
    x = g.conv(g.input("x", [1, 4, 19, 17]), 4, 6, 3, bias=True)
    for scale, zero in ((0.1, 0), second):
        quantisation = g.const(np.float32(scale)), g.const(np.uint8(zero))
        x = g.op("DequantizeLinear", g.op("QuantizeLinear", x, *quantisation), *quantisation)
    g.output(g.op("Relu", x, name="y"))
    model = g.model()
    inputs = {"x": np.random.default_rng(5).standard_normal((1, 4, 19, 17), np.float32) * 4}
    (wanted,) = run_onnxruntime(model, inputs)
    (found,) = run_onnxruntime(normalise(g.model()), inputs)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("stored", ["floats", "integers"])
def test_weights_and_biases_of_floats_are_not_rounded(stored: str) -> None:
    """ONNX Runtime's basic optimiser makes integers of them where what is around is quantised."""
    g = Graph("weights", seed=4, opset=18)
    quantisation = g.const(np.float32(0.05)), g.const(np.uint8(128))
    x = g.op("QuantizeLinear", g.input("x", [1, 4, 9, 7]), *quantisation)
    weights = g.weight(6, 4, 3, 3)
    if stored == "integers":
        integers = np.random.default_rng(3).integers(-127, 128, (6, 4, 3, 3)).astype(np.int8)
        weights = g.op("DequantizeLinear", g.const(integers), g.const(np.float32(0.01)))
    y = g.op("Conv", g.op("DequantizeLinear", x, *quantisation), weights, g.weight(6))
    g.output(g.op("DequantizeLinear", g.op("QuantizeLinear", y, *quantisation), *quantisation, name="y"))
    normal = normalise(g.model())
    kinds = [onnx.TensorProto.DataType.Name(one.data_type) for one in normal.graph.initializer if one.dims]
    assert "FLOAT" in kinds and "INT32" not in kinds and ("INT8" in kinds) == (stored == "integers"), kinds
    inputs = {"x": np.random.default_rng(5).standard_normal((1, 4, 9, 7), np.float32) * 2}
    for wanted, found in zip(
        run_onnxruntime(g.model(), inputs), run_onnxruntime(normal, inputs), strict=True
    ):
        np.testing.assert_array_equal(found, wanted)

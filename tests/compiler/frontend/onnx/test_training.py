"""Dropout and BatchNormalization of training are never taken for those of inference."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from edgepack.compiler.frontend.onnx import import_model
from edgepack.compiler.frontend.onnx.support import RefusedNodesError
from workbench.models.builder import Graph


def _dropout(
    opset: int, ratio: float | None = None, mode: bool | None = None, **about: Any
) -> onnx.ModelProto:
    """Its mode and ratio as the opset has them: operands, or attributes."""
    g = Graph("dropout", opset=opset)
    x = g.input("x", [2, 3])
    operands = []
    if opset >= 12:
        operands = [
            "" if ratio is None else g.const(ratio),
            "" if mode is None else g.const(np.asarray(mode)),
        ]
    elif ratio is not None:
        about["ratio"] = ratio
    g.output(g.op("Dropout", x, *operands, name="y", **about))
    return g.model()


def _norm(opset: int, outputs: int = 1, **about: int) -> onnx.ModelProto:
    g = Graph("norm", opset=opset)
    x = g.input("x", [2, 3])
    weights = [g.uniform(3, low=0.5, high=1.5) for _ in range(4)]
    g.output(g.ops("BatchNormalization", x, *weights, outputs=outputs, name="y", **about)[0])
    return g.model()


#: What is refused, and what the refusal says.
REFUSED: Mapping[str, tuple[onnx.ModelProto, str]] = {
    "training_mode": (_dropout(13, 0.5, True), "drawn anew in each run"),
    "of the usual ratio": (_dropout(12, None, True), "drawn anew in each run"),
    "is_test": (_dropout(6, is_test=0), "drawn anew in each run"),
    "by default": (_dropout(6), "drawn anew in each run"),
    "a norm's is_test": (_norm(6, is_test=0), "its attribute is_test is 0"),
    "a norm's results": (_norm(9, outputs=5), "it has 5 results"),
}

#: What drops nothing.
KEPT: Mapping[str, onnx.ModelProto] = {
    "inference": _dropout(13, 0.5, False),
    "no mode": _dropout(13, 0.5),
    "nothing to drop": _dropout(13, 0.0, True),
    "opset 7": _dropout(7, 0.5),
    "is_test": _dropout(6, is_test=1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_differs_in_each_run_is_refused(name: str) -> None:
    model, why = REFUSED[name]
    with pytest.raises(RefusedNodesError, match="is in training mode, which cannot be compiled") as caught:
        import_model(model)
    assert why in caught.value.message
    assert "model.eval()" in caught.value.hint


@pytest.mark.parametrize("name", KEPT)
def test_what_drops_nothing_passes_its_operand_on(name: str) -> None:
    assert import_model(KEPT[name]).operators.keys() <= {"Identity"}


def test_a_mask_of_training_that_drops_nothing_is_one_of_bools() -> None:
    g = Graph("mask", opset=13)
    names = g.ops(
        "Dropout", g.input("x", [2, 3]), g.const(0.0), g.const(np.asarray(True)), outputs=2, name="y"
    )
    for name, dtype in zip(names, ("float32", "bool"), strict=True):
        g.output(name, dtype)
    assert [spec.dtype for spec in import_model(g.model()).signature.outputs] == ["float32", "bool"]


@pytest.mark.parametrize("inside", ["If", "Loop"])
def test_a_mode_that_is_a_constant_around_a_graph_counts_inside(inside: str) -> None:
    """ONNX Runtime's optimiser takes such a Dropout for one of inference."""
    g = Graph("inside", opset=13)
    x, ratio, mode = g.input("x", [3, 4]), g.const(0.5), g.const(np.asarray(True))
    w = g.const(np.eye(4, dtype=np.float32), name="w")

    def graph(read: str, inputs: list[onnx.ValueInfoProto], *first: onnx.ValueInfoProto) -> onnx.GraphProto:
        nodes = [
            helper.make_node("MatMul", [read, w], ["product"]),
            helper.make_node("Dropout", ["product", ratio, mode], ["dropped"]),
        ]
        result = helper.make_tensor_value_info("dropped", TensorProto.FLOAT, [3, 4])
        return helper.make_graph(nodes, "inner", inputs, [*first, result])

    if inside == "If":
        other = [helper.make_node("Neg", [x], ["negative"])]
        results = [helper.make_tensor_value_info("negative", TensorProto.FLOAT, [3, 4])]
        branches = {
            "then_branch": graph(x, []),
            "else_branch": helper.make_graph(other, "other", [], results),
        }
        condition = g.op("Greater", g.op("ReduceSum", x, keepdims=0), g.const(0.0))
        g.output(g.op("If", condition, name="y", **branches))
    else:
        going = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
        inputs = [helper.make_tensor_value_info("trip", TensorProto.INT64, []), going]
        inputs.append(helper.make_tensor_value_info("state", TensorProto.FLOAT, [3, 4]))
        g.output(g.op("Loop", g.const(500), "", x, body=graph("state", inputs, going), name="y"))
    with pytest.raises(RefusedNodesError, match="is in training mode"):
        import_model(g.model())


def test_statistics_of_each_element_of_a_sample_are_computed() -> None:
    """``spatial=0`` of opsets 7 and 8: a mean for each channel and place."""
    g = Graph("places", opset=7)
    weights = [g.uniform(3, 4, low=0.5, high=1.5) for _ in range(4)]
    g.output(g.op("BatchNormalization", g.input("x", [2, 3, 4]), *weights, spatial=0, name="y"))
    assert "BatchNormalization" not in import_model(g.model()).operators

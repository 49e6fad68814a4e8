"""Channels that are multiplied by 0 only are left out of networks of integers, which compute the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper

from edgepack.compiler.frontend.onnx.fixed_point import DOMAIN, MULTIPLY
from edgepack.compiler.frontend.onnx.standard_evaluator import evaluate
from edgepack.compiler.frontend.onnx.unread_channels import drop_unread_channels
from workbench.models.builder import Graph

Array = np.ndarray[Any, Any]

#: Channels of the hidden layer, those whose weights the last layer has as 0, and one that is always 0.
HIDDEN, UNREAD, ZERO = 24, [1, 2, 3, 8, 9, 10, 11, 12, 17], 20

#: What the last layer keeps: those that are read, and a multiple of four.
KEPT = 16


class Network(Graph):
    """A pointwise convolution, a depthwise one with padding if asked for, a pointwise one; all rescaled."""

    def __init__(self, *, depthwise: bool) -> None:
        super().__init__("network", seed=7)
        x = self.input("x", [1, 4, 4, 5], "int32")
        first = self.rng.integers(-90, 90, (HIDDEN, 5, 1, 1)).astype(np.int32)
        first[ZERO] = 0
        last = self.rng.integers(-90, 90, (6, HIDDEN, 1, 1)).astype(np.int32)
        last[:, UNREAD] = 0
        self.hidden = self.scaled(self.pointwise(x, first), np.r_[:HIDDEN] * 31 - 400)
        before = self.hidden
        if depthwise:
            weights = self.rng.integers(-90, 90, (HIDDEN, 1, 3, 3)).astype(np.int32)
            before = self.scaled(self.pointwise(self.hidden, weights, HIDDEN), np.r_[:HIDDEN] * 57)
        self.result = self.scaled(self.pointwise(before, last), np.r_[:6])

    def pointwise(self, x: str, weights: Array, group: int = 1) -> str:
        first = self.op("Transpose", x, perm=[0, 3, 1, 2])
        kernel = list(weights.shape[2:])
        pads = [kernel[0] // 2] * 4
        made = self.op("Conv", first, self.const(weights), kernel_shape=kernel, pads=pads, group=group)
        return self.op("Transpose", made, perm=[0, 2, 3, 1])

    def scaled(self, x: str, bias: Array) -> str:
        """Less the zero point -128 again, which is the least byte: 0 where the sum is negative."""
        count = len(bias)
        x = self.op("Add", x, self.const(bias.astype(np.int32)))
        factors = self.rng.integers(1 << 30, (1 << 31) - 1, count).astype(np.int32)
        shifts = self.rng.integers(-8, -5, count).astype(np.int32)
        x = self.op(MULTIPLY, x, self.const(factors), self.const(shifts), domain=DOMAIN, largest=1 << 22)
        x = self.op("Add", x, self.const(np.array(-128, np.int32)))
        x = self.op("Clip", x, self.const(np.array(-128, np.int32)), self.const(np.array(127, np.int32)))
        x = self.op("Cast", self.op("Cast", x, to=TensorProto.INT8), to=TensorProto.INT32)
        return self.op("Sub", x, self.const(np.array(-128, np.int32)))

    def with_outputs(self, *names: str) -> onnx.ModelProto:
        for name in names:
            self.output(name, "int32")
        return self.model()


def widths(model: onnx.ModelProto) -> list[tuple[int, ...]]:
    """Shapes of all convolutions' weights."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    return [shapes[node.input[1]] for node in model.graph.node if node.op_type == "Conv"]


def after(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model without such channels, which computes what it did before."""
    x = np.random.default_rng(3).integers(-128, 128, (1, 4, 4, 5)).astype(np.int32)
    expected = evaluate(model, {"x": x})
    assert all(np.unique(one).size > 20 for one in expected)
    drop_unread_channels(model)
    for result, one in zip(evaluate(model, {"x": x}), expected, strict=True):
        np.testing.assert_array_equal(result, one)
    return model


def test_channels_that_nothing_reads_are_not_computed_by_any_layer_before() -> None:
    network = Network(depthwise=True)
    model = after(network.with_outputs(network.result))
    assert widths(model) == [(KEPT, 5, 1, 1), (KEPT, 1, 3, 3), (6, KEPT, 1, 1)]
    depthwise = [node for node in model.graph.node if node.op_type == "Conv"][1]
    assert next(a.i for a in depthwise.attribute if a.name == "group") == KEPT


@pytest.mark.parametrize("bias, kept", [(-5, KEPT - 4), (5, KEPT)])
def test_channels_without_weights_are_left_out_where_they_are_always_0(bias: int, kept: int) -> None:
    """Twelve channels are read that have weights; of three more the biases decide."""
    network = Network(depthwise=False)
    for name, value in (("const_0", 0), ("const_1", bias << 6)):  # the first layer's weights and biases
        array = numpy_helper.to_array(network.initializers[name]).copy()
        array[[0, 4, ZERO]] = value
        network.const(array, name=name)
    assert widths(after(network.with_outputs(network.result))) == [(kept, 5, 1, 1), (6, kept, 1, 1)]


@pytest.mark.parametrize("what", ["an output", "another reader"])
def test_channels_that_something_else_reads_stay(what: str) -> None:
    network = Network(depthwise=True)
    others = [network.hidden] if what == "an output" else [network.op("Neg", network.hidden)]
    model = after(network.with_outputs(network.result, *others))
    assert widths(model)[0] == (HIDDEN, 5, 1, 1)

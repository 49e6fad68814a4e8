"""A network of int16 with weights of int8 (TFLite's 16x8), of the shape of a keyword spotter."""

from __future__ import annotations

from typing import Any

import numpy as np

from workbench.models.tflite.writer import Writer

__all__ = ["network_16x8"]

#: Of all activations but those behind functions that have a scale of their own.
SCALE = 4e-4


def network_16x8(*, rows: int = 13, channels: int = 16, words: int = 12) -> bytes:
    """A file: convolution, depthwise and pointwise ones, a sum, TANH, an average, a fully connected layer."""
    net = _Network(np.random.default_rng(3))
    x = net.tensor([1, rows, 10, 1])
    first = net.convolution(x, [channels, 4, 3, 1], relu=True)
    inner = net.depthwise(first, 3)
    inner = net.convolution(inner, [channels, 1, 1, channels], relu=True)
    added = net.tensor(net.shape(first))
    net.writer.operator("ADD", [first, inner], [added], 3)
    bent = net.tensor(net.shape(added), 2.0**-15)
    net.writer.operator("TANH", [added], [bent], 3)
    whole = net.shape(bent)[1:3]
    mean = net.tensor([1, 1, 1, channels], 2.0**-15)
    net.writer.operator(
        *("AVERAGE_POOL_2D", [bent], [mean], 3, "Pool2D"),
        **{"padding": 1, "strideH": 1, "strideW": 1, "filterHeight": whole[0], "filterWidth": whole[1]},
    )
    flat = net.tensor([1, channels], 2.0**-15)
    net.writer.operator("RESHAPE", [mean], [flat], newShape=[1, channels])
    return net.writer.finished([x], [net.fully_connected(flat, words)])


class _Network:
    """Layers of drawn weights, whose results have a spread that int16 holds."""

    def __init__(self, random: np.random.Generator) -> None:
        self.writer, self.random = Writer(), random

    def tensor(self, shape: list[int], scale: float = SCALE) -> int:
        return self.writer.tensor(shape, "int16", scale)

    def shape(self, index: int) -> list[int]:
        return list(self.writer.graph.tensors[index].shape)

    def convolution(self, x: int, shape: list[int], *, relu: bool) -> int:
        y = self.tensor([*self.shape(x)[:3], shape[0]])
        taps = int(np.prod(shape[1:]))
        options = {"strideH": 1, "strideW": 1, "fusedActivationFunction": int(relu)}
        operands = [x, *self._weights(x, shape, shape[0], taps, axis=0)]
        self.writer.operator("CONV_2D", operands, [y], 4, "Conv2D", **options)
        return y

    def depthwise(self, x: int, side: int) -> int:
        channels = self.shape(x)[3]
        y = self.tensor(self.shape(x))
        options = {"strideH": 1, "strideW": 1, "depthMultiplier": 1, "fusedActivationFunction": 1}
        operands = [x, *self._weights(x, [1, side, side, channels], channels, side * side, axis=3)]
        self.writer.operator("DEPTHWISE_CONV_2D", operands, [y], 4, "DepthwiseConv2D", **options)
        return y

    def fully_connected(self, x: int, count: int) -> int:
        y, taps = self.tensor([1, count]), self.shape(x)[1]
        operands = [x, *self._weights(x, [count, taps], 1, taps, axis=0)]
        self.writer.operator("FULLY_CONNECTED", operands, [y], 5)
        return y

    def _weights(self, x: int, shape: list[int], scales: int, taps: int, axis: int) -> tuple[int, int]:
        """Weights of so many scales, and a bias."""
        given: Any = self.writer.graph.tensors[x].quantization.scale
        each = self.random.uniform(0.7, 1.4, scales) / (74 * np.sqrt(taps))
        values = self.random.integers(-127, 128, shape, np.int8)
        count = shape[3] if axis == 3 else shape[0]
        weights = self.writer.tensor(shape, "int8", each, 0, axis, values)
        bias = self.random.integers(-(2**20), 2**20, count, np.int64)
        return weights, self.writer.tensor([count], "int64", each * given[0], data=bias)

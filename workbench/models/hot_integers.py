"""Quantised layers of the sizes of real networks, and the same of float32: ``LAYERS[name]``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import onnx

from workbench.models import hot
from workbench.models.builder import Graph

__all__ = ["LAYERS", "Layer"]


@dataclass(frozen=True)
class Layer:
    """A convolution of ``cin`` by ``cout`` channels, or, of size 0, a product of ``rows`` by these."""

    cin: int
    cout: int
    size: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1
    rows: int = 0

    def quantised(self, least: int) -> onnx.ModelProto:
        """Of bytes, with weights from ``least`` to 127."""
        g, k = Graph("kernel"), self.kernel
        shape = (self.cout, self.cin // self.groups, k, k) if self.size else (self.cin, self.cout)
        weights = g.rng.integers(least, 128, shape).astype(np.int8)
        weights.reshape(-1)[0] = least
        image = (1, self.cin, self.size, self.size) if self.size else (self.rows, self.cin)
        inputs = [
            *(g.input("x", image, "uint8"), g.const(np.float32(0.05)), g.const(np.uint8(131))),
            *(g.const(weights), g.const(np.float32(0.002)), g.const(np.int8(0))),
            *(g.const(np.float32(0.3)), g.const(np.uint8(117))),
        ]
        if not self.size:
            y = g.op("QLinearMatMul", *inputs, name="y")
        else:
            window = {"pads": [k // 2] * 4, "strides": [self.stride] * 2, "group": self.groups}
            y = g.op("QLinearConv", *inputs, g.const(np.zeros(self.cout, np.int32)), name="y", **window)
        g.output(y, "uint8")
        return g.model()

    def floats(self) -> onnx.ModelProto:
        if not self.size:
            return hot.matmul(self.rows, self.cin, self.cout)
        return hot.conv(self.cin, self.cout, self.size, self.kernel, stride=self.stride, groups=self.groups)


LAYERS = {
    "1x1, 64 to 128": Layer(64, 128, 28),
    "3x3 stride 2, 64 to 128": Layer(64, 128, 28, 3, 2),
    "3x3 stride 1, 64 to 64": Layer(64, 64, 56, 3),
    "7x7 stride 2, 3 to 64": Layer(3, 64, 112, 7, 2),
    "grouped 3x3, 8 per group": Layer(256, 256, 28, 3, groups=32),
    "depthwise 3x3, 96": Layer(96, 96, 28, 3, groups=96),
    "matmul 128x384x1536": Layer(384, 1536, 0, rows=128),
    "matmul 1x512x1000": Layer(512, 1000, 0, rows=1),
}

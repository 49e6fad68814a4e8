"""Models of one hot kernel each (and copies), of the sizes of real networks: ``KERNELS[name]()``."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from workbench.models.builder import Graph

__all__ = ["KERNELS", "conv", "matmul"]


def conv(cin: int, cout: int, size: int, kernel: int, **options: int) -> onnx.ModelProto:
    g = Graph("kernel")
    x = g.conv(g.input("x", [1, cin, size, size]), cin, cout, kernel, bias=True, **options)
    g.op("Relu", x, name="y")
    g.output("y")
    return g.model()


def _signal(channels: int, length: int, taps: int, dilation: int = 1) -> onnx.ModelProto:
    g = Graph("kernel")
    reach = (taps - 1) * dilation // 2
    x = g.input("x", [1, channels, length])
    weights = g.weight(channels, channels, taps)
    x = g.op("Conv", x, weights, g.weight(channels), pads=[reach, reach], dilations=[dilation])
    g.op("Relu", x, name="y")
    g.output("y")
    return g.model()


def matmul(rows: int, depth: int, columns: int) -> onnx.ModelProto:
    g = Graph("kernel")
    g.op("Identity", g.linear(g.input("x", [rows, depth]), depth, columns), name="y")
    g.output("y")
    return g.model()


def _before_classifier(cin: int, cout: int, kernel: int, size: int = 14) -> onnx.ModelProto:
    """A convolution that fetches the weights of the layer behind it."""
    g = Graph("kernel")
    x = g.op("Relu", g.conv(g.input("x", [1, cin, size, size]), cin, cout, kernel, bias=True))
    g.op("Identity", g.gemm(g.op("Flatten", g.op("GlobalAveragePool", x)), cout, 1000), name="y")
    g.output("y")
    return g.model()


def _attention() -> onnx.ModelProto:
    g = Graph("kernel")
    g.op("MatMul", g.input("x", [1, 3, 197, 64]), g.input("z", [1, 3, 64, 197]), name="y")
    g.output("y")
    return g.model()


#: By what the kernel does.
KERNELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "1x1, 64 to 128": lambda: conv(64, 128, 28, 1),
    "3x3 stride 2, 64 to 128": lambda: conv(64, 128, 28, 3, stride=2),
    "3x3 stride 1, 64 to 64": lambda: conv(64, 64, 56, 3),
    "3x3 stride 1, 256 to 256, cut tiles": lambda: conv(256, 256, 14, 3),
    "7x7 stride 2, 3 to 64": lambda: conv(3, 64, 112, 7, stride=2),
    "signal, 3 taps, 64 to 64": lambda: _signal(64, 2048, 3, 3),
    "signal, 5 taps, 64 to 64": lambda: _signal(64, 1024, 5),
    "signal, 7 taps, 64 to 64": lambda: _signal(64, 1024, 7),
    "grouped 3x3, 16 per group": lambda: conv(64, 64, 28, 3, groups=4),
    "grouped 3x3, 8 per group": lambda: conv(256, 256, 28, 3, groups=32),
    "depthwise 3x3, 96": lambda: conv(96, 96, 28, 3, groups=96),
    "depthwise 3x3 stride 2, 96": lambda: conv(96, 96, 28, 3, groups=96, stride=2),
    "depthwise 5x5, 72": lambda: conv(72, 72, 28, 5, groups=72),
    "depthwise 7x7, 96": lambda: conv(96, 96, 28, 7, groups=96),
    "matmul 128x384x1536": lambda: matmul(128, 384, 1536),
    "matmul 1x512x1000": lambda: matmul(1, 512, 1000),
    "q k of attention": _attention,
    "1x1 that fetches, 320 to 960": lambda: _before_classifier(320, 960, 1),
    "3x3 that fetches, 256 to 256": lambda: _before_classifier(256, 256, 3, 28),
}

"""Small convolutional networks for microcontrollers, drawn by a seed; two of three are quantised."""

from __future__ import annotations

import numpy as np
import onnx

from workbench.models.builder import Graph
from workbench.models.quantise import quantise

__all__ = ["drawn"]


def drawn(seed: int) -> onnx.ModelProto:
    """The network of a seed: a first convolution of stride 2, then separable, plain and residual blocks.
    Those whose seed is a multiple of 3 are of float32, the others of int8."""
    random = np.random.default_rng(seed)

    def one_of(*values: int) -> int:
        return int(random.choice(values))

    g = Graph(f"drawn{seed}", seed=seed)
    channels, side = one_of(1, 2, 3, 4), int(random.integers(16, 41))
    x = g.input("x", [1, channels, side, side + int(random.integers(0, 9))])
    wide = one_of(8, 12, 16, 20, 24, 32)
    x, channels = g.act(g.conv(x, channels, wide, one_of(3, 5), stride=2), "Relu"), wide
    for _ in range(int(random.integers(2, 5))):
        form = str(random.choice(["separable", "plain", "residual"]))
        if form == "residual":
            y = g.act(g.conv(x, channels, channels, one_of(1, 3)), "Relu")
            x = g.act(g.op("Add", x, g.conv(y, channels, channels, 3)), "Relu")
            continue
        wide = one_of(channels, channels + 8, 2 * channels if channels < 48 else channels)
        if form == "separable":
            kernel, stride = one_of(3, 3, 5), one_of(1, 1, 2)
            x = g.act(g.conv(x, channels, channels, kernel, stride=stride, groups=channels), "Relu")
            x = g.act(g.conv(x, channels, wide, 1), "Relu")
        else:
            x = g.act(g.conv(x, channels, wide, 3, stride=one_of(1, 2)), "Relu")
        channels = wide
    x = g.op("Flatten", g.op("GlobalAveragePool", x))
    g.output(g.gemm(x, channels, one_of(4, 10, 12)))
    model = g.model()
    return model if seed % 3 == 0 else quantise(model, "s8s8", seed=seed)

"""Networks over videos: R3D-18, and what factorises it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx

from workbench.models.builder import Graph

__all__ = ["r3d"]


def _conv(
    g: Graph, x: str, channels: tuple[int, int], kernel: Sequence[int], strides: Sequence[int] = (1, 1, 1)
) -> str:
    """A convolution that keeps the size at stride 1, with the normalisation behind it folded into it."""
    inner, outer = channels
    std = float(np.sqrt(2.0 / (inner * np.prod(kernel))))
    pads = [k // 2 for k in kernel] * 2
    weights = g.weight(outer, inner, *kernel, std=std), g.weight(outer, std=0.1)
    return g.op("Conv", x, *weights, strides=list(strides), pads=pads)


def r3d(
    *,
    frames: int = 4,
    size: int = 16,
    channels: Sequence[int] = (8, 16),
    blocks: int = 1,
    classes: int = 10,
    factorised: bool = False,
    seed: int = 0,
) -> onnx.ModelProto:
    """R3D, of a video (1, 3, frames, size, size). R3D-18 is frames=16, size=112, channels=(64, 128, 256,
    512), blocks=2.

    D. Tran et al., A Closer Look at Spatiotemporal Convolutions for Action Recognition, 2018.

    Args:
        factorised: R(2+1)D: each convolution is one over the planes and one over their depth.
    """
    g = Graph("r3d", seed=seed)

    def conv(x: str, inner: int, outer: int, stride: int = 1) -> str:
        if not factorised:
            return _conv(g, x, (inner, outer), (3, 3, 3), [stride] * 3)
        middle = inner * outer * 27 // (inner * 9 + 3 * outer)
        y = g.op("Relu", _conv(g, x, (inner, middle), (1, 3, 3), [1, stride, stride]))
        return _conv(g, y, (middle, outer), (3, 1, 1), [stride, 1, 1])

    inner = channels[0]
    x = _conv(g, g.input("video", [1, 3, frames, size, size]), (3, inner), (3, 7, 7), [1, 2, 2])
    x = g.op("Relu", x)
    for stage, outer in enumerate(channels):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            y = g.op("Relu", conv(x, inner, outer, stride))
            y = conv(y, outer, outer)
            if stride > 1:
                x = _conv(g, x, (inner, outer), (1, 1, 1), [stride] * 3)
            x, inner = g.op("Relu", g.op("Add", y, x)), outer
    g.op("Flatten", g.op("GlobalAveragePool", x), name="features")
    g.op("Identity", g.gemm("features", inner, classes), name="y")
    g.output("y")
    return g.model()

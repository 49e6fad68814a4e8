"""Small relatives of large networks: fewer layers and pixels, the same operators side by side.

They compile in seconds where the networks take up to a minute; ``LARGE`` in :mod:`workbench.models` lists
these.
"""

from __future__ import annotations

import onnx

from workbench.models.builder import Graph
from workbench.models.vision import classifier

__all__ = ["small_alexnet", "small_densenet", "small_inception", "small_vgg"]


def small_vgg(seed: int = 0, size: int = 64) -> onnx.ModelProto:
    """VGG (Simonyan and Zisserman, 2014): a layer of each width behind one of another, large dense ones."""
    g = Graph("small_vgg", seed=seed)
    x, cin = g.input("input", [1, 3, size, size]), 3
    for width in (64, 128, 256, 512):
        for _ in range(2):
            x = g.op("Relu", g.conv(x, cin, width, 3, bias=True))
            cin = width
        x = g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    features = cin * (size // 16) ** 2
    x = g.op("Reshape", x, g.const([1, features]))
    x = g.op("Dropout", g.op("Relu", g.gemm(x, features, 512)))
    classifier(g, g.op("Relu", g.gemm(x, 512, 256)), 256, 100)
    return g.model()


def small_alexnet(seed: int = 0, size: int = 79) -> onnx.ModelProto:
    """AlexNet, ZFNet: 11x11 with stride, 5x5 in two groups, normalisation across channels, uneven pools."""
    g = Graph("small_alexnet", seed=seed)
    x = g.op(
        "Relu", g.conv(g.input("input", [1, 3, size, size]), 3, 48, 11, stride=4, pads=[0] * 4, bias=True)
    )
    x = g.op("LRN", x, size=5, alpha=1e-2, beta=0.75, bias=1.0)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2])
    x = g.op("Relu", g.conv(x, 48, 128, 5, groups=2, bias=True))
    x = g.op("LRN", x, size=5, alpha=1e-2, beta=0.75, bias=1.0)
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    x = g.op("Relu", g.conv(x, 128, 96, 3, bias=True))
    x = g.op("Relu", g.conv(x, 96, 64, 3, groups=2, bias=True))
    x = g.op("Flatten", g.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]))
    x = g.op("Dropout", g.op("Relu", g.gemm(x, 256, 128)))
    g.op("Softmax", g.gemm(x, 128, 100), axis=-1, name="probabilities")
    g.output("probabilities")
    return g.model()


def small_densenet(seed: int = 0, size: int = 64, growth: int = 32) -> onnx.ModelProto:
    """DenseNet (Huang et al., 2016): normalised before each layer, and each layer reads all before it."""
    g = Graph("small_densenet", seed=seed)
    x, cin = g.conv_bn(g.input("input", [1, 3, size, size]), 3, 64, 7, stride=2), 64
    x = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for block in range(2):
        if block:
            cin, before = cin // 2, cin
            x = g.conv(_scaled(g, x, before), before, cin, 1)
            x = g.op("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
        for _ in range(3):
            y = g.conv(_scaled(g, x, cin), cin, 4 * growth, 1)
            y = g.conv(_scaled(g, y, 4 * growth), 4 * growth, growth, 3)
            x, cin = g.op("Concat", x, y, axis=1), cin + growth
    x = g.op("GlobalAveragePool", _scaled(g, x, cin))
    g.op("Conv", x, g.weight(100, cin, 1, 1), g.weight(100, std=0.1), name="logits")
    g.output("logits")
    return g.model()


def small_inception(seed: int = 0, size: int = 64) -> onnx.ModelProto:
    """Inception v2 (Ioffe, Szegedy, 2015): branches of 1x1, 3x3, two 3x3, a pool; with stride and without."""
    g = Graph("small_inception", seed=seed)
    x = g.op("Relu", _scaled(g, g.conv(g.input("input", [1, 3, size, size]), 3, 64, 7, stride=2), 64))
    x, cin = g.op("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), 64
    # width of the 1x1 branch (none where the module has a stride), of the 3x3 ones, of the pool's projection
    for one, three, projected in ((64, 96, 32), (0, 80, 0), (88, 96, 64)):
        stride = 1 if one else 2
        window = {"kernel_shape": [3, 3], "strides": [stride] * 2, "pads": [1] * 4}
        branches = [_unit(g, x, cin, one, 1)] if one else []
        branches.append(_unit(g, _unit(g, x, cin, 64, 1), 64, three, 3, stride))
        double = _unit(g, _unit(g, x, cin, 64, 1), 64, 96, 3)
        branches.append(_unit(g, double, 96, 96, 3, stride))
        pool = g.op("AveragePool" if one else "MaxPool", x, **window)
        branches.append(_unit(g, pool, cin, projected, 1) if projected else pool)
        x, cin = g.op("Concat", *branches, axis=1), one + three + 96 + (projected or cin)
    x = g.op("AveragePool", x, kernel_shape=[size // 8] * 2)
    classifier(g, g.op("Reshape", x, g.const([1, cin])), cin, 100)
    return g.model()


def _unit(g: Graph, x: str, cin: int, cout: int, kernel: int, stride: int = 1) -> str:
    return g.op("Relu", _scaled(g, g.conv(x, cin, cout, kernel, stride=stride, bias=True), cout, relu=False))


def _scaled(g: Graph, x: str, channels: int, *, relu: bool = True) -> str:
    """A batch normalisation whose scale and shift are nodes of their own, as Caffe's models have them."""
    x = g.batch_norm(x, channels, gamma=(1.0, 1.0))
    scale, shift = (
        g.op("Unsqueeze", weight, g.const([1, 2]))
        for weight in (g.uniform(channels, low=0.7, high=1.3), g.weight(channels, std=0.1))
    )
    x = g.op("Add", g.op("Mul", x, scale), shift)
    return g.op("Relu", x) if relu else x
